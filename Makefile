# Every target installs what it needs into .venv first, and again when pyproject or constraints change.
# PYTHON=... and JAVA_HOME=... choose the interpreter and the Java.

.DEFAULT_GOAL := help
.PHONY: help install demo demo-kafka test lint bench parity soak clean needs-java needs-python
SHELL := /bin/sh

BIN := .venv/bin
STAMP := .venv/.installed
JARS := .venv/.jars
# Each runs whole files, with a Spark session and a broker of its own; 0 runs all in one process.
PYTEST_WORKERS ?= 2

help:
	@echo "make install   Python packages into .venv"
	@echo "make demo      the job once over packaged records, and what it found"
	@echo "make demo-kafka  a real broker, groups that never rest and the job, live until Ctrl-C; DEMO_SECONDS=N"
	@echo "make test      the tests; PYTEST_ARGS=... for some of them, PYTEST_WORKERS=0 for one process"
	@echo "make lint      ruff, its formatting, and mypy"
	@echo "make bench     times against the floor and against peers; BENCH_ARGS=..."
	@echo "make parity    random cases against Kafka's own Java classes; PARITY_ARGS=..."
	@echo "make soak      the slow tests"
	@echo "make clean     what the above left behind, .venv too"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt | needs-python
	@python=$$($(FIND_PYTHON)); test -x $(BIN)/python || "$$python" -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,bench,dev]'
	@touch $@

# Prints the first Python that is new enough, or nothing.
FIND_PYTHON = for p in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v "$$p"; break; }; done

needs-python:
	@test -x $(BIN)/python && exit 0; python=$$($(FIND_PYTHON)); \
	test -n "$$python" || { echo "make: no Python >= 3.11 found; install one or set PYTHON=/path/to/python" >&2; exit 1; }; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || \
	{ echo "make: $$python cannot make a venv; install its venv package (Debian: python3-venv)" >&2; exit 1; }

needs-java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	major=$$("$$java" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p'); \
	case "$$major" in \
	17|21) ;; \
	'') echo "make: no Java found; install a JDK 17 or 21, or set JAVA_HOME" >&2; exit 1 ;; \
	*) echo "make: $$java is Java $$major; Spark 4.0 needs 17 or 21: install one or set JAVA_HOME" >&2; exit 1 ;; \
	esac

demo: needs-java $(STAMP)
	@rm -rf .demo
	@$(BIN)/counterpoise demo --keep .demo

demo-kafka: needs-java $(STAMP)
	@$(BIN)/python -m demo $(DEMO_ARGS)

$(JARS): conf/default.toml $(STAMP) | needs-java
	@echo "fetching Spark's packages"
	@$(BIN)/python -m tests.sessions 2>$(JARS).log || { cat $(JARS).log >&2; exit 1; }
	@touch $@

test: needs-java $(STAMP) $(JARS)
	$(BIN)/python -m pytest --numprocesses $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: needs-java $(STAMP)
	$(BIN)/python -m bench $(BENCH_ARGS)

parity: needs-java $(STAMP)
	$(BIN)/python -m tests.parity $(PARITY_ARGS)

soak: needs-java $(STAMP)
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

clean:
	rm -rf .venv .demo .bench build dist spark-warehouse metastore_db derby.log tests/oracle/target tests/broker/target
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
