"""Vector environments that a user made, on ones whose every transition is known."""

import functools

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from probes import ScriptedEnv

import paramnoise as pn
from paramnoise.envs import env_source
from paramnoise.envs.vectors import UserVectors
from paramnoise.experience.rollout import UnevenBuffer
from paramnoise.validation import RunError, UsageError

MODES = list(AutoresetMode)
SAME = {"autoreset_mode": AutoresetMode.SAME_STEP}
TINY = {"hidden_sizes": (8,), "learning_starts": 20, "batch_size": 8, "buffer_size": 200}
QUIET = {"progress": False, "eval_every": 10_000, "eval_episodes": 3}


def scripted(mode, **keywords):
    """Two environments: the first terminates after 2 steps, the second is cut after 3."""
    makes = [
        functools.partial(ScriptedEnv, (2,), truncates=False),
        functools.partial(ScriptedEnv, (3,), truncates=True),
    ]
    return SyncVectorEnv(makes, autoreset_mode=mode, **keywords)


def real_steps(envs, count):
    """Per environment, the first transitions that are to be stored: obs, reward, next_obs, terminated, truncated."""
    streams = [[] for _ in range(envs.num_envs)]
    obs, starts = envs.restart(), np.ones(envs.num_envs, bool)
    while min(map(len, streams)) < count:
        after = envs.step(np.zeros(envs.num_envs, np.int32))
        skipped = np.zeros(envs.num_envs, bool) if after.skipped is None else after.skipped
        for i in np.flatnonzero(~skipped):
            ends = bool(after.terminated[i]), bool(after.truncated[i])
            streams[i].append(
                (obs[i].tolist(), float(after.reward[i]), after.next_obs[i].tolist(), *ends, bool(starts[i]))
            )
        assert np.array_equal(after.resets, after.starts)
        starts = np.where(skipped, True, after.starts) if envs.skips else after.starts
        obs = after.obs
    return [stream[:count] for stream in streams]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_same_transitions_and_no_reset_is_one(mode):
    one, other = real_steps(UserVectors([scripted(mode)], 2, seed=0), 5)
    assert one == [
        ([0, 0], 1.0, [0, 1], False, False, True),
        ([0, 1], 2.0, [0, 2], True, False, False),
        ([1, 0], 1.0, [1, 1], False, False, True),
        ([1, 1], 2.0, [1, 2], True, False, False),
        ([2, 0], 1.0, [2, 1], False, False, True),
    ]
    assert other == [
        ([0, 0], 1.0, [0, 1], False, False, True),
        ([0, 1], 2.0, [0, 2], False, False, False),
        ([0, 2], 3.0, [0, 3], False, True, False),
        ([1, 0], 1.0, [1, 1], False, False, True),
        ([1, 1], 2.0, [1, 2], False, False, False),
    ]


def test_environments_in_processes_of_their_own_give_the_same_transitions():
    makes = [functools.partial(gym.make, "CartPole-v1")] * 2
    streams = []
    for vector in (SyncVectorEnv(makes), AsyncVectorEnv(makes, context="spawn")):
        envs = UserVectors([vector], 2, seed=0)
        streams.append(real_steps(envs, 25))
        envs.close()
    assert streams[0] == streams[1]
    assert any(terminated for _, _, _, terminated, _, _ in streams[0][0])


def test_arrays_that_a_vector_uses_again_are_copied():
    envs = UserVectors([scripted(AutoresetMode.SAME_STEP, copy=False)], 2, seed=0)
    first = envs.restart()
    envs.step(np.zeros(2, np.int32))
    assert first.tolist() == [[0, 0], [0, 0]]


def test_several_vectors_make_as_many_environments_as_are_asked_for():
    envs = UserVectors([scripted(AutoresetMode.SAME_STEP) for _ in range(2)], 3, seed=0)
    assert envs.restart().shape == (3, 2)
    after = [envs.step(np.array([1, 2, 3])) for _ in range(2)][-1]
    assert after.terminated.tolist() == [True, False, True]
    assert after.next_obs.tolist() == [[0, 2]] * 3


class Dicts(ScriptedEnv):
    """Shows its episode and its time as parts, and takes a grid of torques."""

    def __init__(self):
        super().__init__((2,))
        self.observation_space = spaces.Dict({"time": spaces.Discrete(4), "episode": spaces.Box(0, 99, (1,))})
        self.action_space = spaces.Box(-2.0, 2.0, (2, 2))

    def step(self, action):
        assert action.shape == (2, 2)
        assert (action == 2.0).all()
        return super().step(0)

    def _obs(self):
        return {"time": self.time, "episode": np.array([self.episode], np.float32)}


