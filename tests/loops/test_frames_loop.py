"""The host loop on frames, on a task whose answer is known, and what must not depend on how it is run."""

import functools
import itertools

import equinox as eqx
import jax
import numpy as np
import pytest
from probes import Halves

from paramnoise.agents import dqn
from paramnoise.agents.base import Spaces
from paramnoise.envs import env_source
from paramnoise.experience import frames as stores
from paramnoise.experience.frames import STACK
from paramnoise.explorations import EpsilonGreedy, ParameterNoise
from paramnoise.loops.host import HostLoop
from paramnoise.networks.policies import noise_free_actions

NUM_ENVS, GAMMA, LEARNING_STARTS, TRAIN_EVERY = 2, 0.5, 100, 4
STEPS, LOG_EVERY, EVAL_EVERY = 600, 50, 300
ANNEAL_STEPS, EPSILON_END, ADAPT_EVERY = 400, 0.1, 50
SETTINGS = {
    "convolutions": ((4, 4, 2), (8, 3, 1)),
    "hidden_sizes": (16,),
    "gamma": GAMMA,
    "learning_rate": 3e-3,
    "batch_size": 16,
    "buffer_size": 400,
    "learning_starts": LEARNING_STARTS,
    "train_every": TRAIN_EVERY,
    "target_every": 20,
    "clip_rewards": True,
}
SCHEDULE = {"epsilon_end": EPSILON_END, "anneal_steps": ANNEAL_STEPS}
EPSILON = EpsilonGreedy(**SCHEDULE)
PARAMETER = ParameterNoise(**SCHEDULE, adapt_every=ADAPT_EVERY, epsilon=0.1)


@functools.cache
def learner(policy_head):
    return dqn.make(dqn.DQNConfig(**SETTINGS, policy_head=policy_head), Spaces((STACK, 12, 12), 2, True))


def new_loop(
    exploration, seeds, replay_on="host", make_env=Halves, terminal_time_limits=False, save_replay=True
) -> HostLoop:
    """A loop over the probe; the policy head is parameter noise's."""
    return HostLoop(
        learner(exploration is PARAMETER),
        exploration,
        env_source(make_env),
        seeds=seeds,
        num_envs=NUM_ENVS,
        eval_max_steps=50,
        log_every=LOG_EVERY,
        replay_on=replay_on,
        terminal_time_limits=terminal_time_limits,
        save_replay=save_replay,
    )


@functools.cache
def trained(exploration, seeds, replay_on="host", eval_episodes=3, repetition=0):
    """A loop and its rows."""
    loop = new_loop(exploration, seeds, replay_on)
    return loop, list(loop.run(STEPS, eval_every=EVAL_EVERY, eval_episodes=eval_episodes))


def columns(rows, member, without=()):
    """The rows of one of the seeds, as arrays by column."""
    names = [name for name in rows[0][member] if name not in without]
    return {name: np.array([row[member][name] for row in rows]) for name in names}


def assert_same(ours, theirs, **tolerance):
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], err_msg=name, **tolerance)


def stacks():
    """Every stack within a game, and the bright half of its newest frame."""
    halves = np.zeros((2, 12, 12), np.uint8)
    halves[0, :, :6] = halves[1, :, 6:] = 200
    sides = list(itertools.product((0, 1), repeat=STACK))
    return np.stack([halves[list(each)] for each in sides]), np.array([each[-1] for each in sides])


@pytest.mark.parametrize(("exploration", "seeds"), [(EPSILON, (0,)), (PARAMETER, (0, 1))])
def test_the_true_values_of_clipped_rewards_are_learned_past_the_time_limit(exploration, seeds):
    loop, _ = trained(exploration, seeds)
    seen, sides = stacks()
    for member in range(len(seeds)):
        values = loop.state(member).learner.network.values(seen)
        right, wrong = values[np.arange(len(sides)), sides], values[np.arange(len(sides)), 1 - sides]
        # 1.6 if the time limit, which cuts one step in four, ended the task; 6 if rewards were not clipped.
        np.testing.assert_allclose(right, 1 / (1 - GAMMA), atol=0.15)
        np.testing.assert_allclose(wrong, 0.0, atol=0.15)


@pytest.mark.parametrize("terminal", [False, True])
def test_replay_ends_the_task_at_a_time_limit_only_if_it_is_to_be_terminal(terminal):
    loop = new_loop(PARAMETER, (0, 1), terminal_time_limits=terminal, make_env=lambda: Halves(time_limit=1))
    list(loop.run(20, eval_every=STEPS, eval_episodes=0))
    for member in (0, 1):
        kept = {name: loop.snapshot(member)[1][f"feed/replay/{name}"] for name in ("reward", "terminated", "is_final")}
        paid = (kept["reward"] > 0) & ~kept["is_final"]  # the right action goes on, if the time limit lets it
        assert 0 < paid.sum() < paid.size
        assert kept["terminated"][paid].all() if terminal else not kept["terminated"][paid].any()
        assert kept["is_final"].any() != terminal  # nothing follows an end, so no final frame is kept


