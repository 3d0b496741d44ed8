"""Members of a population: each acts by its own parameters, wherever and beside whichever others it is evaluated."""

import functools
import pickle

import gymnasium as gym
import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from paramnoise import UsageError
from paramnoise.agents import es
from paramnoise.agents.base import Spaces
from paramnoise.agents.es import ESConfig
from paramnoise.envs import env_factory
from paramnoise.experience.returns import Broadcast, draw_index, noise_table, num_parameters
from paramnoise.loops.members import MemberEvaluator, Setting
from paramnoise.networks import normaliser as normalisers
from paramnoise.networks.policies import noise_free_actions
from paramnoise.parallel.local_tasks import LocalTasks
from paramnoise.validation import RunError

CONFIG = ESConfig(hidden_sizes=(4,), pairs=3, table_size=500, sigma=0.5)


class Recorder(gym.Env):
    """Shows random states, notes what was shown and done, and ends after 2 to 5 steps, by its seed."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, is_discrete=False, bad_step=None):
        self.action_space = gym.spaces.Discrete(3) if is_discrete else gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.bad_step = bad_step
        self.seeds, self.shown, self.given = [], [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.time, self.length = 0, int(self.np_random.integers(2, 6))
        return self._show(), {}

    def step(self, action):
        self.given.append(np.copy(action))
        self.time += 1
        reward = float("nan") if self.time == self.bad_step else float(np.sum(action))
        return self._show(), reward, self.time == self.length, False, {}

    def _show(self):
        self.shown.append(self.np_random.normal(3.0, 2.0, 2).astype(np.float32))
        return self.shown[-1]


def setting(config=CONFIG, num_envs=2, is_discrete=False, max_steps=100, **env):
    learner = es.make(config, Spaces((2,), 3, is_discrete))
    made = []

    def make_env():
        made.append(Recorder(is_discrete, **env))
        return made[-1]

    return Setting(learner, make_env, 7, num_envs, max_steps), made


def broadcast(learner, generation=2, seen=True):
    state = jax.jit(learner.init)(jax.random.key(0))
    data = np.random.default_rng(0).normal(3.0, 2.0, (50, 2)).astype(np.float32)
    statistics = jax.jit(normalisers.observe)(state.statistics, data) if seen else state.statistics
    theta = np.asarray(ravel_pytree(state.network)[0])
    return Broadcast(generation, theta, jax.device_get(statistics)), state._replace(statistics=statistics)


def evaluate(made_of, numbers, seen=True):
    members = MemberEvaluator(made_of)
    given, _ = broadcast(made_of.learner, seen=seen)
    return {episode.number: episode for ended in members.evaluate(given, numbers) for episode in ended}


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("is_discrete", [True, False])
@pytest.mark.parametrize("layer_norm", [True, False])
def test_a_member_acts_as_the_policy_with_its_own_parameters(is_discrete, layer_norm, seen):
    config = ESConfig(hidden_sizes=(4,), table_size=500, sigma=0.5, action_noise=0.0, layer_norm=layer_norm)
    made_of, made = setting(config, num_envs=1, is_discrete=is_discrete)
    learner = made_of.learner
    evaluate(made_of, [5], seen)  # -epsilon of pair 2
    size = num_parameters(learner.init)
    index = draw_index(config.table_size, size, 7, 2, 2)
    epsilon = noise_table(config.table_size)[index : index + size]
    _, state = broadcast(learner, seen=seen)
    theta, unflatten = ravel_pytree(state.network)
    policy = learner.policy(state._replace(network=unflatten(theta - 0.5 * epsilon)))
    expected = noise_free_actions(policy, np.array(made[0].shown[:-1]))
    np.testing.assert_allclose(np.array(made[0].given), expected, atol=1e-5)


def test_an_episode_does_not_depend_on_those_beside_it():
    alone = evaluate(setting(num_envs=1)[0], range(6))
    for num_envs, numbers in [(2, range(6)), (4, [5, 3, 1, 0, 2, 4]), (9, range(6))]:
        beside = evaluate(setting(num_envs=num_envs)[0], numbers)
        assert sorted(beside) == list(range(6))
        for number, episode in alone.items():
            jax.tree.map(np.testing.assert_array_equal, beside[number], episode)
    assert len({episode.total for episode in alone.values()}) == 6


def test_what_is_reported_is_the_return_the_length_and_the_sums_of_states_acted_on():
    made_of, made = setting(num_envs=1)
    episode = evaluate(made_of, [3])[3]
    shown = np.array(made[0].shown[:-1], np.float64)
    assert episode.length == made[0].length == len(shown)
    assert episode.total == pytest.approx(np.sum(made[0].given), rel=1e-5)
    np.testing.assert_allclose(episode.sums, shown.sum(axis=0))
    np.testing.assert_allclose(episode.squares, np.square(shown).sum(axis=0))


def test_action_noise_differs_from_step_to_step_and_stays_within_bounds():
    quiet, loud = (setting(ESConfig(hidden_sizes=(4,), table_size=500, action_noise=n), 1) for n in (0.0, 0.01))
    for made_of, _ in (quiet, loud):
        evaluate(made_of, [0])
    noise = np.array(loud[1][0].given) - np.array(quiet[1][0].given)
    assert len(np.unique(noise)) == noise.size
    assert 0.001 < noise.std() < 0.03
    wild, made = setting(ESConfig(hidden_sizes=(4,), table_size=500, action_noise=5.0), 1)
    evaluate(wild, [0])
    assert np.abs(made[0].given).max() == 1.0


def test_every_episode_of_every_member_has_a_seed_of_its_own():
    made_of, made = setting(ESConfig(hidden_sizes=(4,), pairs=3, table_size=500, episodes_per_member=2))
    assert sorted(evaluate(made_of, range(12))) == list(range(12))
    assert len({seed for env in made for seed in env.seeds}) == 12


def test_a_long_episode_is_cut():
    assert {episode.length for episode in evaluate(setting(max_steps=2)[0], range(6)).values()} == {2}


def test_a_reward_that_is_not_finite_ends_the_run():
    with pytest.raises(RunError, match="not finite in generation 2, at step 1 of an episode of member 0"):
        evaluate(setting(bad_step=1)[0], range(2))


def sendable(hidden):
    learner = es.make(ESConfig(hidden_sizes=hidden, pairs=2, table_size=10_000), Spaces((4,), 2, True))
    return Setting(learner, env_factory("CartPole-v1"), 0, 2, 30)


def test_only_the_broadcast_grows_with_the_number_of_parameters():
    sizes = {"episodes": [], "numbers": [], "broadcast": []}
    for hidden in [(4,), (64, 64)]:
        made_of = pickle.loads(pickle.dumps(sendable(hidden)))
        given = first_broadcast(made_of)
        ended = [e for episodes in MemberEvaluator(made_of).evaluate(given, range(4)) for e in episodes]
        sizes["episodes"].append(len(pickle.dumps(ended)))
        sizes["numbers"].append(len(pickle.dumps(range(4))))
        sizes["broadcast"].append(len(pickle.dumps(given)) - 4 * num_parameters(made_of.learner.init))
    assert abs(sizes["episodes"][0] - sizes["episodes"][1]) <= 20  # a length may need another byte
    assert max(sizes["episodes"]) < 4 * 500
    assert max(sizes["numbers"]) < 100
    assert max(sizes["broadcast"]) < 1_000


def first_broadcast(made_of):
    state = jax.jit(made_of.learner.init)(jax.random.key(0))
    return Broadcast(0, np.asarray(ravel_pytree(state.network)[0]), jax.device_get(state.statistics))


def test_processes_find_what_one_finds_start_again_when_left_and_say_when_one_died():
    made_of = sendable((4,))
    given, chunks = first_broadcast(made_of), [range(4), range(4, 8)]
    alone = {e.number: e for e in MemberEvaluator(made_of)(given, range(8))}
    pool = LocalTasks(functools.partial(MemberEvaluator, made_of), 2)
    try:
        left = pool.run(given, chunks)
        next(left)
        left.close()
        found = {e.number: e for done in pool.run(given, chunks) for episodes in done for e in episodes}
        assert sorted(found) == sorted(alone)
        for number, episode in alone.items():
            jax.tree.map(np.testing.assert_array_equal, found[number], episode)
        pool._pool[1]._process.kill()
        with pytest.raises(RunError, match="a worker process was killed by SIGKILL"):
            list(pool.run(given, chunks))
    finally:
        pool.close()


def test_an_environment_that_cannot_be_sent_is_refused():
    made_of, _ = setting()
    with pytest.raises(UsageError, match="workers above 1 needs an environment that can be sent"):
        LocalTasks(functools.partial(MemberEvaluator, made_of), 2)
