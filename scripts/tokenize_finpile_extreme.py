"""The guide's script name for `tokenmill run --engine extreme`; takes the same options.

python scripts/tokenize_finpile_extreme.py --input-dir FinPile/0fp-100dolma --output-dir tokenized/
"""

import sys

from tokenmill.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main(["run", "--engine", "extreme", *sys.argv[1:]]))
