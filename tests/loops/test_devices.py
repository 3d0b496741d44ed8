"""A compiled loop over eight devices: the same draws as on one, and the same losses to rounding."""

import json
import os
import subprocess
import sys

import pytest

UPDATES, ENVS = 20, 16
EIGHT = "--xla_force_host_platform_device_count=8"
PROGRAM = f"""
import json, jax, numpy as np
from paramnoise.agents import Spaces, dqn, pqn
from paramnoise.envs.chain import chain
from paramnoise.explorations import ParameterNoise
from paramnoise.loops.host import HostLoop
from paramnoise.loops.jax_vector import jax_source
from paramnoise.validation import UsageError

UPDATES, ENVS, SPACES, SOURCE = {UPDATES}, {ENVS}, Spaces((5,), 2, True), jax_source(chain(5))
LEARNERS = {{
    "dqn": (dqn.make(dqn.DQNConfig(hidden_sizes=(8,), batch_size=8, buffer_size=2048, learning_starts=0,
                                   train_every=ENVS, target_every=2 * ENVS), SPACES), ENVS),
    "pqn": (pqn.make(pqn.PQNConfig(hidden_sizes=(8,), rollout_steps=4, minibatches=2), SPACES), 4 * ENVS),
}}
NOISE = ParameterNoise(delta=0.05, adapt_every=ENVS, epsilon=0.1)

def trained(learner, batch, devices, seeds=(0,)):
    envs = ENVS if len(seeds) == 1 else 2
    loop = HostLoop(learner, NOISE, SOURCE, seeds=seeds, num_envs=envs, log_every=batch, devices=devices)
    rows = [row for rows in loop.run(UPDATES * batch, eval_every=10**9, eval_episodes=1) for row in rows]
    return loop, rows

found = {{}}
for name, (learner, batch) in LEARNERS.items():
    (one, ours), (many, theirs) = (trained(learner, batch, devices) for devices in (1, 8))
    explored = [jax.tree.leaves(loop.state().exploration.policies) for loop in (one, many)]
    cut = many.collector._state.obs.sharding
    found[name] = {{
        "updates": len(ours),
        "losses": max(abs(a["q_loss"] - b["q_loss"]) for a, b in zip(ours, theirs)),
        "sigma": max(abs(a["sigma"] - b["sigma"]) for a, b in zip(ours, theirs)),
        "same": all(np.array_equal(a, b) for a, b in zip(*(l.snapshot()[1].values() for l in (one, many)))),
        "noise": max(float(np.abs(a - b).max()) for a, b in zip(*explored)),
        "devices": len(cut.device_set),
        "whole": cut.is_fully_replicated,
    }}
    again = HostLoop(learner, NOISE, SOURCE, num_envs=ENVS, devices=8)
    again.restore(*one.snapshot())
    found[name]["moved"] = again.collector._state.obs.sharding == cut
seeds = trained(*LEARNERS["pqn"], 8, seeds=tuple(range(8)))[0]
weight = jax.tree.leaves(seeds.collector._state.train.learner)[0].sharding
found["seeds"] = [len(weight.device_set), weight.is_fully_replicated]
try:
    HostLoop(LEARNERS["pqn"][0], NOISE, SOURCE, num_envs=3, devices=8)
except UsageError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    flags = f"{os.environ.get('XLA_FLAGS', '')} {EIGHT}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["dqn", "pqn"])
def test_environments_on_eight_devices_see_and_do_what_they_do_on_one(found, name):
    own = found[name]
    assert (own["updates"], own["devices"], own["whole"], own["same"]) == (UPDATES, 8, False, True)
    assert own["losses"] < 1e-5
    assert own["sigma"] < 1e-6
    assert own["noise"] < 1e-4
    assert own["moved"]  # a checkpoint of one device goes on on eight


def test_seeds_are_divided_where_there_are_as_many(found):
    assert found["seeds"] == [8, False]


def test_what_cannot_be_divided_is_one_line(found):
    assert found["error"] == "devices is 8, which divides neither num_envs (3) nor seeds (1)"