@pytest.mark.parametrize(("exploration", "seeds"), [(EPSILON, (0,)), (PARAMETER, (0, 1))])
def test_the_noise_free_policy_is_optimal_and_scores_are_not_clipped(exploration, seeds):
    loop, rows = trained(exploration, seeds)
    best = Halves.reward * Halves().time_limit
    for member in range(len(seeds)):
        assert rows[-1][member]["eval_return_mean"] == rows[-1][member]["eval_return_median"] == best
        seen, sides = stacks()
        assert noise_free_actions(loop.policy(member), seen).tolist() == sides.tolist()
        assert Halves.reward < rows[-1][member]["train_return_mean"] < best  # a true score too, of who explores
        assert np.isnan(rows[0][member]["eval_return_mean"])  # a row between evaluations


def test_the_same_seed_gives_the_same_rows():
    _, rows = trained(PARAMETER, (1,))
    _, again = trained(PARAMETER, (1,), repetition=1)
    _, other = trained(PARAMETER, (0,))
    assert_same(columns(rows, 0), columns(again, 0), rtol=0)
    assert np.any(columns(rows, 0)["q_loss"][-1] != columns(other, 0)["q_loss"][-1])


@pytest.mark.parametrize("member", [0, 1])
def test_seeds_side_by_side_train_as_each_does_alone(member):
    _, together = trained(PARAMETER, (0, 1))
    _, alone = trained(PARAMETER, (member,))
    assert_same(columns(together, member), columns(alone, 0), rtol=1e-3, atol=1e-5)


def test_replay_on_host_and_device_give_the_same_rows():
    _, on_host = trained(PARAMETER, (0, 1))
    loop, on_device = trained(PARAMETER, (0, 1), replay_on="device")
    assert loop.collector._feed._host is None
    for member in (0, 1):
        assert_same(columns(on_host, member), columns(on_device, member), rtol=1e-3, atol=1e-5)


def test_evaluation_does_not_touch_training():
    _, rows = trained(PARAMETER, (1,))
    _, unwatched = trained(PARAMETER, (1,), eval_episodes=0)
    without = ("eval_return_mean", "eval_return_median")
    assert np.isnan(unwatched[-1][0]["eval_return_mean"])
    assert_same(columns(rows, 0, without), columns(unwatched, 0, without), rtol=0)