@pytest.mark.parametrize("mode", MODES)
def test_dict_observations_and_shaped_actions_go_through_a_vector(mode):
    envs = UserVectors([SyncVectorEnv([Dicts, Dicts], autoreset_mode=mode)], 2, seed=0)
    assert envs.restart().tolist() == [[0, 1, 0, 0, 0]] * 2
    after = [envs.step(np.ones((2, 4), np.float32)) for _ in range(2)][-1]
    assert after.next_obs.tolist() == [[0, 0, 0, 1, 0]] * 2
    assert after.truncated.all()


def transitions(agent):
    replay = agent._loop.state().experience
    return [
        np.asarray(part)[: int(replay.added)]
        for part in (replay.data.obs, replay.data.next_obs, replay.data.terminated)
    ]


@pytest.mark.parametrize("mode", MODES)
def test_replay_holds_every_step_once_and_no_reset(mode):
    vector = scripted(mode)
    agent = pn.DQN(vector, **TINY).learn(60, **QUIET)
    assert agent.config.num_envs == 2
    obs, next_obs, terminated = transitions(agent)
    assert len(obs) in (59, 60)  # at most one waits for its batch
    np.testing.assert_array_equal(next_obs[:, 0], obs[:, 0])  # of one episode
    np.testing.assert_array_equal(next_obs[:, 1], obs[:, 1] + 1)
    assert terminated.any()
    assert (next_obs[terminated, 1] == 2).all()
    assert 3 in next_obs[~terminated, 1]  # the time limit's end
    given = sum(len(env.given) for env in vector.envs)
    assert given == agent.step == 60


@pytest.mark.parametrize("mode", MODES)
def test_rollouts_hold_as_many_steps_of_each_environment_and_no_reset(mode):
    agent = pn.TRPO(scripted(mode), hidden_sizes=(8,), batch_size=20, exploration="none")
    feed, rollouts = agent._loop.collector._feed, []
    take = feed.take

    def keep(*args, **keywords):
        if (taken := take(*args, **keywords)) is not None:
            rollouts.append(jax.tree.map(np.array, taken.args[0].rollout))
        return taken

    feed.take = keep
    acts, actors = [], agent._loop.collector._actors
    act = actors.act
    actors.act = lambda obs, step, turn: acts.append(turn) or act(obs, step, turn)
    agent.learn(70, **QUIET)
    assert acts == list(range(len(acts)))  # other noise on actions at every turn, skipped or not
    assert len(rollouts) >= 2
    np.testing.assert_array_equal(rollouts[0].time, [np.arange(10) % 2, np.arange(10) % 3])
    for each in rollouts:
        np.testing.assert_array_equal(each.obs[..., 1], each.time)
        np.testing.assert_array_equal(each.next_obs[..., 1], each.time + 1)
        np.testing.assert_array_equal(each.next_obs[..., 0], each.obs[..., 0])
        np.testing.assert_array_equal(each.terminated, [each.time[0] == 1, np.zeros(10, bool)])
        np.testing.assert_array_equal(each.truncated, [np.zeros(10, bool), each.time[1] == 2])
        is_new = np.diff(each.segment, axis=1) != 0
        np.testing.assert_array_equal(is_new, (each.terminated | each.truncated)[:, :-1])


def test_an_uneven_buffer_keeps_the_first_steps_of_each_environment_and_counts_the_time_of_the_others():
    buffer = UnevenBuffer(np.zeros((2, 1)), np.zeros(2, np.int32), 2, 1)
    both, offsets = np.ones(2, bool), np.zeros((2, 1), np.float32)

    def add(number, *where):
        row = {name: np.full(2, number) for name in ("action", "reward", "terminated", "truncated")}
        shown = np.full((2, 1), float(number))
        buffer.add(obs=shown, next_obs=shown, where=np.array(where), **row)

    buffer.begin_segments(both, both, offsets)
    add(1, True, True)
    add(2, True, False)
    add(3, True, False)  # the first has enough
    assert not buffer.is_full
    add(4, True, True)
    assert buffer.is_full
    rollout = buffer.rollout()
    assert rollout.obs[..., 0].tolist() == [[1, 2], [1, 4]]
    assert rollout.time.tolist() == [[0, 1], [0, 1]]
    buffer.clear()
    buffer.begin_segments(both, np.zeros(2, bool), offsets)
    add(5, True, True)
    assert buffer.rollout().time[:, 0].tolist() == [4, 2]


def make_cart_poles(**keywords):
    return gym.make_vec("CartPole-v1", num_envs=3, **keywords)


