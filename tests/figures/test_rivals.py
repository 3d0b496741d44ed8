"""The comparison of explorations: its parts as data, how they are asked for, and the table that they make."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from paramnoise.agents.base import AGENTS
from paramnoise.cli import main
from paramnoise.envs.continuous import BOUNDS, DENSE, SPARSE
from paramnoise.figures import chain_results, curve_results
from paramnoise.figures.base import FIGURES, Figure
from paramnoise.figures.chain_results import Outcome
from paramnoise.figures.colours import looks
from paramnoise.figures.curve_results import Point
from paramnoise.figures.rivals import KINDS, RIVALS, points_of
from paramnoise.figures.standings import Group, Standing, cells, scores_of_whole_runs, standings

sys.path.append(str(Path(__file__).parent.parent.parent / "experiments"))

import rivals as page_of_rivals

PARTS = tuple(RIVALS.by_part)


def scored(env: str, kind: str, scores: list[float], step: int = 500_000, agent: str = "td3") -> list[Point]:
    """A run for each score, between the bounds of its task."""
    low, high, _ = BOUNDS[env]
    return [Point(env, agent, kind, seed, step, low + score * (high - low)) for seed, score in enumerate(scores)]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Results of TD3 on two sparse tasks, and of the chain."""
    points = [
        *scored(SPARSE[2], "parameter", [0.8, 0.9, 1.0]),
        *scored(SPARSE[2], "pink", [0.1, 0.85, 0.2]),
        *scored(SPARSE[4], "parameter", [1.0, 1.0, 1.0]),
        *scored(SPARSE[4], "pink", [0.0, 0.0, 0.0]),
    ]
    curve_results.write_results(points, tmp_path / "rivals-td3/results.csv")
    solved = [Outcome(20, "dqn", "parameter", seed, 500, True) for seed in (0, 1)]
    unsolved = [Outcome(20, "dqn", "epsilon-greedy", seed, 2_000, False) for seed in (0, 1)]
    chain_results.write_results(solved + unsolved, tmp_path / "rivals-chain/results.csv")
    return tmp_path


@pytest.mark.parametrize(
    "part", [part for part in RIVALS.parts if part.kind != "discrete"], ids=lambda p: p.figure.name
)
def test_a_continuous_learner_is_tried_with_every_exploration_that_fits_it(part):
    (agent,) = {method.algorithm for method in part.figure.methods}
    assert set(part.figure.by_name) == set(AGENTS[agent].explorations)
    paper = part.figure.scales["paper"]
    assert (paper.seeds, paper.steps) == (5, 500_000)
    assert set(paper.envs) == {env for group in part.groups for env in group.tasks}
    assert set(paper.envs) == ({*SPARSE} if part.kind == "on-policy" else {*DENSE[:3], *SPARSE})


@pytest.mark.parametrize("name", [name for name in PARTS if name not in ("rivals-chain", "rivals-atari")])
def test_networks_are_small_and_the_learner_is_the_same_whatever_explores(name, tmp_path):
    figure = FIGURES[name]
    for run in figure.grid(figure.scales["smoke"], figure.methods, tmp_path):
        agent = run.config.agent
        assert agent.hidden_sizes == (64, 64)
        if run.config.algorithm not in ("ppo", "trpo"):
            assert agent.batch_size == 128
    if name == "rivals-dqn":
        agents = [run.config.agent for run in figure.grid(figure.scales["smoke"], figure.methods, tmp_path)]
        assert len({(each.learning_rate, each.train_every, each.target_every, each.gamma) for each in agents}) == 1
        plain = [each for each in agents if hasattr(each, "double_q")]
        extensions = {(each.double_q, each.dueling, each.prioritized, each.n_step) for each in plain}
        assert extensions == {(False, False, False, 1)}


def test_no_rival_is_held_back_by_a_default(tmp_path):
    for name, every in (("rivals-td3", 8), ("rivals-sac", 8), ("rivals-ppo", 4)):
        assert FIGURES[name].by_name["gsde"].exploration_settings == {"resample_every": every}
    figure = FIGURES["rivals-dqn"]
    runs = figure.grid(figure.scales["paper"], figure.methods, tmp_path)
    followed = [
        run.config.exploration for run in runs if run.config.exploration.kind in ("parameter", "epsilon-greedy")
    ]
    assert {(each.epsilon_end, each.anneal_steps) for each in followed} == {(0.05, 50_000)}


def test_the_explorations_of_a_part_have_a_colour_each():
    for part in RIVALS.parts:
        drawn = looks(part.figure.methods)
        assert len(set(drawn)) == len(drawn)
        plain = [look.colour for look, method in zip(drawn, part.figure.methods, strict=True) if not method.variant]
        assert len(set(plain)) == len(plain)


