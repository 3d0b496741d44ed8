"""The host loop on returns: generations, what may not change them, and runs that are interrupted."""

import contextlib
import signal
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.agents.es import Batch, pair_weights
from paramnoise.envs import env_factory
from paramnoise.experience.returns import Broadcast, Episode, draw_index, noise_table, num_parameters, observed
from paramnoise.loops.host import HostLoop
from paramnoise.loops.members import MemberEvaluator, Setting
from paramnoise.runs import run as runs
from paramnoise.runs.checkpoint import named_leaves
from paramnoise.runs.config import make_config
from paramnoise.runs.directory import WALL_CLOCK_COLUMNS, RunDirectory
from paramnoise.runs.loop import make_loop
from paramnoise.validation import RunError, UsageError

SETTINGS = {"hidden_sizes": (4,), "pairs": 3, "table_size": 10_000}
CUT = 12
"""Steps of an episode of Pendulum, by `eval_max_steps`; a generation is then 72."""


def config(env="Pendulum-v1", *, seed=0, num_envs=2, steps=300, **agent):
    run = {"seed": seed, "num_envs": num_envs, "steps": steps, "eval_every": 100, "eval_episodes": 2}
    return make_config("es", env, agent={**SETTINGS, **agent}, eval_max_steps=CUT, **run)


def loop_of(made_from) -> HostLoop:
    return make_loop([made_from], made_from.env)


def rows_of(made_from):
    loop = loop_of(made_from)
    found = loop.run(made_from.steps, eval_every=made_from.eval_every, eval_episodes=made_from.eval_episodes)
    rows = [row for (row,) in found]
    loop.close()
    return rows, loop.state()


@pytest.fixture(scope="module")
def curve():
    return rows_of(config())


def assert_same(curve, other):
    assert curve[0] == other[0]
    jax.tree.map(np.testing.assert_array_equal, named_leaves(curve[1]), named_leaves(other[1]))


def test_rows_follow_the_generations_that_pass_a_multiple_of_eval_every(curve):
    rows, _ = curve
    assert [row["step"] for row in rows] == [144, 216, 360]  # generations of 72 steps
    assert [row["episodes"] for row in rows] == [12, 18, 30]
    assert [row["generation"] for row in rows] == [2, 3, 5]
    assert all(row["episode_length"] == CUT and row["gradient_norm"] > 0 for row in rows)
    assert all(np.isfinite(list(row.values())).all() for row in rows)


@pytest.mark.parametrize(
    "changed", [{}, {"num_envs": 1}, {"num_envs": 7}, {"workers": 2}, {"workers": 2, "num_envs": 1}]
)
def test_a_seed_decides_the_curve_whatever_the_environments_and_workers(curve, changed):
    assert_same(curve, rows_of(config(**changed)))


def test_another_seed_gives_another_curve(curve):
    rows, _ = rows_of(config(seed=1))
    assert [row["eval_return_mean"] for row in rows] != [row["eval_return_mean"] for row in curve[0]]


def test_discrete_actions_and_several_episodes_per_member_whatever_the_environments():
    rows, state = curve = rows_of(config("CartPole-v1", episodes_per_member=2))
    assert_same(curve, rows_of(config("CartPole-v1", episodes_per_member=2, num_envs=5)))
    assert rows[-1]["episodes"] == 12 * int(state.learner.generation)
    assert int(state.learner.statistics.seen) == rows[-1]["step"]


def test_a_generation_is_an_update_on_the_ranks_of_mean_returns():
    made_from = config("CartPole-v1", episodes_per_member=2, steps=1)
    loop = loop_of(made_from)
    learner, before = loop.learner, jax.device_get(loop.state().learner)
    theta = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(before.network)])
    members = MemberEvaluator(Setting(learner, env_factory("CartPole-v1"), 0, 1, CUT))
    ended = members.evaluate(Broadcast(0, theta, before.statistics), range(12))
    episodes = sorted(episode for group in ended for episode in group)
    weights = pair_weights(np.array([e.total for e in episodes]).reshape(3, 2, 2).mean(axis=2))
    assert weights.any()
    size = num_parameters(learner.init)
    indices = [draw_index(10_000, size, 0, 0, pair) for pair in range(3)]
    noise = np.stack([noise_table(10_000)[index : index + size] for index in indices])
    expected, _ = jax.jit(learner.update)(loop.state().learner, Batch(weights, noise, observed(episodes)))
    assert len(list(loop.run(1, eval_every=10_000, eval_episodes=1))) == 1
    jax.tree.map(np.testing.assert_array_equal, named_leaves(loop.state().learner), named_leaves(expected))


