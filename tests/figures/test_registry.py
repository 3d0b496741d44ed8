"""One way to register and run a figure: what all figures share, and a figure from outside the package."""

import dataclasses

import pytest

from paramnoise.cli import main
from paramnoise.figures.base import FIGURES, Arguments, Method, register_figure
from paramnoise.figures.curves import CurveArguments, CurveFigure, CurveScale
from paramnoise.validation import UsageError

PAPER_S = ("atari", "chain", "ddpg-dense", "ddpg-sparse", "ddpg-sparse-l2", "es", "trpo-dense", "trpo-sparse")
RIVALS = tuple(f"rivals{part}" for part in ("", "-atari", "-chain", "-ddpg", "-dqn", "-ppo", "-sac", "-td3", "-trpo"))
OURS = (*PAPER_S, "ablations", "ablations-atari", "ablations-chain", "time-limits", *RIVALS)

OTHER = Method("trpo", "parameter", "B")


@pytest.fixture
def mine(monkeypatch) -> CurveFigure:
    """A figure of one's own, of two runs of 40 steps."""
    monkeypatch.setitem(FIGURES, "mine", None)  # so that it is forgotten afterwards
    return register_figure(
        CurveFigure(
            name="mine",
            methods=(Method("dqn", "none", "Greedy"), Method("dqn", "epsilon-greedy", "Epsilon-greedy")),
            scales={"small": CurveScale(envs=("CartPole",), seeds=1, steps=40, eval_every=20, eval_episodes=1)},
        )
    )


def test_the_paper_s_figures_are_registered_and_say_where_the_paper_shows_them():
    assert set(OURS) <= set(FIGURES)
    assert {name for name in OURS if FIGURES[name].paper} == set(PAPER_S)
    assert all(FIGURES[name].help.startswith("Reproduce ") for name in OURS)


@pytest.mark.parametrize("name", OURS)
def test_every_figure_has_the_options_that_all_share_and_no_two_meanings_for_a_scale(name):
    figure = FIGURES[name]
    shared = {field.name for field in dataclasses.fields(Arguments)}
    own = {field.name for field in dataclasses.fields(figure.arguments)}
    assert shared == {"scale", "explorations", "seeds", "workers", "engine", "ray_address", "out"}
    assert shared < own
    how = {"side_by_side"}  # how it is run, which no scale decides
    assert own - shared - how <= {field.name for scale in figure.scales.values() for field in dataclasses.fields(scale)}
    assert set(figure.scales) == {"smoke", "small", "paper"}


def test_a_figure_of_ones_own_is_run_and_drawn_by_name(mine, tmp_path, capsys):
    assert main(f"reproduce mine --workers 1 --out {tmp_path}".split()) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("mine: 2 runs, 0 on disk, 1 worker\n[1/2] CartPole-v1/none/seed-0: return ")
    assert (tmp_path / "mine/CartPole-v1/epsilon-greedy/seed-0/summary.json").exists()
    assert len((tmp_path / "mine/results.csv").read_text().splitlines()) == 1 + 4
    (tmp_path / "mine/mine.png").unlink()
    assert main(f"plot mine --out {tmp_path}".split()) == 0
    assert (tmp_path / "mine/mine.png").exists()


def test_a_method_s_name_is_its_exploration_and_variant_or_its_agent_where_agents_are_compared():
    plain, variant = Method("ddpg", "parameter", "A"), Method("trpo", "parameter", "B", variant="delta-0.1")
    assert (plain.name, variant.name) == ("parameter", "parameter-delta-0.1")
    names = [
        list(CurveFigure(name="x", methods=pair, scales={}).by_name) for pair in ((plain, variant), (plain, OTHER))
    ]
    assert names == [["parameter", "parameter-delta-0.1"], ["ddpg", "trpo"]]


def test_two_methods_of_one_name_are_refused():
    with pytest.raises(UsageError, match="two methods of the figure x have one name: give one of them a variant"):
        CurveFigure(name="x", methods=(OTHER, OTHER), scales={})


def test_a_method_s_settings_go_over_the_preset_s_and_the_scale_s():
    method = Method(
        "ddpg",
        "parameter",
        "A",
        agent={"layer_norm": False},
        exploration_settings={"sigma": 0.1},
        run={"num_envs": 8, "terminal_time_limits": True},
    )
    config = method.config("HalfCheetah-v4", agent={"tau": 0.5, "layer_norm": True}, num_envs=2, seed=3)
    assert (config.agent.layer_norm, config.agent.tau) == (False, 0.5)
    assert (config.exploration.sigma, config.exploration.delta) == (0.1, 0.2)
    assert (config.num_envs, config.seed, config.terminal_time_limits) == (8, 3, True)
    assert {method: 1}[dataclasses.replace(method)] == 1


def test_a_setting_that_a_method_s_agent_does_not_have_is_refused():
    with pytest.raises(UsageError, match="trpo has no setting 'tau'"):
        dataclasses.replace(OTHER, agent={"tau": 0.1}).config("Hopper-v4")


def test_a_scale_that_a_figure_does_not_have_is_refused(mine, tmp_path):
    with pytest.raises(UsageError, match="unknown scale 'paper': choose from small"):
        mine.reproduce(CurveArguments(scale="paper", out=tmp_path))
