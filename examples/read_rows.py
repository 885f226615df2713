"""Shows what a run wrote: the shape of the rows, the start of the first one, and documents with their source.

python examples/read_rows.py build/demo
"""

from __future__ import annotations

import sys
from itertools import islice

import tokenizers

import tokenmill


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/read_rows.py OUTPUT")
    output = sys.argv[1]
    rows = tokenmill.open(output)
    tokenizer = tokenizers.Tokenizer.from_file(f"{output}/tokenizer.json")  # every output has its own

    print(f"\n{len(rows)} rows of {rows.seq_len} tokens, {rows.dtype}")
    print(f"rows[0][:12] = {rows[0][:12].tolist()}")
    print("\nThe first documents, decoded:")
    for document in islice(rows.documents(), 3):
        text = tokenizer.decode(document.tokens.tolist(), skip_special_tokens=False)
        print(f"  {document.file}:{document.record}  {text[:90]!r}")


if __name__ == "__main__":
    main()
