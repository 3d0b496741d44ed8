"""Your own environment: an agent on one of it, an agent on eight as a vector, predictions for a batch.

    python examples/own_environment.py [STEPS]

docs/environments.md says what an environment may show and take.
"""

import sys

import gymnasium as gym
import numpy as np

import paramnoise as pn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000


class BallOnBeam(gym.Env):
    """A beam that turns left or right, and a ball that rolls on it: keep it in the middle."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)  # place, speed, tilt, how fast it turns
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """Places the ball."""
        super().reset(seed=seed)
        self.state, self.time = self.np_random.uniform(-0.2, 0.2, 4), 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        """The task ends when the ball falls off (terminated); a time limit only cuts the episode (truncated)."""
        _, speed, tilt, turns = self.state
        self.state = self.state + 0.1 * np.array([speed, -5 * np.sin(tilt), turns, 4 * action - 2])
        self.time += 1
        falls = bool(abs(self.state[0]) > 1 or abs(self.state[2]) > 1)
        return self.state.astype(np.float32), 1.0, falls, self.time == 200, {}


settings = {"double_q": True, "buffer_size": 10_000, "learning_starts": 50}
agent = pn.DQN(BallOnBeam, exploration=pn.ParameterNoise(epsilon_end=0.02), seed=0, **settings)
agent.learn(STEPS, eval_episodes=5)
agent.save("beam")
print("one:  ", pn.load("beam", env=BallOnBeam).evaluate(episodes=5))  # what is not known by an id is given again

vector = gym.vector.SyncVectorEnv([BallOnBeam] * 8)  # or pn.DQN(BallOnBeam, num_envs=8, ...)
together = pn.DQN(vector, exploration=pn.ParameterNoise(epsilon_end=0.02), seed=0, **settings)
together.learn(STEPS, eval_episodes=5)
print("eight:", together.evaluate(episodes=5))
seen, _ = vector.reset(seed=1)
print("actions for a batch:", together.predict(seen)[0])
