"""The command line from Python: each call is what `paramnoise` with these words does in a shell.

    python examples/command_line.py [STEPS]

All is kept below runs/.
"""

import sys
import time

from paramnoise.cli import main

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
RUN = f"runs/example-{time.strftime('%Y%m%d-%H%M%S')}"  # without --run-dir it is runs/AGENT/ENV/EXPLORATION/seed-SEED


def paramnoise(*words: object) -> None:
    """Runs a command; it returns 0, or after one line about what is wrong, another number."""
    print("\n$ paramnoise", *words)
    if status := main([str(word) for word in words]):
        sys.exit(status)


paramnoise("envs", "--search", "cartpole")
learning = ("--learning-starts", 50, "--eval-every", STEPS, "--eval-episodes", 5)
paramnoise(
    "train", "dqn", "--env", "CartPole-v1", "--exploration", "parameter", *learning, "--steps", STEPS, "--run-dir", RUN
)
paramnoise("resume", RUN, "--steps", 2 * STEPS)  # all else as it was
paramnoise("evaluate", RUN, "--episodes", 5)
paramnoise("evaluate", f"{RUN}/best", "--episodes", 5)
paramnoise("plot", RUN, "--out", f"{RUN}/curves.png")  # returns, and below them sigma and distance
