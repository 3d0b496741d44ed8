"""Tests of paramnoise.sb3 need PyTorch, which the environment of the other tests has not: `make test-sb3` has it."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("stable_baselines3") else ["test_*.py"]
