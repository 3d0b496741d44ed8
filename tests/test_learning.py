"""The long checks: that agents learn what they should. Run with `make test-slow`."""

import pytest

from paramnoise.figures.chain_figure import CHAIN, ChainScale
from paramnoise.figures.pieces import SilentLine
from paramnoise.runs.config import make_config
from paramnoise.runs.run import run


@pytest.mark.slow
@pytest.mark.parametrize("exploration", ["parameter", "epsilon-greedy"])
def test_dqn_learns_to_balance_the_pole(tmp_path, exploration):
    summary = run(make_config("dqn", "CartPole-v1", exploration=exploration, seed=0), tmp_path / "run")
    assert summary["best_eval_return_mean"] >= 400


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "exploration"), [("td3", "parameter"), ("sac", "none"), ("sac", "parameter")])
def test_td3_and_sac_learn_to_swing_a_pendulum_up(tmp_path, agent, exploration):
    config = make_config(agent, "Pendulum-v1", exploration=exploration, steps=10_000, seed=0)
    assert run(config, tmp_path / "run")["best_eval_return_mean"] >= -200


@pytest.mark.slow
def test_parameter_noise_solves_a_chain_that_epsilon_greedy_does_not(tmp_path):
    methods = [method for method in CHAIN.methods if method.exploration != "bootstrap"]
    solved = {}
    for cell in CHAIN.grid(ChainScale(lengths=(70,), seeds=3, episodes=2_000), methods, tmp_path):
        assert cell.train(SilentLine())
        solved[cell.method.exploration] = sum(outcome.solved for outcome in cell.outcomes())
    assert solved["parameter"] == 3
    assert solved["epsilon-greedy"] <= 1
