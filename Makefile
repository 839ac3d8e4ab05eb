# make demo: set up and run the main job. make test: set up, check and test. make install: the set-up alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: install browser demo test test-lowest lint bench clean

install: $(STAMP)

# torch first and pinned: an open range would fetch builds of several gigabytes that the tests do not need. seqeval is
# built from its sources, in a place of its own.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables seqeval
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e '.[dev]'
	touch $(STAMP)

# Tests of the report look at it in Chromium, and are skipped without it. On Debian and its kin, as root, this gets it.
browser:
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; }

demo: install
	$(BIN)/attentrim demo

lint: install
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

# The tests at the lowest transformers that pyproject.toml promises, with whatever else that release wants.
LOWEST := $(shell sed -n 's/.*"transformers>=\([0-9.]*\),.*/\1/p' pyproject.toml)
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	.venv-lowest/bin/python -m pip install --quiet -e '.[dev]' 'transformers==$(LOWEST).0'
	.venv-lowest/bin/python -m pytest

bench: install
	$(BIN)/python benchmarks/folded_speed.py --shapes 8x128 4x256 2x512

clean:
	rm -rf $(VENV) .venv-lowest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
