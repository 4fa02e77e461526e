# make demo   the whole journey on built-in data, in about a minute of training
# make studio the studio in your browser, on the runs of this folder
# make test   every test
# make lint   ruff and mypy
# make docs   the documentation site, into site/ (in an environment of its own)
# make bench  every comparison with peers, in an environment of its own, in under 25 minutes (NANOGPT=DIR adds nanoGPT)
# Each sets up .venv first, demo without the tools that only tests need; all that is needed beforehand is Python 3.11 or newer.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
INSTALL = $(RUN)/python -m pip install --quiet --constraint constraints.txt --editable
RUN := $(VENV)/bin
BENCH := .venv-bench
DOCS := .venv-docs

.PHONY: demo studio test lint format docs bench clean

demo: $(READY)
	$(RUN)/regard demo

studio: $(READY)
	$(RUN)/regard studio

# One thread a process: two processes of one thread are faster than two that fight over both cores. Where a test has more,
# those that wait sleep instead of spinning.
test: $(TOOLS)
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(RUN)/python -m pytest -q -n 2 --dist worksteal

lint: $(TOOLS)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

format: $(TOOLS)
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Regard needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	@touch $(READY)

$(TOOLS): $(READY)
	$(INSTALL) '.[dev]'
	@touch $(TOOLS)

# The reference is written from the code, by the environment that runs it; pages are rendered by another one, without network.
docs: $(READY) $(DOCS)/.ready
	$(RUN)/python tools/reference.py -o build/reference
	$(DOCS)/bin/python tools/build_site.py --reference build/reference -o site

$(DOCS)/.ready: docs/site/constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --constraint docs/site/constraints.txt mkdocs-material latex2mathml
	@touch $(DOCS)/.ready

# Peers at versions of their own file; torch and transformers at those of constraints.txt.
bench: $(BENCH)/.ready
	$(BENCH)/bin/python benchmarks/bench.py $(if $(NANOGPT),--nanogpt $(NANOGPT))

$(BENCH)/.ready: pyproject.toml constraints.txt benchmarks/constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --constraint constraints.txt --constraint benchmarks/constraints.txt \
		--editable '.[hf]' ctranslate2 x-transformers
	@touch $(BENCH)/.ready

clean:
	rm -rf $(VENV) $(BENCH) $(DOCS) .mypy_cache .ruff_cache .pytest_cache build site *.egg-info
