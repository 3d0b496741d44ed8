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
REPORT := .venv-report
REPORT_READY := $(REPORT)/.ready
DOCS := .venv-docs
DOCS_READY := $(DOCS)/.ready
LOWEST := .venv-lowest
LOWEST_READY := $(LOWEST)/.ready

export JAX_PLATFORMS ?= cpu
# Compiled programs are kept between runs of the tests: JAX compiles slowly and runs fast.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/xla
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.02
# Many tests start processes: where Python is told to keep no bytecode, each reads all of its modules anew, for two seconds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-slow test-ray test-sb3 test-examples test-types test-report docs test-docs test-faults test-faults-long test-wheel test-lowest lint format bench bench-scaling chain clean

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

test-sb3: $(SB3_READY)  ## what is for users of Stable-Baselines3, with PyTorch in an environment of its own
	$(SB3)/bin/pytest -m sb3 tests/sb3

test-examples: $(READY)  ## the scripts and notebooks of examples/
	$(BIN)/pytest -n 2 --dist loadfile -m examples

test-types: $(TYPES_READY)  ## mypy and pyright on what a user writes
	$(TYPES)/bin/pytest -m types tests/test_types.py

# Chromium is installed where it is missing and may be; where it cannot be, a line says that nothing was tested.
test-report: $(REPORT_READY)  ## the report in a real browser
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 || \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
		>/dev/null 2>&1 || true
	@if command -v chromium >/dev/null; then $(REPORT)/bin/pytest -m browser tests/report; \
		else echo "test-report: skipped, since there is no Chromium and it could not be installed"; fi

docs: $(DOCS_READY)  ## the documentation as a site, site/index.html, with the report in it; a broken link is an error
	rm -rf .cache/docs site
	mkdir -p .cache/docs
	$(DOCS)/bin/paramnoise report --out .cache/docs/report
	echo '<!doctype html><title>paramnoise</title><meta http-equiv="refresh" content="0; url=docs/index.html">' > .cache/docs/index.html
	$(DOCS)/bin/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir docs . site

test-docs: docs  ## and every link of its pages
	$(DOCS)/bin/pytest -m site tests/test_site.py

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
	$(BENCH)/bin/python benchmarks/off_policy.py
	$(BENCH)/bin/python benchmarks/trpo.py
	$(BENCH)/bin/python benchmarks/on_policy.py
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

$(REPORT_READY): pyproject.toml constraints.txt
	test -x $(REPORT)/bin/python || $(PYTHON) -m venv $(REPORT)
	$(REPORT)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[report]' pytest playwright
	touch $(REPORT_READY)

$(DOCS_READY): pyproject.toml constraints.txt
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[report]' pytest sphinx furo myst-parser
	touch $(DOCS_READY)

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

# RL-Zoo asks for older versions than the other environments have, so all versions of this one are its own.
$(SB3_READY): pyproject.toml tests/sb3/constraints.txt
	test -x $(SB3)/bin/python || $(PYTHON) -m venv $(SB3)
	$(SB3)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
		--constraint tests/sb3/constraints.txt torch
	$(SB3)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
		--constraint tests/sb3/constraints.txt --editable '.[sb3,box2d]' pytest rl_zoo3
	touch $(SB3_READY)

clean:
	rm -rf $(VENV) $(BENCH) $(RAY) $(SB3) $(TYPES) $(REPORT) $(DOCS) $(LOWEST) .cache .pytest_cache .mypy_cache .ruff_cache demo runs report site
