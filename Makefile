# Everything here works on a machine that has only Python 3.11 or newer and make:
# each target prepares what it needs.
#
#   make test    all tests                    make demo    see a pipe survive what it promises to
#   make lint    style, types, layers         make bench   measure against peers
#   make docs    renew patterns.md            make clean   remove what runs left
#   make distclean   ... and the environment too
#   make stages  real processes, killed, paused, cut off, without power (minutes; some need root)
#   make spark   whole queries of Spark; drivers and executors, killed; clusters; runs by the command (eight minutes)
#   make pythons the core of the tests on every other Python from 3.11 up that this machine has
#   make spin    what the explorer says of the patterns, said again by SPIN (half a minute; Debian package spin)
#   make ics23   what our proofs are to a public verifier (npm package @confio/ics23; half a minute)
#   make peers   beside six task queues (in an environment of its own; a quarter of an hour)
#   make mutants  plant errors in machines, one by one, and see each found
#   make operators  change machines and stores blindly, and see tests fail: make operators FILES='pipes/retry/window.py storage'
#   make hunt  look for broken promises under fresh seeds: make hunt MINUTES=60 SEED=1
#   make nightly  the full counts of what CI runs in small: make nightly MINUTES=60
#
# PYTHON=...  interpreter to use      PYTEST_FLAGS=...  e.g. PYTEST_FLAGS='-k stream'      STAGES='power netns'

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLASSES := $(VENV)/.spark-classes
EXTRAS := metrics,spark,test,dev
PYTEST_FLAGS ?=
STAGES ?=
# What takes Spark for seconds or minutes is not in `make test`: a query waits most of its time for new processes.
SPARK_TESTS := tests/spark/queries tests/spark/processes
MINUTES ?= 10
FILES ?=
SEED ?= 1000000
CASES ?= 10000

# The folders that hold Python code today; the type checkers refuse an empty one.
CODE := $(foreach dir,src tests tools examples benchmarks,$(if $(shell find $(dir) -name '*.py' 2>/dev/null | head -n 1),$(dir)))

# Hundreds of processes start here: each would compile the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help test stages spark spark-tests spark-stages pythons spin ics23 mutants operators hunt nightly demo docs lint lint-ruff lint-layers lint-mypy lint-pyright bench peers clean distclean moved
.DEFAULT_GOAL := help

help:
	@sed -n '4,19s/^# \{0,1\}//p' Makefile

test: $(READY)
	@echo "surepipe: running the tests"
	@$(BIN)/python -m pytest tests -n 2 --dist loadgroup $(addprefix --ignore ,$(SPARK_TESTS)) $(PYTEST_FLAGS)

# More stages at once than there are cores: most of them wait most of the time.
stages: $(READY)
	@echo "surepipe: running the stages with real processes"
	@$(BIN)/python -m tests.real.run --jobs 3 $(STAGES)

spark: spark-tests spark-stages

spark-tests: $(CLASSES)
	@echo "surepipe: running whole queries of Spark, and Spark in processes of its own"
	@$(BIN)/python -m pytest $(SPARK_TESTS) -n 2 $(PYTEST_FLAGS)

spark-stages: $(CLASSES)
	@echo "surepipe: killing Spark"
	@$(BIN)/python -m tests.real.run --jobs 3 spark $(STAGES)

pythons: $(READY)
	@$(BIN)/python -m tools.interpreters

mutants: $(READY)
	@$(BIN)/python -m tests.mutants.runner

operators: $(READY)
	@$(BIN)/python -m tests.mutants.operators.run --minutes $(MINUTES) --seed $(SEED) $(FILES)

hunt: $(READY)
	@$(BIN)/python -m tools.hunt --minutes $(MINUTES) --seed $(SEED)

nightly: $(READY)
	@$(BIN)/python -m tests.simulation.nightly --minutes $(MINUTES) $(if $(filter file,$(origin SEED)),,--seed $(SEED))

spin: $(READY)
	@echo "surepipe: asking SPIN what the explorer was asked"
	@$(BIN)/python -m tests.spin.run

ics23: $(READY)
	@echo "surepipe: having proofs judged by @confio/ics23"
	@$(BIN)/python -m tests.ics23.run --cases $(CASES)

demo: $(READY)
	@$(BIN)/python examples/demo.py

docs: $(READY)
	@$(BIN)/python -m tools.patterns

bench: $(READY)
	@$(BIN)/python benchmarks/run.py

peers: $(READY)
	@$(BIN)/python -m benchmarks.peers.run

lint: lint-ruff lint-layers lint-mypy lint-pyright

lint-ruff: $(READY)
	@echo "surepipe: ruff"
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/ruff format --check $(CODE)

lint-layers: $(READY)
	@echo "surepipe: layers"
	@$(BIN)/lint-imports --no-logo

lint-mypy: $(READY)
	@echo "surepipe: mypy, strict"
	@$(BIN)/mypy $(CODE)

lint-pyright: $(READY)
	@echo "surepipe: pyright, strict"
	@$(BIN)/pyright $(CODE)

# Two dozen times Java starts Spark in `make spark`: an archive of the classes saves a third of each start.
$(CLASSES): $(READY)
	@echo "surepipe: keeping Spark's classes for Java (about a minute, once)"
	@$(BIN)/python -m surepipe.spark.class_archive >$@ || echo "surepipe: each start of Spark takes longer" >&2

# An environment remembers where it was made; one that came along with a copied tree is made anew.
$(READY): pyproject.toml $(if $(filter $(CURDIR),$(shell cat $(READY) 2>/dev/null)),,moved)
	@python=; \
	for candidate in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python); do \
	  if $$candidate -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    python=$$candidate; break; \
	  fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "surepipe: needs Python 3.11 or newer, with its venv module; found none$(if $(PYTHON), at $(PYTHON))." >&2; \
	  echo "surepipe: install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; \
	  exit 1; \
	fi; \
	clear=; \
	if [ -f $(READY) ] && [ "$$(cat $(READY))" != "$(CURDIR)" ]; then clear=--clear; fi; \
	echo "surepipe: preparing $(VENV) with $$($$python --version) (two or three minutes the first time)"; \
	$$python -m venv $$clear $(VENV)
	@# Most of what is installed is never imported: what is, Python compiles then.
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --editable '.[$(EXTRAS)]'
	@echo "$(CURDIR)" > $(READY)

clean:
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	@rm -rf $(VENV) $(VENV)-3.*
