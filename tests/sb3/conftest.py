"""Tests of paramnoise.sb3 need PyTorch, which the environment of the other tests has not: `make test-sb3` has it."""

import importlib.util

if importlib.util.find_spec("stable_baselines3"):
    import torch

    torch.set_num_threads(1)  # networks this small are slower with more
else:
    collect_ignore_glob = ["test_*.py"]
