# Every target installs what it needs into a virtual environment. Needed: python3 (3.11 or newer), make, a package index.
# The distribution's Python is preferred: it is built with profile-guided optimization, those of version managers often are
# not, and brokers and tests take more processor time then (docs/OPERATIONS.md). `make PYTHON=python3.13` chooses another.
USABLE := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell /usr/bin/python3 -c '$(USABLE)' 2>/dev/null && echo /usr/bin/python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
# A stamp per kind of installation, each with all of the one before it: the broker (70 MB), Spark, and all for development.
BASE := $(VENV)/.base
SPARK := $(VENV)/.spark
DEV := $(VENV)/.ready

# Some environments turn bytecode caches off; without them every process that a test starts compiles all its modules.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help serve demo test test-fast test-all check bench bench-peers crash kill chaos replication simulate copy exactly-once etcd messages clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

define install
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { echo "Logbrook needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable
endef

$(BASE): pyproject.toml
	$(install) .
	@touch $@

$(SPARK): pyproject.toml
	$(install) '.[spark]'
	@touch $(BASE) $@

$(DEV): pyproject.toml
	$(install) '.[dev]'
	@touch $(BASE) $(SPARK) $@

serve: $(BASE) ## run a broker on 127.0.0.1:9092 (ARGS="--data DIR --listen HOST:PORT ...")
	$(BIN)/logbrook serve $(ARGS)

demo: $(SPARK) ## run a broker, a stream of orders and a Spark pipeline, and print the result (ARGS="--keep DIR")
	$(BIN)/python -m demo $(ARGS)

# Four workers share the tests; each starts with a quarter and takes from the others' when its own are done. Tests wait
# for processes and disks half of the time, so four keep two cores busy. The short tests do not wait: two workers.
# tests/conftest.py puts costly tests at the beginning of each quarter, so that all workers end at the same time.
PYTEST := $(BIN)/python -m pytest --dist worksteal

test: $(DEV) ## run the tests that must pass before a change lands (ARGS="tests/unit/storage -k recovery")
	$(PYTEST) -n 4 -m "not long" --ignore tests/test_tidy.py $(ARGS)

test-fast: $(DEV) ## run the short tests that need no Java, Spark or browser, last failures first: under a minute
	$(PYTEST) -n 2 -m "not long and not slow" --failed-first tests/unit tests/property tests/scenarios $(ARGS)

test-all: $(DEV) ## run every test, with the long campaigns
	$(PYTEST) -n 4 $(ARGS)

check: $(DEV) ## run ruff, mypy (strict), the import contracts and the rules of style that tests/test_tidy.py has
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --quiet tests/test_tidy.py

bench: $(DEV) ## run the benchmarks, print a table and write bench/results.json
	$(BIN)/python -m bench $(ARGS)

bench-peers: $(DEV) ## benchmark Logbrook and others (ARGS="--plan", "--minutes 55 --resume"); see docs/BENCHMARKS.md
	$(BIN)/python -m bench.peers $(ARGS)

crash: $(DEV) ## check recovery from N simulated power losses (N=1000000)
	$(BIN)/python -m logbrook.testing.crash --states $(or $(N),1000000)

kill: $(DEV) ## kill a broker under load N times and check that no acknowledged record is lost (N=100)
	$(BIN)/python -m logbrook.testing.kill --kills $(or $(N),100)

chaos: $(DEV) ## inject N faults into clusters of processes under load and check every promise (N=200 SEED=0 ARGS=--spark)
	$(BIN)/python -m logbrook.testing.chaos --faults $(or $(N),200) --seed $(or $(SEED),0) $(ARGS)

replication: $(DEV) ## check the rules of replication in N random schedules of a model, from SEED on (N=10000 SEED=0)
	$(BIN)/python -m logbrook.testing.replication --seeds $(or $(N),10000) --seed $(or $(SEED),0)

simulate: $(DEV) ## run N schedules of whole brokers in simulated time with faults (N=100 SEED=0 ARGS=--cluster)
	$(BIN)/python -m logbrook.testing.simulation --seeds $(or $(N),100) $(if $(SEED),--seed $(SEED)) $(ARGS)

copy: $(DEV) ## copy 100,000 records exactly once, N times, while brokers and copiers are killed (N=5)
	$(BIN)/python -m logbrook.testing.copy --runs $(or $(N),5) $(ARGS)

exactly-once: $(DEV) ## kill Spark drivers N times per scenario and check every output; with Kafka, too (N=20)
	$(BIN)/python -m tests.spark.exactly_once --kills $(or $(N),20) $(ARGS)

etcd: $(DEV) ## build etcd once into the user's cache, for the tests of a cluster of processes; needs Go
	$(BIN)/python -m logbrook.testing.etcd

messages: $(DEV) ## regenerate the message classes from kio's schemas
	$(BIN)/python -m tools.messages

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
