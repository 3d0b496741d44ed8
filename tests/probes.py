"""A probe environment whose Q values are known: each kind of episode end leads to another value."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.loops.environments import JaxEnv, JaxStep

# state, action -> next state, reward, terminated. State 2 loops until the time limit, which truncates.
NEXT = np.array([[0, 1], [1, 2], [2, 2]])
REWARD = np.array([[0.5, 0.0], [1.0, 0.2], [0.3, 0.3]], np.float32)
TERMINATED = np.array([[True, False], [True, False], [False, False]])
TIME_LIMIT = 6


def probe() -> JaxEnv:
    def observe(state):
        return jax.nn.one_hot(state[0], 3)

    def reset(key):
        state = (jnp.int32(0), jnp.int32(0))
        return observe(state), state

    def step(key, state, action):
        place, time = state
        after = (jnp.asarray(NEXT)[place, action], time + 1)
        terminated = jnp.asarray(TERMINATED)[place, action]
        return JaxStep(observe(after), after, jnp.asarray(REWARD)[place, action], terminated, time + 1 >= TIME_LIMIT)

    spaces = gym.spaces.Box(0.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2)
    return JaxEnv("probe", reset, step, *spaces, max_episode_steps=TIME_LIMIT)


def true_values(gamma: float) -> np.ndarray:
    """Q* of the task itself, by value iteration on the tables: the time limit is no part of it."""
    values = np.zeros((3, 2))
    for _ in range(1_000):
        values = REWARD + gamma * np.where(TERMINATED, 0.0, values.max(axis=1)[NEXT])
    return values


def aim_for_ever() -> JaxEnv:
    """The best action is 0.5 and pays 1; nothing ends but by the time limit, so that its value is 1 / (1 - gamma)."""

    def reset(key):
        return jnp.zeros(1), jnp.int32(0)

    def step(key, time, action):
        reward = 1.0 - jnp.abs(action[0] - 0.5)
        return JaxStep(jnp.zeros(1), time + 1, reward, jnp.bool_(False), time + 1 >= 2)

    spaces = gym.spaces.Box(-1.0, 1.0, (1,), np.float32), gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    return JaxEnv("aim for ever", reset, step, *spaces, max_episode_steps=2)


class ScriptedEnv(gym.Env):
    """Shows (episode, time), notes the actions it was given, and ends episodes by a script of lengths."""

    def __init__(self, lengths=(3, 5, 2), truncates=True):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(4)
        self.lengths, self.truncates = lengths, truncates
        self.episode, self.time = -1, 0
        self.given = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action):
        self.given.append(int(action))
        self.time += 1
        ends = self.time >= self.lengths[self.episode % len(self.lengths)]
        return self._obs(), float(self.time), ends and not self.truncates, ends and self.truncates, {}

    def _obs(self):
        return np.array([self.episode, self.time], np.float32)


class Halves(gym.Env):
    """Shows one bright half, drawn anew at each step; its side is the action that goes on, the other ends the game.

    Going on is worth 3, which clipping makes 1; so without the time limit, which truncates, the value of the right
    action is 1 / (1 - gamma) for a learner that clips, and of the wrong one 0.
    """

    observation_space = gym.spaces.Box(0, 255, (12, 12), np.uint8)
    action_space = gym.spaces.Discrete(2)
    reward = 3.0

    def __init__(self, time_limit: int = 4):
        self.time_limit = time_limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._image(), {}

    def step(self, action):
        is_right = action == self.side
        self.time += 1
        image = self._image()
        return image, self.reward * is_right, not is_right, self.time >= self.time_limit, {}

    def _image(self):
        self.side = int(self.np_random.integers(2))
        image = np.zeros((12, 12), np.uint8)
        image[:, 6 * self.side : 6 * self.side + 6] = 200
        return image