def test_a_standing_is_the_mean_over_the_tasks_of_its_group_and_the_chance_that_parameter_noise_is_better():
    points = [
        *scored(SPARSE[2], "parameter", [0.8, 0.9, 1.0]),
        *scored(SPARSE[2], "pink", [0.1, 0.85, 0.2]),
        *scored(SPARSE[4], "parameter", [1.0, 1.0, 1.0]),
        *scored(SPARSE[4], "pink", [0.0, 0.0, 0.0]),
        *scored("Hopper-v4", "parameter", [0.4]),
    ]
    groups = [Group("sparse", SPARSE), Group("dense", DENSE[:3])]
    parameter, pink, dense = standings("rivals-td3", points, groups)
    assert parameter.iqm == pytest.approx(
        np.mean([0.9, 1.0, 1.0, 1.0])
    )  # of six scores, without the least and the most
    assert pink.iqm == pytest.approx(np.mean([0.0, 0.0, 0.1, 0.2]))
    assert (pink.tasks, pink.of, pink.seeds, pink.step) == (2, 5, 3, 500_000)
    assert pink.better == pytest.approx((8 / 9 + 1) / 2)
    assert pink.low <= pink.iqm <= pink.high
    assert pink.better_low <= pink.better <= pink.better_high
    assert np.isnan(parameter.better)
    assert (dense.group, dense.exploration, dense.iqm) == ("dense", "parameter", pytest.approx(0.4))
    assert np.isnan(dense.low)  # a single seed


def test_a_run_s_score_is_the_mean_of_its_last_five_evaluations_and_one_that_stopped_has_none():
    curve = [Point("CartPole-v1", "dqn", "noisy", 0, step, float(step)) for step in range(1, 8)]
    stopped = [Point("CartPole-v1", "dqn", "noisy", 1, step, 0.0) for step in range(1, 7)]
    single = [Point("CartPole-v1", "dqn", "bootstrap", 0, 7, 2.0)]
    task = scores_of_whole_runs([*curve, *stopped, *single])["CartPole-v1"]
    assert task.step == 7
    assert {name: scores.tolist() for name, scores in task.scores.items()} == {"noisy": [5.0], "bootstrap": [2.0]}


def verdicts(others: dict[str, list[float]], tasks: tuple[str, ...] = SPARSE[:3]) -> dict[str, str]:
    """Of explorations with these scores on each task, beside parameter noise with 0.5 to 0.9."""
    scores = {"parameter": [0.5, 0.6, 0.7, 0.8, 0.9], **others}
    points = [point for env in tasks for name, own in scores.items() for point in scored(env, name, own)]
    rows = standings("rivals-td3", points, [Group("sparse", SPARSE[:3])])
    return {row.exploration: row.verdict for row in rows}


def test_a_verdict_needs_a_p_value_below_a_twentieth_every_task_and_five_seeds():
    low, high, alike = [0.0, 0.1, 0.2, 0.3, 0.4], [1.0] * 5, [0.55, 0.65, 0.68, 0.82, 0.9]
    assert verdicts({"pink": low, "ou": high, "none": alike}) == {
        "parameter": "",
        "pink": "parameter",
        "ou": "ou",
        "none": "not told apart",
    }
    assert verdicts({"pink": low}, SPARSE[:2])["pink"] == ""  # a task of the group is missing
    assert verdicts({"pink": low[:4]})["pink"] == ""  # a seed is


@pytest.mark.parametrize(
    ("p", "shown"), [(0.0002, "parameter (p < 0.001)"), (0.0234, "parameter (p = 0.023)"), (np.nan, "")]
)
def test_the_table_shows_the_verdict_with_its_p_value(p, shown):
    row = Standing("rivals-td3", "sparse", "td3", "pink", 5, 5, 5, 500, 0.5, 0.4, 0.6, 0.9, 0.8, 1.0, p)
    assert cells(row, "TD3")[5] == shown


def test_a_chain_is_scored_by_the_share_of_its_budget_that_is_left(out):
    points = points_of(FIGURES["rivals-chain"], out / "rivals-chain")
    assert [point.value for point in points] == [0.75, 0.75, 0.0, 0.0]
    assert {(point.env, point.step) for point in points} == {("Chain-20", 2_000)}


