# Two commands do everything on a fresh clone: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(abspath $(BIN)):$(PATH)
NATIVE_SOURCES := $(shell find native -name '*.cc' -o -name '*.h') CMakeLists.txt pyproject.toml

.PHONY: help demo test check setup build lint native-programs native-tests python-tests sanitize fuzz coverage simulations chaos
.PHONY: stubs format bench clean

help:
	@echo "make demo    race Holdfast against tuned Gloo on a lossy network of the lab (sets itself up)"
	@echo "make test    lint, build, native tests, simulations, Python tests (sets itself up)"
	@echo "make check   test, sanitize, fuzz, coverage, simulations and chaos, with one summary (about 40 minutes)"
	@echo "             each of them is a target of its own"
	@echo "make bench   time an all-reduce over loopback against Gloo"
	@echo "make stubs   write the type stub of the native module"
	@echo "make format  format Python and C++"
	@echo "make clean   remove the environment and all builds"

demo: build
	holdfast demo

test: build
	@scripts/timed lint-and-native-tests $(MAKE) --no-print-directory --jobs 2 --output-sync lint native-tests
	@scripts/timed python-tests $(MAKE) --no-print-directory python-tests
	@scripts/timed --report

bench: build
	holdfast bench allreduce --ranks 4 --sizes 1M,25M --peers gloo --insecure

setup: $(VENV)/.installed
build: $(VENV)/.built

$(VENV)/.installed: requirements/dev.txt requirements/build.txt
	@scripts/check-toolchain
	@echo "setting up $(VENV): about three minutes, most of them torch"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	@touch $@

$(VENV)/.built: $(VENV)/.installed $(NATIVE_SOURCES)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

lint:
	ruff check .
	ruff format --check .
	clang-format --dry-run --Werror $$(find native tests/native -name '*.cc' -o -name '*.h')
	mypy

# The same build directory as the extension, so that the core is compiled once.
native-programs:
	@mkdir -p build
	cmake -S . -B build/python -DHOLDFAST_BUILD_TESTS=ON > build/configure.log || { cat build/configure.log; exit 1; }
	cmake --build build/python

native-tests: native-programs
	ctest --test-dir build/python --output-on-failure --timeout 120 --parallel 2

python-tests:
	python -m pytest -m "not slow" --numprocesses 2 --dist loadgroup

# What takes too long for every run. `make check` runs all of it and ends with one summary.
check: build
	scripts/check

sanitize: setup
	scripts/sanitize

fuzz: setup
	scripts/fuzz

coverage: setup
	scripts/coverage

simulations: build native-programs
	scripts/simulations

chaos: build native-programs
	python -m pytest tests/chaos -m chaos --numprocesses 3 --dist load
	python -m pytest tests/hostile
	SPIN_SECONDS=60 SPIN_SEED=$$RANDOM python -m pytest tests/misuse

stubs: build
	python -m nanobind.stubgen -q -m holdfast._native -o src/holdfast/_native.pyi

format:
	ruff check --fix-only .
	ruff format .
	clang-format -i $$(find native tests/native -name '*.cc' -o -name '*.h')

clean:
	rm -rf $(VENV) build demo-output race-output
