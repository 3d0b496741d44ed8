"""Infinities and absurd sizes are refused with one line, which says what memory they would take."""

import pytest

import paramnoise as pn
from paramnoise.cli import main
from paramnoise.validation import in_units, memory_of_machine

DDPG = "train ddpg --env Pendulum-v1 --run-dir never"
DQN = "train dqn --env CartPole-v1 --run-dir never"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (f"{DDPG} --exploration parameter delta:1e309", "delta must be a finite number, not inf"),
        (f"{DDPG} --exploration gaussian sigma:1e400", "sigma must be a finite number, not inf"),
        (f"{DQN} --learning-rate inf", "learning_rate must be a finite number, not inf"),
        (f"{DQN} --gamma nan", "gamma must be"),
        (f"{DQN} --checkpoint-seconds nan", "checkpoint_seconds must be"),
        (f"{DQN} --eval-every 100000000000000000000", "eval_every must be at most"),
        (f"{DQN} --steps 3000000000", "steps must be at most 2,147,483,647, not 3000000000"),
        (f"{DQN} --num-envs 1000000", "num_envs must be at most 65,536, not 1000000"),
        (f"{DQN} --eval-episodes 1000000", "eval_episodes must be at most"),
        (f"{DDPG} --buffer-size 10000000000000", "of replay, would take"),
        (f"{DQN} --hidden-sizes 1000000 1000000", "TiB of memory, and there are"),
        ("train trpo --env Pendulum-v1 --run-dir never --batch-size 100000000000000", "a batch of 100,000,000,000,000"),
        ("train es --env Pendulum-v1 --run-dir never --table-size 100000000000000", "with its table of noise, would"),
        ("train es --env Pendulum-v1 --run-dir never --pairs 100000000000", "a generation of 100,000,000,000 pairs"),
    ],
)
def test_an_absurd_number_is_refused_before_anything_is_taken(words, named, capsys):
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line


def test_an_infinity_in_an_exploration_of_ones_own_is_refused():
    with pytest.raises(pn.UsageError, match="delta must be a finite number, not inf"):
        pn.DQN("CartPole-v1", exploration=pn.ParameterNoise(delta=float("inf")))


def test_memory_is_told_in_units():
    assert in_units(12) == "12 bytes"
    assert in_units(3 * 2**29) == "1.5 GiB"
    assert in_units(2**60) == "1,024.0 PiB"
    assert memory_of_machine() > 2**28
