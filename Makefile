# On a fresh machine with Python 3.11 and make, every target sets up its own virtual environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH := .venv-bench
BENCH_READY := $(BENCH)/.ready
RAY := .venv-ray
RAY_READY := $(RAY)/.ready
SB3 := .venv-sb3
SB3_READY := $(SB3)/.ready
TYPES := .venv-types
TYPES_READY := $(TYPES)/.ready

export JAX_PLATFORMS ?= cpu
# Compiled programs are kept between runs of the tests: JAX compiles slowly and runs fast.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/xla
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.02

.PHONY: demo test test-slow test-ray test-sb3 test-examples test-types lint format bench bench-scaling chain clean

demo: $(READY)  ## the chain figure, small: parameter noise against bootstrapped DQN and epsilon-greedy
	$(BIN)/paramnoise reproduce chain --scale small --out demo

# Tests compile more than they run: with JAX_DISABLE_MOST_OPTIMIZATIONS=0 they try what users run, in half as long again.
# XLA's new emitters of fusions take a third longer to compile than its old ones, and a program that is split into parts
# for as many threads takes a fifth longer: the cores are busy with two processes of tests anyway.
test test-examples: export JAX_DISABLE_MOST_OPTIMIZATIONS ?= 1
test test-examples: export XLA_FLAGS ?= --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
test: $(READY)  ## the whole suite but the slow checks
	$(BIN)/pytest -n 2 --dist loadfile

test-slow: $(READY)  ## the checks that take minutes
	$(BIN)/pytest -n 2 --dist loadfile -m slow

test-ray: $(RAY_READY)  ## the checks on small local Ray clusters, with the extra in an environment of its own
	$(RAY)/bin/pytest -m ray

test-sb3: $(SB3_READY)  ## what is for users of Stable-Baselines3, with PyTorch in an environment of its own
	$(SB3)/bin/pytest -m sb3 tests/sb3

test-examples: $(READY)  ## the scripts and notebooks of examples/
	$(BIN)/pytest -n 2 --dist loadfile -m examples

test-types: $(TYPES_READY)  ## mypy and pyright on what a user writes
	$(TYPES)/bin/pytest -m types tests/test_types.py

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH_READY)  ## steps per second of the loops, and of the agents against their peers
	$(BENCH)/bin/python benchmarks/loops.py
	$(BENCH)/bin/python benchmarks/ddpg.py
	$(BENCH)/bin/python benchmarks/trpo.py
	$(BENCH)/bin/python benchmarks/atari.py

bench-scaling: $(RAY_READY)  ## what more workers bring, to ES and to a sweep
	$(RAY)/bin/python benchmarks/scaling.py

chain: $(READY)  ## the paper's chain figure, all of it
	$(BIN)/paramnoise reproduce chain --scale paper --out results

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

$(TYPES_READY): pyproject.toml constraints.txt
	test -x $(TYPES)/bin/python || $(PYTHON) -m venv $(TYPES)
	$(TYPES)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable . pytest mypy basedpyright
	touch $(TYPES_READY)

# The peers need PyTorch, which has no place in the environment that the product is tested in.
$(BENCH_READY): pyproject.toml constraints.txt benchmarks/constraints.txt
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt \
		--constraint benchmarks/constraints.txt --editable '.[bench]'
	touch $(BENCH_READY)

$(RAY_READY): pyproject.toml constraints.txt
	test -x $(RAY)/bin/python || $(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[dev,ray]'
	touch $(RAY_READY)

# RL-Zoo asks for older versions than the other environments have, so all versions of this one are its own.
$(SB3_READY): pyproject.toml tests/sb3/constraints.txt
	test -x $(SB3)/bin/python || $(PYTHON) -m venv $(SB3)
	$(SB3)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
		--constraint tests/sb3/constraints.txt torch
	$(SB3)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
		--constraint tests/sb3/constraints.txt --editable '.[sb3,box2d]' pytest rl_zoo3
	touch $(SB3_READY)

clean:
	rm -rf $(VENV) $(BENCH) $(RAY) $(SB3) $(TYPES) .cache .pytest_cache .mypy_cache .ruff_cache demo runs
