"""RL-Zoo: the example's hyperparameter file trains, by RL-Zoo's own command."""

import subprocess
import sys
from pathlib import Path

import pytest
import stable_baselines3

pytestmark = pytest.mark.sb3

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "rl_zoo.yml"


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [(stable_baselines3.TD3, "paramnoise/SparseMountainCar-v0"), (stable_baselines3.DQN, "CartPole-v1")],
)
def test_the_example_of_a_hyperparameter_file_trains_and_saves_its_noise(algorithm: type, env: str, tmp_path: Path):
    words = [
        "--algo",
        algorithm.__name__.lower(),
        "--env",
        env,
        "--conf-file",
        str(EXAMPLE),
        "-n",
        "1100",
        "--seed",
        "1",
    ]
    words += [
        "--gym-packages",
        "paramnoise",
        "--eval-freq",
        "-1",
        "-f",
        str(tmp_path),
        "--device",
        "cpu",
        "--num-threads",
        "1",
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "rl_zoo3.train", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (saved,) = [path for path in tmp_path.rglob("*.zip") if path.stem == env.replace("/", "-")]
    assert algorithm.load(saved).parameter_noise.adaptations == 1100 // 50
