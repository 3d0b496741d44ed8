"""What is compiled as one CUDA graph; and a compiled loop over eight devices: draws as on one, losses to rounding."""

import json
import os
import subprocess
import sys

import gymnasium as gym
import jax
import pytest

from paramnoise.loops import devices, programs, sharing
from paramnoise.runs.config import make_config
from paramnoise.runs.loop import make_loop

UPDATES, ENVS = 20, 16
EIGHT = "--xla_force_host_platform_device_count=8"
PROGRAM = f"""
import json, sys, jax, numpy as np
from paramnoise.agents import Spaces, dqn, pqn
from paramnoise.envs.chain import chain
from paramnoise.explorations import ParameterNoise
from paramnoise.loops.host import HostLoop
from paramnoise.loops.inside import _programs
from paramnoise.loops.jax_vector import jax_source
from paramnoise.validation import UsageError

ENVS, SPACES, SOURCE = {ENVS}, Spaces((5,), 2, True), jax_source(chain(5))
NOISE = ParameterNoise(delta=0.05, adapt_every=ENVS, epsilon=0.1)
if sys.argv[1] == "dqn":
    config = dqn.DQNConfig(hidden_sizes=(8,), batch_size=8, buffer_size=2048, learning_starts=0, train_every=ENVS,
                           target_every=2 * ENVS)
    learner, batch = dqn.make(config, SPACES), ENVS
else:
    learner, batch = pqn.make(pqn.PQNConfig(hidden_sizes=(8,), rollout_steps=4, minibatches=2), SPACES), 4 * ENVS

def made(devices, num_envs=ENVS, seeds=(0,)):
    return HostLoop(learner, NOISE, SOURCE, seeds=seeds, num_envs=num_envs, log_every=batch, devices=devices)

def trained(devices):
    loop = made(devices)
    return loop, [row for (row,) in loop.run({UPDATES} * batch, eval_every=10**9, eval_episodes=1)]

(one, ours), (many, theirs) = map(trained, (1, 8))
cut = many.collector._state.obs.sharding
explored = [jax.tree.leaves(loop.state().exploration.policies) for loop in (one, many)]
again = made(8)
again.restore(*one.snapshot())
beside = made(8, num_envs=2, seeds=range(8)).collector if sys.argv[1] == "dqn" else many.collector  # one more program
whole = jax.tree.leaves(beside._state.train.learner)[0].sharding
pooled = _programs(learner, ParameterNoise(pool=4), SOURCE.functions, ENVS, False, 1, 8)[3]
try:
    made(8, num_envs=3)
except UsageError as error:
    refusal = str(error)
print(json.dumps({{
    "rows": len(ours),
    "losses": max(abs(a["q_loss"] - b["q_loss"]) for a, b in zip(ours, theirs)),
    "sigma": max(abs(a["sigma"] - b["sigma"]) for a, b in zip(ours, theirs)),
    "same": all(np.array_equal(a, b) for a, b in zip(*(loop.snapshot()[1].values() for loop in (one, many)))),
    "noise": max(float(np.abs(a - b).max()) for a, b in zip(*explored)),
    "environments": [len(cut.device_set), cut.is_fully_replicated],
    "restored": again.collector._state.obs.sharding == cut,
    "networks": [len(whole.device_set), whole.is_fully_replicated],
    "pool": [str(pooled.obs.spec), [leaf.is_fully_replicated for leaf in jax.tree.leaves(pooled.train.exploration)]],
    "refusal": refusal,
}}))
"""


@pytest.mark.parametrize("learner", ["pqn", pytest.param("dqn", marks=pytest.mark.slow)])
def test_on_eight_devices_the_draws_are_those_of_one_and_the_losses_to_rounding(learner):
    flags = f"{os.environ.get('XLA_FLAGS', '')} {EIGHT}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, learner]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == UPDATES
    assert found["same"]  # what the environments show, where they are, their returns
    assert found["losses"] < 1e-5
    assert found["sigma"] < 1e-6
    assert found["noise"] < 1e-4
    assert found["environments"] == [8, False]
    assert found["restored"]  # a snapshot of one device goes on on eight
    # Eight seeds beside each other are divided; of one the networks are whole everywhere.
    assert found["networks"] == [8, learner == "pqn"]
    shown, policies = found["pool"]
    assert "devices" in shown
    assert policies.count(False) == 2  # the policies are whole everywhere; whose each is, and since when, is cut
    assert found["refusal"] == "devices is 8, which divides neither num_envs (3) nor seeds (1)"


def test_on_one_gpu_loops_and_branches_are_part_of_one_graph(monkeypatch):
    assert devices.compiler_options() is None  # on a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    graph = devices.compiler_options()["xla_gpu_enable_command_buffer"].split(",")
    assert {"WHILE", "CONDITIONAL", "FUSION"} <= set(graph)
    assert devices.compiler_options(devices=2).keys() == {"xla_gpu_command_buffer_scheduling_mode"}


@pytest.mark.parametrize(("agent", "in_one_graph"), [("ddpg", True), ("ppo", False)])
def test_learning_from_replay_of_vectors_is_compiled_as_one_graph(monkeypatch, agent, in_one_graph):
    monkeypatch.setattr(sharing, "_shared", {})
    loop = make_loop([make_config(agent, "Pendulum-v1", exploration="none")], lambda: gym.make("Pendulum-v1"))
    monkeypatch.setattr(programs, "compiler_options", lambda: {"asked": 1})
    monkeypatch.setattr(jax, "jit", lambda function, **how: how)
    learning = loop.collector._programs.learning(None, (None,))
    assert learning["compiler_options"] == ({"asked": 1} if in_one_graph else None)
