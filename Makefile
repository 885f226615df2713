# `make demo` and `make test` need nothing but Python 3.11 or newer, pip and make; the first use installs the rest.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types unit test-package golden options mutants bugs peers clean

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

# Builds the wheel and the sdist, installs each into an empty environment and runs the sample: a minute or two.
test-package: .venv/ready
	$(BIN)/pytest -n 0 -m package tests/system/test_package.py

# After an intended change of the output: records its digests again. The diff shows what changed.
golden: .venv/ready
	$(BIN)/python -m tests.golden.record

# After a change of an option: the page that documents them all.
options: .venv/ready
	$(BIN)/python -m tokenmill.cli.options_page > docs/options.md

# How many small changes of the code the tests notice: half an hour on 2 cores, and resumable.
mutants: .venv/ready
	$(BIN)/python -m tests.mutation

# Puts in every bug listed in tests/mutation/bugs.json, one at a time: its test must fail.
bugs: .venv/ready
	$(BIN)/python -m tests.mutation --bugs

# Rebuilt when the files that name the dependencies are newer than the stamp.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("tokenmill needs Python 3.11 or newer: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# The tools that `tokenmill benchmark --peers` compares tokenmill with, each in its own environment.
peers: .peers/dolma/ready .peers/others/ready

.peers/%/ready: benchmarks/peers/%.txt
	$(PYTHON) -m venv .peers/$*
	.peers/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

clean:
	rm -rf .venv .peers build dist
