"""datatrove's DocumentTokenizer over a folder of shards. Run by the Python that has datatrove, not by tokenmill's."""

import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader, ParquetReader
from datatrove.pipeline.tokens import DocumentTokenizer

folder, pattern, out, tokenizer, field, workers, eos = sys.argv[1:]

if __name__ == "__main__":
    reader = ParquetReader if pattern.endswith(".parquet") else JsonlReader
    LocalPipelineExecutor(
        pipeline=[
            reader(folder, glob_pattern=pattern, text_key=field),
            DocumentTokenizer(out + "/tokens", tokenizer, eos_token=eos, shuffle_documents=False),
        ],
        tasks=int(workers),
        workers=int(workers),
        logging_dir=out + "/logs",
    ).run()
