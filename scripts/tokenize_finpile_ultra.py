"""The guide's script name for `tokenmill run --engine ultra`; takes the same options.

python scripts/tokenize_finpile_ultra.py --input-dir FinPile/0fp-100dolma --output-dir tokenized/
"""

import sys

from tokenmill.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main(["run", "--engine", "ultra", *sys.argv[1:]]))
