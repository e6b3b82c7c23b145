# Everything runs in .venv, which `make setup` builds from requirements.lock with nothing but Python 3.11 and pip.
SHELL := /bin/sh
VENV  := .venv
PY    := $(VENV)/bin/python
STAMP := $(VENV)/.ambidex-setup

# One thread for each side: repeatable sums, and two test processes share two cores without fighting.
PINS := OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 KERAS_BACKEND=tensorflow TF_CPP_MIN_LOG_LEVEL=3
PYTEST_ARGS ?= -n 2 --dist loadfile
PACKAGES := src tests benchmarks examples
WHERE = $(wildcard $(PACKAGES))

.PHONY: quick setup demo browser test real score steps bench-compare format clean
.DEFAULT_GOAL := quick

quick: setup ## the inner loop: format, lint, types, import contracts, framework-free tests
	$(PY) -m ruff format --check $(WHERE)
	$(PY) -m ruff check $(WHERE)
	$(PY) -m mypy
	$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'
	$(PINS) $(PY) -m pytest -q -n 2 tests/unit

# The stamp holds a checksum of the lock, the project file and the folder (the package is installed by its path):
# nothing changed, nothing done.
setup:
	@want="$$(cat requirements.lock pyproject.toml | cksum) $(CURDIR)"; \
	if [ -x $(PY) ] && [ "$$(cat $(STAMP) 2>/dev/null)" = "$$want" ]; then exit 0; fi; \
	set -e; \
	python=""; \
	for name in $(PYTHON) python3.11 python3 python; do \
	    if "$$name" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; then python="$$name"; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "make setup: no Python 3.11 found. Install it, or say where: make setup PYTHON=/path/to/python3.11" >&2; exit 2; fi; \
	rm -f $(STAMP); \
	if ! $(PY) -c 'import pip, sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; then \
	    echo "setup: new $(VENV)"; rm -rf $(VENV); "$$python" -m venv $(VENV); \
	fi; \
	echo "setup: installing the locked packages (a few minutes the first time)"; \
	$(PY) -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.lock)"; \
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.lock; \
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	printf '%s' "$$want" > $(STAMP); \
	echo "setup: done"

demo: setup ## the main job on a real case
	$(PINS) $(PY) examples/recommender/run_demo.py

browser: ## chromium for the tests of the HTML page, where the system's packages can be installed
	@command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "test: installing chromium"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; \
	else echo "test: no chromium found; the tests of the HTML page need it"; fi

test: setup browser ## all tests
	$(PINS) $(PY) -m pytest $(PYTEST_ARGS)

real: setup ## pairs of real implementations from other packages
	$(PINS) $(PY) -m tests.real.run

score: setup ## planted faults: recall, precision, causes, alignment
	$(PINS) $(PY) -m tests.score.run

steps: setup ## 100 training steps of both frameworks with mapped settings
	$(PINS) $(PY) -m tests.training.steps

bench-compare: setup ## cost of recording and comparing, as ratios
	$(PINS) $(PY) benchmarks/compare.py

format: setup ## put the code in order
	$(PY) -m ruff check --fix $(WHERE)
	$(PY) -m ruff format $(WHERE)

clean: ## remove what tools and tests left, not the environment
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist out