def test_a_vector_that_gymnasium_wrote_itself_trains_and_is_evaluated_on_single_environments():
    vector = make_cart_poles()
    assert type(vector).__name__ == "CartPoleVectorEnv"  # a class of its own, which resets by the next step
    agent = pn.DQN(vector, **TINY).learn(40, **QUIET)
    assert len(agent.evaluate(episodes=4).returns) == 4


def test_noise_free_returns_are_those_of_single_environments():
    one, other = pn.DQN(make_cart_poles(), **TINY), pn.DQN("CartPole-v1", num_envs=3, **TINY)
    assert one.evaluate(episodes=4) == other.evaluate(episodes=4)


def test_a_function_that_makes_a_vector_is_evaluated_on_vectors_of_its_own():
    made = []

    def make():
        made.append(gym.wrappers.vector.TransformObservation(make_cart_poles(), lambda obs: obs, SPACE))
        return made[-1]

    agent = pn.DQN(make, **TINY)
    assert len(made) == 1
    assert agent.config.num_envs == 3
    assert agent.evaluate(episodes=4).returns == agent.evaluate(episodes=4).returns
    assert len(made) == 3  # two vectors of three for four episodes


SPACE = gym.make_vec("CartPole-v1", num_envs=3).observation_space


def test_what_was_saved_goes_on_with_new_episodes_and_says_so(tmp_path):
    agent = pn.DQN(make_cart_poles(), **TINY).learn(40, **QUIET)
    agent.save(tmp_path)
    with pytest.raises(UsageError, match="was saved with a vector environment of its own"):
        pn.load(tmp_path, "CartPole-v1")
    with pytest.warns(UserWarning, match="cannot be brought back") as warned:
        loaded = pn.load(tmp_path, make_cart_poles())
    assert "\n" not in str(warned[0].message)
    assert loaded.step == agent.step
    assert loaded._loop.collector._starts.all()
    assert not loaded._loop.collector.progress._running.any()
    assert loaded.config.num_envs == 3
    loaded.learn(20, **QUIET)
    assert loaded.step >= agent.step + 20
    shown = agent._loop.collector._envs.restart()
    assert not np.array_equal(loaded._loop.collector._envs.restart(), shown)


class NoSource(VectorEnv):
    """A vector that says neither how its environments are made nor, unless it is told, how it resets."""

    num_envs = 2
    single_observation_space = spaces.Box(-1.0, 1.0, (3,))
    observation_space = spaces.Box(-1.0, 1.0, (2, 3))
    single_action_space = spaces.Discrete(2)

    def __init__(self, shape=(2, 3), **metadata):
        self.shape, self.metadata = shape, metadata

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.shape, self.observation_space.dtype), {}

    def step(self, actions):
        return np.zeros(self.shape, np.float32), np.zeros(2), np.ones(2, bool), np.zeros(2, bool), {}


class Pictures(NoSource):
    single_observation_space = spaces.Box(0, 255, (8, 8), np.uint8)
    observation_space = spaces.Box(0, 255, (2, 8, 8), np.uint8)


@pytest.mark.parametrize(
    ("env", "settings", "named"),
    [
        (NoSource(**SAME), {}, "has neither env_fns nor a spec to make them from: pass a function that makes it"),
        (NoSource(), {}, "must say how it resets, one of AutoresetMode.NEXT_STEP"),
        (
            NoSource((3, 2), **SAME),
            {},
            "shape (3, 2) and dtype float32, but its space is Box(-1.0, 1.0, (2, 3), float32)",
        ),
        (Pictures((2, 8, 8), **SAME), {}, "Pictures shows images: pass a function that makes one environment"),
        (make_cart_poles(), {"num_envs": 4}, "num_envs is 4, but the vector environment CartPole-v1 has 3"),
    ],
)
def test_a_vector_that_cannot_be_used_gets_one_line(env, settings, named):
    with pytest.raises(UsageError) as caught:
        pn.DQN(env, **settings)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_same_step_vector_without_final_observations_ends_with_one_line():
    envs = UserVectors([NoSource(**SAME)], 2, seed=0)
    envs.restart()
    with pytest.raises(RunError, match=r"gives no info\['final_obs'\]"):
        envs.step(np.zeros(2, np.int32))


def test_a_normalising_vector_wrapper_gets_the_warning():
    with pytest.warns(UserWarning, match="NormalizeObservation keeps statistics of its own"):
        env_source(lambda: gym.wrappers.vector.NormalizeObservation(make_cart_poles()))


def test_evolution_strategies_take_the_single_environments_of_a_vector():
    agent = pn.ES(make_cart_poles(), hidden_sizes=(4,), pairs=1, table_size=1_000).learn(10, **QUIET)
    assert agent.step >= 10