def test_the_table_is_made_of_the_parts_results_alone(out, capsys):
    assert main(["plot", "rivals", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "sparse (2 of 5 run)" in printed
    assert (out / "rivals/rivals.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((out / "rivals/summary.csv").read_text().splitlines()))
    assert [(row["figure"], row["exploration"]) for row in rows] == [
        ("rivals-td3", "parameter"),
        ("rivals-td3", "pink"),
        ("rivals-chain", "parameter"),
        ("rivals-chain", "epsilon-greedy"),
    ]
    assert (rows[0]["better"], rows[3]["better"], rows[3]["iqm"]) == ("", "1.0", "0.0")


def test_a_panel_says_how_many_tasks_of_its_group_are_run(out, monkeypatch):
    titles: list[str] = []
    monkeypatch.setattr(
        "paramnoise.figures.plots._save", lambda figure, _: titles.extend(axis.get_title() for axis in figure.axes)
    )
    assert main(["plot", "rivals", "--out", str(out)]) == 0
    assert titles == ["TD3, sparse (2 of 5 run)", "DQN, chain (1 of 5 run)"]


def test_a_part_that_is_not_run_says_so_in_the_page_s_table(out):
    lines = RIVALS.markdown("continuous", out).splitlines()
    assert lines[2].startswith("| DDPG | dense, sparse | none, gaussian, ou, pink, gsde, parameter | not run yet |")
    assert lines[4].startswith("| TD3 | sparse (2 of 5 run) | pink | 0.08 (")
    assert "| TD3 | sparse | gaussian | not run yet |  |  |  |" in lines  # others of its part have results
    assert "| TD3 | dense | parameter | not run yet |  |  |  |" in lines
    assert len({line.count("|") for kind in KINDS for line in RIVALS.markdown(kind, out).splitlines()}) == 1


def test_the_page_shows_the_results_that_are_kept():
    text = page_of_rivals.PAGE.read_text()
    assert page_of_rivals.page(text, page_of_rivals.RESULTS) == text
    assert all(f"<!-- {kind} -->" in text and f"<!-- /{kind} -->" in text for kind in KINDS)


def asked_of(monkeypatch, words: str, statuses: dict[str, int]) -> tuple[int, list]:
    """The status of a command, and what it asks of which figure, each of which ends with a status."""
    seen = []

    def reproduce(self: Figure, args) -> int:
        seen.append((self.name, args))
        return statuses.get(self.name, 0)

    for cls in {type(part.figure) for part in RIVALS.parts}:
        monkeypatch.setattr(cls, "reproduce", reproduce, raising=False)
    return main(["reproduce", "rivals", *words.split()]), seen


def test_all_parts_but_the_one_that_needs_a_gpu_are_run_in_turn(monkeypatch, tmp_path):
    status, seen = asked_of(monkeypatch, f"--scale smoke --seeds 2 --workers 1 --out {tmp_path}", {"rivals-td3": 1})
    assert status == 1  # some runs failed; the others are run all the same
    assert [name for name, _ in seen] == [name for name in PARTS if name != "rivals-atari"]
    assert {(args.scale, args.seeds, args.workers, args.out) for _, args in seen} == {("smoke", 2, 1, tmp_path)}
    assert all(isinstance(args, FIGURES[name].arguments) for name, args in seen)


def test_parts_and_explorations_are_chosen_by_name_and_a_stop_ends_it(monkeypatch, tmp_path):
    words = f"--parts rivals-atari rivals-td3 rivals-sac rivals-ppo --explorations pink noisy --out {tmp_path}"
    status, seen = asked_of(monkeypatch, words, {"rivals-td3": 130})
    assert status == 130
    assert [(name, args.explorations) for name, args in seen] == [
        ("rivals-atari", ("noisy",)),
        ("rivals-td3", ("pink",)),
    ]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--parts rivals-tdd3", "did you mean rivals-td3"),
        ("--explorations wander", "unknown exploration 'wander'"),
        ("--parts rivals-td3 --explorations noisy", "unknown exploration 'noisy'"),
    ],
)
def test_bad_input_is_one_line(words, named, tmp_path, capsys):
    assert main(["reproduce", "rivals", *words.split(), "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert named in printed.err


def test_without_results_there_is_nothing_to_draw(tmp_path, capsys):
    assert main(["plot", "rivals", "--out", str(tmp_path)]) == 2
    assert "no part has results" in capsys.readouterr().err


def test_its_sweep_is_that_of_all_parts(tmp_path):
    args = RIVALS.arguments(scale="smoke", parts=("rivals-trpo", "rivals-chain"), out=tmp_path)
    sweep = RIVALS.sweep(args, tmp_path, None)
    assert len(sweep.pieces) == len(sweep.todo) == 2 + 4
    assert sweep.headline == "rivals: 6 pieces of 2 parts, 6 to train"
    assert not sweep.write()
