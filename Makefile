# `make run` and `make test` set everything up by themselves, on Debian or macOS with Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo
DEV := $(VENV)/.dev

# Spark's tests run by themselves, one process each: a JVM in each of three processes would cost
# a gigabyte apiece, and one JVM cannot serve the settings of both folders.
SPARK_TESTS := compat_tests/spark tests/spark

.PHONY: help run test test-long check format bench spark-jars compat-apache compat-table clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Ottla needs Python 3.11 or newer; $(PYTHON) is older. Name one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "On Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip

$(DEMO): pyproject.toml | $(VENV)/bin/python
	@echo "Installing Ottla and the clients of the demonstration into $(VENV) ..."
	$(BIN)/pip install --quiet --editable '.[demo]'
	@touch $@

$(DEV): pyproject.toml | $(VENV)/bin/python
	@echo "Installing Ottla, the clients and the tools into $(VENV) ..."
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@ $(DEMO)

run: $(DEMO) ## set up, start a broker, stream a year of flights through it, go on serving
	$(BIN)/python examples/flights.py $(ARGS)

test: $(DEV) ## set up and run all tests (but the long ones)
	-$(BIN)/python -m ottla.spark.jars
	$(BIN)/pytest -n 3 --dist worksteal -m "not long" $(SPARK_TESTS:%=--ignore=%) $(ARGS)
	for t in $(SPARK_TESTS); do $(BIN)/pytest -m "not long" $$t $(ARGS) || [ $$? = 5 ] || exit 1; done

test-long: $(DEV) ## the tests that take minutes to hours: 200 kills, fuzzing, long state machines
	$(BIN)/pytest -m long --timeout 7200 $(SPARK_TESTS:%=--ignore=%) $(ARGS)
	for t in $(SPARK_TESTS); do \
	  $(BIN)/pytest -m long --timeout 7200 $$t $(ARGS) || [ $$? = 5 ] || exit 1; done

check: $(DEV) ## the quick loop: lint, types, layers, unit tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src spark/source examples compat_tests
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n 3 --dist worksteal -m "not long" tests/wire tests/log tests/group

format: $(DEV) ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV) ## Ottla and Apache Kafka in turn, with ratios and broker CPU
	$(BIN)/python -m bench $(ARGS)

spark-jars: $(DEV) ## the jars of Spark's Kafka connector, fetched once
	$(BIN)/python -m ottla.spark.jars

compat-apache: $(DEV) ## the client tests against Apache Kafka itself
	$(BIN)/pytest compat_tests -m "not long" --target=apache $(ARGS)

compat-table: $(DEV) ## run both and write docs/compatibility.md
	-$(BIN)/pytest compat_tests -m "not long" --results .cache/results/ottla.json
	-$(BIN)/pytest compat_tests -m "not long" --target=apache --results .cache/results/apache.json
	$(BIN)/python -m compat_tests.table

clean: ## remove what the other targets made
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