def test_sums_of_episodes_are_the_statistics_of_their_states():
    states = np.random.default_rng(0).normal(100.0, 2.0, (50, 3))
    parts = np.split(states, [10, 11])
    statistics = observed([Episode(i, 0.0, len(x), x.sum(0), np.square(x).sum(0)) for i, x in enumerate(parts)])
    assert statistics.seen == 50
    np.testing.assert_allclose(statistics.mean, states.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(statistics.squares / 50, states.var(axis=0), rtol=1e-5)


class StopAfter:
    """A stop flag that is set when it was asked so many times."""

    signal = int(signal.SIGTERM)

    def __init__(self, times):
        self.left = times

    def __bool__(self):
        self.left -= 1
        return self.left < 0


def progress(path):
    return [{k: v for k, v in row.items() if k not in WALL_CLOCK_COLUMNS} for row in RunDirectory(path).rows()]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("es")
    assert runs.run(config(), path)["status"] == "finished"
    return path


@pytest.mark.parametrize(("asked", "whole"), [(0, 0), (37, 1), (50, 1), (150, 4)])  # a generation asks 37 times
def test_an_interrupted_run_evaluates_its_generation_again_and_ends_as_the_uninterrupted_one(
    uninterrupted, tmp_path, monkeypatch, asked, whole
):
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(runs, "stop_on_signals", lambda: contextlib.nullcontext(StopAfter(asked)))
        summary = runs.run(config(), path)
    assert (summary["status"], summary["steps"]) == ("interrupted", 72 * whole)
    assert runs.run(config(), path, resume=True)["status"] == "finished"
    assert progress(path) == progress(uninterrupted)


def test_a_resumed_run_may_have_another_number_of_workers_but_no_other_setting(uninterrupted):
    directory = RunDirectory(uninterrupted)
    directory.check(config(workers=2, steps=400), resume=True)
    directory.check(config(engine="ray", ray_address="auto"), resume=True)
    with pytest.raises(UsageError, match=r"another config: --sigma is 0.02 there and 0.1 here"):
        directory.check(config(sigma=0.1), resume=True)


def test_what_is_trained_on_a_cluster_is_evaluated_without_one(curve, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # cannot be imported
    loop = loop_of(config(engine="ray", workers=2))
    loop.restore(curve[1], loop.snapshot()[1])
    there, here = loop.evaluate(2, seed=0), loop_of(config()).evaluate(2, seed=0)
    loop.close()
    assert there.shape == (2,)
    assert (there != here).all()


@pytest.mark.parametrize(("setting", "named"), [({"engine": "spark"}, "'spark'"), ({"ray_address": "auto"}, "'auto'")])
def test_an_engine_that_cannot_be_is_refused(setting, named):
    with pytest.raises(UsageError, match=named):
        config(**setting)


def test_an_update_that_is_not_finite_ends_the_run():
    loop = loop_of(config())
    state, own = loop.snapshot()
    network = eqx.tree_at(lambda n: n.layers[-1].bias, state.learner.network, jnp.full(1, 1e30))
    loop.restore(state._replace(learner=state.learner._replace(network=network)), own)
    with pytest.raises(RunError, match="parameter_norm is inf by step 0: learning has diverged"):
        list(loop.run(1, eval_every=1, eval_episodes=1))


def test_progress_is_told_as_episodes_end():
    told = []
    loop = loop_of(config(num_envs=2))
    list(loop.run(72, eval_every=1_000, eval_episodes=1, on_step=told.append))
    assert told == [24, 48, 72]


def test_a_policy_learns_to_balance():
    rows, _ = rows_of(
        make_config(
            "es",
            "CartPole-v1",
            agent={"hidden_sizes": (8,), "pairs": 16, "sigma": 0.1, "learning_rate": 0.03, "table_size": 10_000},
            num_envs=4,
            steps=15_000,
            eval_every=15_000,
            eval_max_steps=200,
        )
    )
    assert rows[-1]["eval_return_mean"] > 150
