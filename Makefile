# Every target sets itself up: it needs python3 (3.11 or newer), make and a package index, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help serve demo test check bench bench-peers crash kill copy exactly-once messages clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Logbrook needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

serve: $(READY) ## run a broker on 127.0.0.1:9092 (ARGS="--data DIR --listen HOST:PORT ...")
	$(BIN)/logbrook serve $(ARGS)

demo: $(READY) ## a broker, a stream of orders, a pipeline on Spark, and what came out (ARGS="--keep DIR")
	$(BIN)/python -m demo $(ARGS)

test: $(READY) ## run every test
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

check: $(READY) ## ruff, mypy (strict) and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) ## measure, print a table and write bench/results.json
	$(BIN)/python -m bench $(ARGS)

bench-peers: $(READY) ## measure Logbrook beside Kafka, Redis and NATS (ARGS="--quick"); the page is docs/BENCHMARKS.md
	$(BIN)/python -m bench.peers $(ARGS)

crash: $(READY) ## check N power-loss states (N=1000000)
	$(BIN)/python -m logbrook.testing.crash --states $(or $(N),1000000)

kill: $(READY) ## kill a loaded broker N times and check that nothing is lost (N=100)
	$(BIN)/python -m logbrook.testing.kill --kills $(or $(N),100)

copy: $(READY) ## copy 100,000 records N times, exactly once, while broker and copiers are killed (N=5)
	$(BIN)/python -m logbrook.testing.copy --runs $(or $(N),5) $(ARGS)

exactly-once: $(READY) ## kill a Spark query from topic to topic N times and check its output (N=40)
	$(BIN)/python -m logbrook.testing.exactly_once --kills $(or $(N),40) $(ARGS)

messages: $(READY) ## write the classes of Kafka's messages again, from kio
	$(BIN)/python -m tools.messages

clean: ## remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
