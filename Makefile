# `make demo` and `make test` do everything, on a fresh Debian machine with Python 3.11, as root or not.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test test-clusters test-others check bench clean

demo: $(VENV)/.examples
	rm -rf out/demo
	$(BIN)/python examples/digits.py --store out/demo/studies.db
	$(BIN)/thriftune show digits --store out/demo/studies.db
	$(BIN)/thriftune show digits --store out/demo/studies.db --plot out/digits.png
	$(BIN)/thriftune market compare --synthetic --type synthetic-16
	$(BIN)/thriftune market compare --synthetic --type synthetic-16 --plot out/market.png
	$(BIN)/thriftune plan examples/plan/study.toml
	$(BIN)/thriftune plan examples/plan/study.toml --plot out/plan.png
	$(BIN)/thriftune bill digits --store out/demo/studies.db
	$(BIN)/thriftune simulate examples/spot/study.toml --policy thrifty,elastic,reuse,on_demand --plot out/timeline.png
	$(BIN)/thriftune reproduce earlycurve --quick --to out/reproduced

# Tests wait for processes more than they compute, so both halves of them run at a time. With the clusters go so many
# of the others that both take as long.
WITH_CLUSTERS := tests/system_room

test: check
	$(MAKE) --jobs 2 --keep-going test-clusters test-others

test-clusters:
	$(BIN)/pytest -m cluster
	$(BIN)/pytest -m 'not cluster' $(WITH_CLUSTERS)

test-others:
	$(BIN)/pytest -m 'not cluster' $(addprefix --ignore=,$(WITH_CLUSTERS))

check: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Each benchmark is one command; see docs/benchmarks.md. This one runs them all, peers included.
bench: $(VENV)/.test
	$(BIN)/python -m benchmarks

$(VENV)/.examples: $(VENV)/.made constraints.txt
	$(PIP) --editable '.[examples]'
	touch $@

$(VENV)/.test: $(VENV)/.made constraints.txt
	$(PIP) --editable '.[test]'
	touch $@

# Debian's python3 comes without venv; where it is missing, apt brings it.
$(VENV)/.made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "thriftune needs Python 3.11 or newer; say where it is: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { $$(test $$(id -u) = 0 || echo sudo) apt-get update && $$(test $$(id -u) = 0 || echo sudo) apt-get install --yes python3-venv; }
	$(PYTHON) -m venv $(VENV)
	touch $@

clean:
	rm -rf $(VENV) out build dist
