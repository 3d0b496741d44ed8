"""Types: mypy --strict and pyright accept this script, and would refuse a misspelt keyword in it.

python examples/typed.py [STEPS]
mypy --strict examples/typed.py
"""

import sys
from collections.abc import Sequence

import numpy as np

import paramnoise as pn


class Steps(pn.Callback):
    """Remembers at which steps the agent was evaluated."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_evaluation(self, agent: pn.Agent, row: dict[str, float]) -> None:
        """Takes one down; None does not stop the learning."""
        self.seen.append(row["step"])


def train(exploration: pn.Exploration | str, steps: int, *, callback: pn.Callback, seed: int = 0) -> pn.DQN:
    """An agent that has learned; `learning_start=50` would be an error to the checker, as it is at run time."""
    agent = pn.DQN("CartPole-v1", exploration=exploration, learning_starts=50, seed=seed)
    return agent.learn(steps, callback=callback, eval_episodes=5, progress=False)


def returns(agents: Sequence[pn.Agent]) -> list[tuple[float, ...]]:
    """The returns of noise-free episodes."""
    return [agent.evaluate(episodes=5).returns for agent in agents]


def main(steps: int) -> None:
    """Trains, evaluates and predicts."""
    evaluated = Steps()
    agent = train("parameter", steps, callback=evaluated)
    action: np.ndarray = agent.predict(np.zeros(4, np.float32))[0]
    print(evaluated.seen, returns([agent]), int(action))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
