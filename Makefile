# make demo: install everything and run the demo. make test: install, lint and test. make install: install only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: install browser demo test test-lowest lint docs gallery bench clean

install: $(STAMP)

# torch first and pinned: an open range would download builds of several gigabytes that the tests do not need. seqeval
# has no wheel; it is built from source with build isolation, before the line that turns it off.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables seqeval
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e '.[dev]'
	touch $(STAMP)

# Tests that open the report in Chromium are skipped without it. This installs it on Debian-based systems, as root.
browser:
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; }

demo: install
	$(BIN)/attentrim demo

lint: install
	$(BIN)/ruff check src tests benchmarks docs/hooks.py
	$(BIN)/ruff format --check src tests benchmarks docs/hooks.py
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

# The tests with the oldest transformers that pyproject.toml allows, and with whatever else that release needs.
LOWEST := $(shell sed -n 's/.*"transformers>=\([0-9.]*\),.*/\1/p' pyproject.toml)
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	.venv-lowest/bin/python -m pip install --quiet -e '.[dev]' 'transformers==$(LOWEST).0'
	.venv-lowest/bin/python -m pytest

# The docs site in site/, and its tests: links, and what Chromium says of each page.
DOCS := $(VENV)/.docs
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python -m pytest -n 0 tests/test_site.py --site site

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e '.[docs]'
	touch $(DOCS)

# The reports of docs/gallery, made by the commands on its page. Paths of this machine are taken out. Takes 20 minutes.
GALLERY := $(CURDIR)/build/gallery
gallery: install
	rm -rf $(GALLERY) && mkdir -p $(GALLERY)
	awk '/^```/ {on = /^```bash/; next} on' docs/gallery/index.md > $(GALLERY)/commands.sh
	cd $(GALLERY) && PATH="$(abspath $(BIN)):$$PATH" sh -ex commands.sh
	for run in $(GALLERY)/*/report.html; do \
	    sed 's|$(GALLERY)/||g' $$run > docs/gallery/$$(basename $$(dirname $$run)).html; \
	done

bench: install
	$(BIN)/python benchmarks/folded_speed.py --shapes 8x128 4x256 2x512

clean:
	rm -rf $(VENV) .venv-lowest build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
