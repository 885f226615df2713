# Two commands need nothing but Python 3.11, pip and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types unit golden mutants bugs peers clean

demo: .venv/ready
	rm -rf build/demo
	$(BIN)/tokenmill run examples/sample build/demo --max-rejects 5%
	$(BIN)/tokenmill verify build/demo --against-source all
	$(BIN)/python examples/read_rows.py build/demo

test: lint types unit

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

unit: .venv/ready
	$(BIN)/pytest

# After a change of the output on purpose: writes its digests anew; the diff shows what changed.
golden: .venv/ready
	$(BIN)/python -m tests.golden.record

# How well the tests notice changes of the code: half an hour on 2 cores, and it goes on where it was stopped.
mutants: .venv/ready
	$(BIN)/python -m tests.mutation

# Every bug of tests/mutation/bugs.json must be noticed by its test.
bugs: .venv/ready
	$(BIN)/python -m tests.mutation --bugs

# The stamp is newer than the files that name the dependencies, or the environment is brought up to date.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("tokenmill needs Python 3.11 or newer: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# What `tokenmill benchmark --peers` compares with, in environments of their own.
peers: .peers/dolma/ready .peers/others/ready

.peers/%/ready: benchmarks/peers/%.txt
	$(PYTHON) -m venv .peers/$*
	.peers/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

clean:
	rm -rf .venv .peers build