def test_delta_follows_the_annealed_epsilon_and_sigma_is_adapted_every_50_steps():
    _, rows = trained(PARAMETER, (1,))
    found = columns(rows, 0)
    assert found["step"].tolist() == list(range(LOG_EVERY, STEPS + 1, LOG_EVERY))
    learned_from = found["step"] - NUM_ENVS  # the newest step is learned from while the next one runs
    assert found["adaptations"].tolist() == (learned_from // ADAPT_EVERY).tolist()
    adapted_at = learned_from[1:] // ADAPT_EVERY * ADAPT_EVERY
    epsilon = np.maximum(1 - adapted_at / ANNEAL_STEPS * (1 - EPSILON_END), EPSILON_END)
    np.testing.assert_allclose(found["delta"][1:], -np.log(1 - epsilon + epsilon / 2), rtol=1e-5)  # app. C.1
    moved = np.diff(np.log(found["sigma"])) / np.log(PARAMETER.alpha)
    np.testing.assert_allclose(moved, np.where(found["distance"][1:] <= found["delta"][1:], 1, -1), atol=1e-3)


def test_no_training_before_learning_starts_and_then_a_train_step_is_due_every_4():
    loop = new_loop(PARAMETER, (0,))
    first = loop.state().learner
    [(row,), *_] = loop.run(LEARNING_STARTS + NUM_ENVS, eval_every=LEARNING_STARTS, eval_episodes=0)
    assert np.isnan(row["q_loss"])
    assert eqx.tree_equal(loop.state().learner, first)
    assert [*loop.run(LEARNING_STARTS + NUM_ENVS + TRAIN_EVERY, eval_every=STEPS, eval_episodes=0)]
    assert loop.state().learner.updates == 1
    assert not eqx.tree_equal(loop.state().learner.network, first.network)
    finished, _ = trained(PARAMETER, (0, 1))
    due = (STEPS - NUM_ENVS - LEARNING_STARTS) // TRAIN_EVERY
    assert [finished.state(member).learner.updates.item() for member in (0, 1)] == [due, due]


def test_steps_and_games_are_those_of_the_environments():
    made = []

    class Counted(Halves):
        def __init__(self):
            super().__init__()
            self.steps = self.games = 0
            made.append(self)

        def reset(self, **given):
            self.games += 1
            return super().reset(**given)

        def step(self, action):
            self.steps += 1
            return super().step(action)

    loop = new_loop(PARAMETER, (0, 1), make_env=Counted)
    heard = []
    (*_, rows) = loop.run(150, eval_every=1_000, eval_episodes=0, on_step=heard.append)
    assert heard == list(range(NUM_ENVS, 151, NUM_ENVS))
    _, *trained_on = made  # the first was only looked at
    assert [env.steps for env in trained_on] == [150 // NUM_ENVS] * 4
    begun = [env.games for env in trained_on]
    assert [row["episodes"] for row in rows] == [sum(begun[:2]) - 2, sum(begun[2:]) - 2]
    assert min(begun) > 10


class Endless(Halves):
    """No action ends a game."""

    def step(self, action):
        image, reward, *_ = super().step(action)
        return image, reward, False, False, {}


@pytest.mark.parametrize("replay_on", ["host", "device"])
def test_a_replay_that_is_filled_anew_in_the_midst_of_a_game_has_the_stacks_that_were_acted_on(replay_on):
    def stored(loop, member, slots):
        """The stacks of some slots of the second environment."""
        replay = jax.tree.map(np.asarray, loop.collector._feed._replay_of(member))
        return np.asarray(stores.transitions(stores.drawn_at(replay, slots, np.ones_like(slots))).obs)

    whole, other = (new_loop(PARAMETER, (0, 1), replay_on, Endless, save_replay=False) for _ in range(2))
    list(whole.run(20, eval_every=STEPS, eval_episodes=0))
    for member in (0, 1):
        other.restore(*jax.tree.map(np.array, whole.snapshot(member)), member)
    for loop in (whole, other):
        list(loop.run(40, eval_every=STEPS, eval_episodes=0))
    for member in (0, 1):
        first = stored(other, member, np.arange(5))
        assert first.any(axis=(2, 3)).all()  # no black frame
        np.testing.assert_array_equal(first, stored(whole, member, np.arange(9, 14)))  # the step before the snapshot


def test_each_environment_has_a_perturbed_head_of_its_own_on_the_same_convolutions():
    loop = new_loop(PARAMETER, (0, 1))
    list(loop.run(LEARNING_STARTS + NUM_ENVS, eval_every=STEPS, eval_episodes=0))
    for member in (0, 1):
        acting, clean = loop.state(member).exploration.policies.network, loop.policy(member).network
        for leaf, own in zip(jax.tree.leaves(clean.convolutions), jax.tree.leaves(acting.convolutions), strict=True):
            np.testing.assert_array_equal(own, np.stack([leaf] * NUM_ENVS))
        for layer in acting.head.layers:
            assert np.all(layer.weight[0] != layer.weight[1])


def test_an_episodes_start_leaves_the_other_environments_policy_alone():
    loop = new_loop(PARAMETER, (0, 1))
    list(loop.run(LEARNING_STARTS + NUM_ENVS, eval_every=STEPS, eval_episodes=0))
    policies = lambda: jax.device_get([loop.state(member).exploration.policies for member in (0, 1)])  # noqa: E731
    some_but_not_all = 0
    for _ in range(12):
        before, starts = policies(), loop.collector._starts.reshape(2, NUM_ENVS).copy()
        list(loop.run(loop.step + NUM_ENVS, eval_every=STEPS, eval_episodes=0))
        for member, (old, new) in enumerate(zip(before, policies(), strict=True)):
            for env in range(NUM_ENVS):
                layers = zip(*(jax.tree.leaves(each.network.head.layers) for each in (old, new)), strict=True)
                is_new = [not np.array_equal(x[env], y[env]) for x, y in layers]
                assert is_new == [bool(starts[member, env])] * len(is_new)
        some_but_not_all += np.any(starts) and not np.all(starts)
    assert some_but_not_all > 3


@pytest.mark.parametrize("replay_on", ["host", "device"])
def test_nothing_is_compiled_after_warm_up(replay_on, compiled):
    loop = new_loop(PARAMETER, (0, 1), replay_on)
    list(loop.run(300, eval_every=200, eval_episodes=3))
    compiled.clear()
    rows = list(loop.run(STEPS, eval_every=200, eval_episodes=3))
    assert not compiled
    assert len(rows) == (STEPS - 300) // LOG_EVERY
    jax.jit(lambda x: x + len(compiled))(1.0)
    assert compiled  # it would have been seen
