"""gigatoken's encode_files, and the tokens written to disk. Run by the Python that has gigatoken, not tokenmill's."""

import glob
import sys
from pathlib import Path

import awkward as ak
import gigatoken
import numpy as np

folder, pattern, out, tokenizer, field, _workers, _eos = sys.argv[1:]

paths = sorted(glob.glob(f"{folder}/{pattern}"))
source = gigatoken.ParquetFileSource if pattern.endswith(".parquet") else gigatoken.JsonlFileSource
encoder = gigatoken.Tokenizer.from_json(Path(tokenizer).read_text("utf-8"))
documents = encoder.encode_files(source(paths, field))
ids = np.asarray(ak.flatten(documents))
ids.astype(np.uint16 if encoder.vocab_size <= 1 << 16 else np.uint32).tofile(out + "/tokens.bin")
np.save(out + "/ends.npy", np.cumsum(np.asarray(ak.num(documents))))
