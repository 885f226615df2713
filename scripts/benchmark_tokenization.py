"""The guide's script name for `tokenmill benchmark`; takes the same options.

python scripts/benchmark_tokenization.py --num-docs 1000
"""

import sys

from tokenmill.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main(["benchmark", *sys.argv[1:]]))
