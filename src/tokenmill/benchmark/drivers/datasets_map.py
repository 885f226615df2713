"""datasets.map with batches of 1,000, saved to disk. Run by the Python that has datasets, not by tokenmill's."""

import glob
import os
import sys

import datasets
import tokenizers

folder, pattern, out, tokenizer, field, workers, _eos = sys.argv[1:]
encoder = tokenizers.Tokenizer.from_file(tokenizer)


def encode(batch):
    found = encoder.encode_batch_fast(batch[field], add_special_tokens=False)
    return {"input_ids": [e.ids for e in found]}


if __name__ == "__main__":
    # Processes are the parallelism, as its documentation advises.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    kind = "parquet" if pattern.endswith(".parquet") else "json"
    files = sorted(glob.glob(f"{folder}/{pattern}"))
    data = datasets.load_dataset(kind, data_files=files, split="train", cache_dir=out + "/cache")
    data = data.map(encode, batched=True, num_proc=int(workers), remove_columns=data.column_names)
    data.save_to_disk(out + "/tokens")
