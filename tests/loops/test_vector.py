"""Environments stepped together, on one whose every step is known."""

import itertools

import gymnasium as gym
import numpy as np
import pytest

from paramnoise.loops import vector as vectors
from paramnoise.loops.vector import VectorEnv


class Scripted(gym.Env):
    """Shows (episode number, time), ends after `length` steps, and records what it was given."""

    observation_space = gym.spaces.Box(0, 1_000, (2,), np.float32)
    action_space = gym.spaces.Discrete(100)

    def __init__(self, length: int, terminates: bool):
        self.length, self.terminates = length, terminates
        self.seeds, self.actions = [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.time = 0
        return self._obs(), {}

    def step(self, action):
        self.actions.append(int(action))
        self.time += 1
        ended = self.time >= self.length
        return self._obs(), float(self.time), ended and self.terminates, ended and not self.terminates, {}

    def _obs(self):
        return np.array([len(self.seeds), self.time], np.float32)


def scripted(seed: int = 0) -> tuple[VectorEnv, list[Scripted]]:
    """The first environment terminates after 2 steps, the second is cut after 3."""
    made = [Scripted(2, terminates=True), Scripted(3, terminates=False)]
    envs = iter(made)
    vector = VectorEnv(lambda: next(envs), 2, [seed])
    assert vector.restart().tolist() == [[1, 0], [1, 0]]
    return vector, made


def steps(vector: VectorEnv, count: int) -> list:
    return [vector.step(np.array([10 + i, 20 + i])) for i in range(count)]


def test_within_an_episode_the_next_observation_is_the_one_to_act_on():
    vector, _ = scripted()
    (after,) = steps(vector, 1)
    assert after.next_obs.tolist() == after.obs.tolist() == [[1, 1], [1, 1]]
    assert not after.starts.any()


def test_at_an_end_the_next_observation_is_the_final_one_and_the_new_episode_s_first_follows():
    vector, _ = scripted()
    after = steps(vector, 2)[-1]
    assert after.next_obs.tolist() == [[1, 2], [1, 2]]
    assert after.obs.tolist() == [[2, 0], [1, 2]]


def test_a_later_step_does_not_change_what_an_earlier_one_returned():
    vector, _ = scripted()
    after = steps(vector, 2)[-1]
    steps(vector, 3)
    assert after.next_obs.tolist() == [[1, 2], [1, 2]]
    assert after.obs.tolist() == [[2, 0], [1, 2]]


def test_starts_mark_exactly_the_environments_whose_episode_ended():
    vector, _ = scripted()
    ended = [after.starts.tolist() for after in steps(vector, 6)]
    assert ended == [[False, False], [True, False], [False, True], [True, False], [False, False], [True, True]]


def test_only_the_ended_environment_is_reset():
    vector, made = scripted()
    resets = []
    for _ in range(6):
        steps(vector, 1)
        resets.append([len(env.seeds) for env in made])
    assert resets == [[1, 1], [2, 1], [2, 2], [3, 2], [3, 2], [4, 3]]


def test_terminated_and_truncated_are_told_apart():
    vector, _ = scripted()
    last = steps(vector, 6)[-1]
    assert last.terminated.tolist() == [True, False]
    assert last.truncated.tolist() == [False, True]


def test_rewards_belong_to_the_step_that_earned_them():
    vector, _ = scripted()
    rewards = np.stack([after.reward for after in steps(vector, 4)])
    assert rewards.dtype == np.float32
    assert rewards.tolist() == [[1, 1], [2, 2], [1, 3], [2, 1]]


def test_every_environment_gets_its_own_actions():
    vector, made = scripted()
    steps(vector, 4)
    assert [env.actions for env in made] == [[10, 11, 12, 13], [20, 21, 22, 23]]


def test_every_episode_of_every_environment_has_its_own_seed():
    vector, made = scripted()
    steps(vector, 12)
    seeds = [seed for env in made for seed in env.seeds]
    assert [len(env.seeds) for env in made] == [7, 5]
    assert all(isinstance(seed, int) for seed in seeds)
    assert len(set(seeds)) == len(seeds)


def test_the_seed_decides_the_seeds_of_episodes():
    def episode_seeds(seed: int) -> list[int]:
        vector, made = scripted(seed)
        steps(vector, 6)
        return [episode_seed for env in made for episode_seed in env.seeds]

    assert episode_seeds(3) == episode_seeds(3)
    assert not set(episode_seeds(3)) & set(episode_seeds(4))


def test_a_restart_repeats_the_first_episodes_and_one_with_a_new_seed_does_not():
    vector, made = scripted()
    steps(vector, 5)
    vector.restart()
    vector.restart([9])
    for env in made:
        assert env.seeds[-2] == env.seeds[0]
        assert env.seeds[-1] not in env.seeds[:-1]


def test_a_snapshot_holds_the_actions_of_the_running_episodes_alone():
    vector, _ = scripted()
    steps(vector, 4)
    snapshot = vector.snapshot()
    assert snapshot["episode"].tolist() == [2, 1]
    assert snapshot["actions-0"].tolist() == []
    assert snapshot["actions-1"].tolist() == [23]


@pytest.mark.parametrize("stopped_at", [0, 1, 40, 90])
def test_a_restored_environment_goes_on_as_its_uninterrupted_twin(stopped_at):
    make_env = lambda: gym.make("CartPole-v1")  # noqa: E731
    actions = np.random.default_rng(0).integers(2, size=(150, 2))
    twin = VectorEnv(make_env, 2, [5])
    shown = twin.restart()
    for action in actions[:stopped_at]:
        shown = twin.step(action).obs
    restored = VectorEnv(make_env, 2, [5])
    restored.restart()
    np.testing.assert_array_equal(restored.restore(twin.snapshot()), shown)
    ends = 0
    for action in actions[stopped_at:]:
        one, other = twin.step(action), restored.step(action)
        for field, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(field, same)
        ends += int(one.starts.sum())
    assert ends >= 4


def test_a_restored_environment_can_be_snapshotted_again():
    vector = VectorEnv(lambda: gym.make("CartPole-v1"), 2, [5])
    vector.restart()
    for action in np.random.default_rng(0).integers(2, size=(45, 2)):
        vector.step(action)
    restored = VectorEnv(lambda: gym.make("CartPole-v1"), 2, [5])
    restored.restore(vector.snapshot())
    for name, array in vector.snapshot().items():
        np.testing.assert_array_equal(restored.snapshot()[name], array)


class Repeats(gym.Env):
    """Shows a sum of draws of its seed, and of the clock if it does not repeat; its episodes never end."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, noise: float = 0.0, ends_at: int = 10**9):
        self.noise, self.ends_at = noise, ends_at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.normal(), 0
        return self._obs(), {}

    def step(self, action):
        self.place += action + self.np_random.normal() + self.noise * next(CLOCK)
        self.time += 1
        return self._obs(), 0.0, self.time >= self.ends_at, False, {}

    def _obs(self):
        return np.array([self.place], np.float32)


CLOCK = itertools.count()


def resumed(**keywords) -> tuple[VectorEnv, np.ndarray, np.ndarray]:
    """Another vector, at the snapshot of one after seven steps; what it shows, and what the first one showed."""
    one, other = (VectorEnv(lambda: Repeats(**keywords), 2, [0]) for _ in range(2))
    one.restart()
    for _ in range(7):
        after = one.step(np.array([0, 1]))
    return other, other.restore(one.snapshot()), after.obs


def test_an_environment_that_repeats_goes_on_from_where_it_was(caplog):
    vector, shown, before = resumed()
    assert shown.tolist() == before.tolist()
    assert vector.replays
    assert not caplog.records


def test_an_environment_that_does_not_repeat_from_its_seed_is_noticed_and_starts_anew(caplog):
    vector, shown, _ = resumed(noise=1.0)
    (record,) = caplog.records
    assert "Repeats: its replayed episode shows something else than it did" in record.getMessage()
    assert not vector.replays
    fresh = VectorEnv(Repeats, 2, [0])
    fresh._episode[:] = 1
    assert shown.tolist() == [[float(fresh._reset(i)[0])] for i in range(2)]


def test_an_endless_episode_is_kept_up_to_a_bound_and_the_line_says_when_exact_resume_ends(caplog, monkeypatch):
    monkeypatch.setattr(vectors, "MOST_REPLAYED", 6)
    vector, shown, _ = resumed()
    saved, again = (record.getMessage() for record in caplog.records)
    assert "is longer than 6 steps: a run resumed from this checkpoint starts another in its place" in saved
    assert "its episode is longer than 6 steps; the run goes on with new episodes" in again
    assert not vector.replays
    for _ in range(20):
        vector.step(np.array([0, 1]))
    assert [len(taken) for taken in vector._taken] == [7, 7]
    assert np.isfinite(shown).all()


def test_a_number_whose_square_overflows_is_finite_and_passes():
    class Large(Scripted):
        def _obs(self):
            return np.full(2, 1e30, np.float32)

    vector = VectorEnv(lambda: Large(9, terminates=True), 1, [0])
    vector.restart()
    assert vector.step(np.array([1])).next_obs.tolist() == np.full((1, 2), 1e30, np.float32).tolist()


class Halves(Scripted):
    """Changes the action that it is given, in place."""

    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def step(self, action):
        action *= 0.5
        return super().step(action[0])


def test_what_an_environment_does_to_its_action_stays_with_it():
    vector = VectorEnv(lambda: Halves(9, terminates=True), 1, [0])
    vector.restart()
    actions = np.full((1, 1), 8.0, np.float32)
    actions.flags.writeable = False  # as an array of JAX is
    vector.step(actions)
    assert actions == 8.0
    assert vector.snapshot()["actions-0"].ravel().tolist() == [8.0]
    resumed = VectorEnv(lambda: Halves(9, terminates=True), 1, [0])
    resumed.restore(vector.snapshot())
    assert resumed.snapshot()["actions-0"].ravel().tolist() == [8.0]
