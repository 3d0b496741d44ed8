"""Follow the learning: callbacks, the history, a run directory, and the best agent that it keeps.

    python examples/follow_learning.py [STEPS]

Run it again, and the agent goes on in its directory.
"""

import sys
from pathlib import Path

import paramnoise as pn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
RUN = Path("runs/followed")


class StopAfterGoodEpisodes(pn.Callback):
    """Stops the learning after several good episodes of training; there is on_step(agent, step), too."""

    def __init__(self, wanted: float, episodes: int):
        self.wanted, self.missing = wanted, episodes

    def on_episode_end(self, agent, episode):
        """Counts; whoever returns False stops the learning."""
        self.missing -= episode.episode_return >= self.wanted
        return self.missing > 0


def report(agent, row):
    """A function hears of evaluations; row is what progress.csv gets."""
    print(f"step {row['step']}: return {row['eval_return_mean']:.1f}, sigma {row['sigma']:.4f}")


agent = pn.load(RUN) if RUN.exists() else pn.DQN("CartPole-v1", exploration="parameter", learning_starts=50, seed=0)
watchers = [StopAfterGoodEpisodes(475, episodes=20), report]
agent.learn(STEPS, callback=watchers, log_dir=RUN, eval_every=max(1, STEPS // 10), eval_episodes=5, progress=False)

print(f"{len(agent.history)} rows, as in {RUN / 'progress.csv'}: {', '.join(agent.history[-1])}")
best = pn.load(RUN / "best")  # without its experience: it predicts and evaluates, and does not learn on
print(f"best at step {best.step:,}: {best.evaluate(episodes=5)}")
