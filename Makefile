# Everything a newcomer types: `make demo`, `make test`. Each installs into .venv first, once.
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTHONS := $(or $(PYTHON),python3 python3.11 python3.12 python3.13)
FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTEST := $(BIN)/python -m pytest
# Two workers of one thread each fill two cores; a file stays on one worker, for its fixtures. What times
# something is slow tier and runs alone.
PARALLEL := -n 2 --dist loadfile

.PHONY: help install demo test test-all lint docs notebooks clean

help:
	@echo "make demo      the whole experiment on this machine, one table, one figure"
	@echo "make test      the quick tests;  make test-all  the slow ones too"
	@echo "make lint      ruff;  make docs  what is generated under docs/"
	@echo "make install   only the installation into $(VENV);  make clean  removes it"
	@echo "PYTHON=python3.12 chooses the interpreter (3.11 to 3.13) of the first installation"

install: $(INSTALLED)

# The stamp is written last: an installation that was cut short is done again.
$(INSTALLED): pyproject.toml constraints.txt
	@for python in $(PYTHONS); do \
	  if "$$python" -c '$(FITS)' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "python: must be 3.11, 3.12 or 3.13 with the module venv, got none of: $(PYTHONS)." >&2; \
	  echo "Install one (on Debian and Ubuntu with the package python3-venv), or name yours: make PYTHON=/path/to/python3.12 demo" >&2; \
	  exit 1; \
	fi; \
	echo "installing into $(VENV) with $$("$$found" --version), once (about 2 minutes, more where pip fetches a CUDA build of torch)"; \
	"$$found" -m venv $(VENV)
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt -e ".[notebooks,test]"
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/memstrat demo

test: $(INSTALLED)
	@$(PYTEST) $(PARALLEL) -m "not slow"

test-all: test
	@$(PYTEST) -m slow

lint: $(INSTALLED)
	@$(BIN)/ruff check .

docs: $(INSTALLED)
	@$(BIN)/python -c "import json, pathlib; from memstrat.records import json_schema; \
	  pathlib.Path('docs/records.schema.json').write_text(json.dumps(json_schema(), indent=2) + '\n', encoding='utf-8')"

# REPO=owner/name@ref stamps the address that badges and first cells hold.
notebooks: $(INSTALLED)
	@$(BIN)/python -m memstrat.notebooks build $(if $(REPO),--repo $(REPO))

clean:
	rm -rf $(VENV) build *.egg-info
