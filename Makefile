# On a fresh machine with Python 3.11 and make, every target sets up its own virtual environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH := .venv-bench
BENCH_READY := $(BENCH)/.ready
RAY := .venv-ray
RAY_READY := $(RAY)/.ready
TYPES := .venv-types
TYPES_READY := $(TYPES)/.ready
LOWEST := .venv-lowest
LOWEST_READY := $(LOWEST)/.ready

export JAX_PLATFORMS ?= cpu
# Compiled programs are kept between runs of the tests: JAX compiles slowly and runs fast.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/xla
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.02

.PHONY: demo test test-slow test-ray test-examples test-types test-faults test-faults-long test-wheel test-lowest lint format bench bench-scaling chain clean

demo: $(READY)  ## the chain figure, small: parameter noise against bootstrapped DQN and epsilon-greedy
	$(BIN)/paramnoise reproduce chain --scale small --out demo

# Tests compile more than they run: with JAX_DISABLE_MOST_OPTIMIZATIONS=0 they try what users run, in half as long again.
# XLA's new emitters of fusions take a third longer to compile than its old ones, and a program that is split into parts
# for as many threads takes a fifth longer: the cores are busy with two processes of tests anyway.
test test-examples test-faults: export JAX_DISABLE_MOST_OPTIMIZATIONS ?= 1
test test-examples test-faults: export XLA_FLAGS ?= --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
test: $(READY)  ## the whole suite but the slow checks
	$(BIN)/pytest -n 2 --dist loadfile

test-slow: $(READY)  ## the checks that take minutes
	$(BIN)/pytest -n 2 --dist loadfile -m slow

test-ray: $(RAY_READY)  ## the checks on small local Ray clusters, with the extra in an environment of its own
	$(RAY)/bin/pytest -m ray

test-examples: $(READY)  ## the scripts and notebooks of examples/
	$(BIN)/pytest -n 2 --dist loadfile -m examples

test-types: $(TYPES_READY)  ## mypy and pyright on what a user writes
	$(TYPES)/bin/pytest -m types tests/test_types.py

test-faults: $(READY)  ## the tests of faults, and some random kills, corruptions and command lines: a table of what held
	$(BIN)/python experiments/faults.py

test-faults-long: $(RAY_READY)  ## 200 kills, 500 corruptions, 500 command lines; with Ray, and for long
	$(RAY)/bin/python experiments/faults.py --long

test-wheel:  ## the wheel as users have it: away from the checkout, in clean environments of every Python found
	.ci/test-wheel

# Old packages use what newer ones have deprecated: that is a warning here, and no error. The oldest jaxlib prints lines about
# the programs that it takes from its own cache.
test-lowest: export TF_CPP_MIN_LOG_LEVEL = 3
test-lowest: $(LOWEST_READY)  ## a part of the suite with the lowest versions that pyproject.toml allows
	$(LOWEST)/bin/pytest -W default::DeprecationWarning $(addprefix tests/,agents/test_dqn.py agents/test_ddpg.py agents/test_trpo.py test_api.py test_cli.py runs/test_run.py)

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

# What a user with old packages has: each direct dependency in the lowest version of its bound.
$(LOWEST_READY): pyproject.toml .ci/lowest
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(PYTHON) .ci/lowest > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint $(LOWEST)/lowest.txt --editable . pytest
	touch $(LOWEST_READY)

clean:
	rm -rf $(VENV) $(BENCH) $(RAY) $(TYPES) $(LOWEST) .cache .pytest_cache .mypy_cache .ruff_cache demo runs
