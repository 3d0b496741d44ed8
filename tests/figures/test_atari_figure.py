"""The Atari figure as data: which runs, which of them train together, and what of them is on disk."""

import dataclasses
import math

import pytest
from handmade_runs import TINY, finish, groups, leave, row

from paramnoise.envs.atari_games import GAMES
from paramnoise.figures import atari_figure, seed_groups
from paramnoise.figures.atari_figure import ATARI, ORDER, AtariScale
from paramnoise.figures.atari_results import Score
from paramnoise.figures.atari_runs import AtariRun
from paramnoise.figures.base import FIGURES
from paramnoise.figures.pieces import Progress
from paramnoise.figures.seed_groups import SeedGroup
from paramnoise.validation import UsageError


def asked(group: SeedGroup, steps: int) -> SeedGroup:
    longer = [run._replace(config=dataclasses.replace(run.config, steps=steps)) for run in group.runs]
    return SeedGroup(tuple(longer))


def seeds_of(parts: list[SeedGroup]) -> list[list[int]]:
    return [[run.config.seed for run in part.runs] for part in parts]


def test_the_paper_has_21_games_three_methods_and_three_seeds(tmp_path):
    assert sorted(ORDER) == sorted(GAMES)
    paper = groups(tmp_path, ATARI.scales["paper"])
    assert (len(paper), {len(group.runs) for group in paper}) == (63, {3})
    assert {group.config.steps for group in paper} == {10_000_000}
    assert {run.env for run in (group.config for group in groups(tmp_path, ATARI.scales["small"]))} == {
        "Freeway",
        "Enduro",
        "Pong",
    }


def test_the_runs_of_small_are_beginnings_of_those_of_paper(tmp_path):
    small, paper = groups(tmp_path, ATARI.scales["small"]), groups(tmp_path, ATARI.scales["paper"])
    assert [asked(group, 10_000_000) for group in small] == paper[: len(small)]


def test_the_methods_differ_in_exploration_and_heads_and_have_directories_of_their_own(tmp_path):
    made = [
        (run.config.exploration.kind, run.config.agent.policy_head) for run, _ in (g.runs for g in groups(tmp_path))
    ]
    assert made == [("parameter", True), ("epsilon-greedy", False), ("epsilon-greedy", True)]
    assert [group.runs[1].directory.path for group in groups(tmp_path)] == [
        tmp_path / "atari/Pong" / method / "seed-1"
        for method in ("parameter", "epsilon-greedy", "epsilon-greedy-two-heads")
    ]
    assert [method.name for method in ATARI.methods] == ["parameter", "epsilon-greedy", "epsilon-greedy-two-heads"]


def test_ablations_differ_from_the_run_of_the_paper_s_figure_in_one_setting_each():
    figure = FIGURES["ablations-atari"]
    large, small, renewed = (method.config("Pong", seed=0, steps=9) for method in figure.methods)
    assert large == ATARI.methods[0].config("Pong", seed=0, steps=9)
    assert small == dataclasses.replace(large, exploration=dataclasses.replace(large.exploration, epsilon_start=0.1))
    assert renewed == dataclasses.replace(large, exploration=dataclasses.replace(large.exploration, max_age=1_000))
    deltas = [[float(each.exploration.threshold(None, 6, step)) for step in (0, 1_000_000)] for each in (large, small)]
    last = -math.log(1 - 0.1 + 0.1 / 6)
    assert deltas == [pytest.approx([-math.log(1 / 6), last]), pytest.approx([last, last])]


def test_settings_are_the_presets_unless_the_scale_has_its_own(tmp_path):
    paper = groups(tmp_path, ATARI.scales["paper"])[0].config
    assert (paper.agent.learning_starts, paper.agent.buffer_size, paper.eval_episodes) == (50_000, 1_000_000, 10)
    own = AtariScale(envs=("Pong",), seeds=1, steps=9, num_envs=3, log_every=7, agent={"learning_starts": 5})
    config = groups(tmp_path, own)[0].config
    assert (config.agent.learning_starts, config.num_envs, config.log_every) == (5, 3, 7)
    assert config.agent.batch_size == paper.agent.batch_size


def test_a_curve_is_the_exploring_policys_and_scores_are_the_evaluations(tmp_path):
    group = groups(tmp_path)[2]
    finish(group, 5.0)
    run = group.runs[1]
    assert [point[:5] for point in run.curve()] == [
        ("Pong", "dqn", "epsilon-greedy-two-heads", 1, step) for step in (10, 20, 30, 40)
    ]
    values = [point.value for point in run.curve()]
    assert math.isnan(values[0])
    assert math.isnan(values[2])
    assert values[1::2] == [6.0, 7.0]
    assert run.scores() == [
        Score("Pong", "epsilon-greedy-two-heads", 1, 20, 3, 16.0, 17.0),
        Score("Pong", "epsilon-greedy-two-heads", 1, 40, 3, 26.0, 27.0),
    ]


def test_rows_are_those_that_every_run_of_the_figure_has(tmp_path):
    run = groups(tmp_path)[0].runs[0]
    # It ended at 26 once, and went on; 60 is more than is asked for.
    rows = [row(10, 1.0), row(20, 2.0, 12.0), row(26, 3.0, 13.0), row(30, 4.0), row(40, 5.0, 15.0), row(60, 6.0, 16.0)]
    leave(run, rows)
    assert [point.step for point in run.curve()] == [10, 20, 30, 40]
    assert [score.step for score in run.scores()] == [20, 40]
    assert [score.step for score in asked(SeedGroup((run,)), 26).runs[0].scores()] == [20, 26]


def test_what_is_left_of_a_group_trains_together(tmp_path):
    group = groups(tmp_path)[0]
    assert seeds_of(group.unfinished()) == [[0, 1]]
    finish(group, 0.0)
    assert group.unfinished() == []
    assert asked(group, 20).unfinished() == []
    assert seeds_of(asked(group, 80).unfinished()) == [[0, 1]]


def test_seeds_that_join_later_train_by_themselves(tmp_path):
    finish(groups(tmp_path)[0], 0.0)
    more = groups(tmp_path, dataclasses.replace(TINY, seeds=4))[0]
    assert seeds_of(more.unfinished()) == [[2, 3]]
    assert more.unfinished()[0].name == "Pong/parameter (seeds 2, 3)"
    finish(SeedGroup(more.runs[2:]), 0.0)
    assert seeds_of(asked(more, 80).unfinished()) == [[0, 1, 2, 3]]


def test_a_seed_of_a_group_goes_on_without_the_others(tmp_path):
    finish(groups(tmp_path)[0], 0.0)
    fewer = groups(tmp_path, dataclasses.replace(TINY, seeds=1))[0]
    assert fewer.unfinished() == []
    assert seeds_of(asked(fewer, 80).unfinished()) == [[0]]


def test_a_run_that_was_killed_before_its_first_checkpoint_is_apart_from_those_not_begun(tmp_path):
    group = groups(tmp_path)[0]
    group.runs[1].directory.write_config(group.runs[1].config)
    assert seeds_of(group.unfinished()) == [[0], [1]]


@pytest.mark.parametrize("lost", ["summary.json", "checkpoint/checkpoint.json"])
def test_of_a_group_that_was_killed_at_its_end_only_those_go_on_that_have_not_finished(tmp_path, lost):
    group = groups(tmp_path)[0]
    finish(group, 0.0)
    (group.runs[0].directory.path / "summary.json").unlink()
    (group.runs[0].directory.path / lost).unlink(missing_ok=True)
    assert seeds_of(group.unfinished()) == [[0]]


def test_seeds_that_were_saved_at_different_steps_go_on_apart(tmp_path):
    group = groups(tmp_path, dataclasses.replace(TINY, seeds=3))[0]
    for run, steps in zip(group.runs, (10, 20, 10), strict=True):
        leave(run, [row(steps, 0.0)], status="interrupted")
    assert seeds_of(group.unfinished()) == [[0, 2], [1]]


@pytest.mark.parametrize("text", ["{", "{}", '{"file": "none.npz"}', '{"file": "checkpoint.json"}'])
def test_a_damaged_checkpoint_is_left_for_training_to_complain_of(tmp_path, text):
    group = groups(tmp_path)[0]
    group.runs[0].directory.write_config(group.runs[0].config)
    group.runs[0].directory.checkpoint.mkdir()
    (group.runs[0].directory.checkpoint / "checkpoint.json").write_text(text)
    assert group.runs[0].saved_at() == 0
    assert seeds_of(group.unfinished()) == [[0], [1]]


def test_a_group_that_was_begun_comes_first(tmp_path):
    parameter, greedy, two_heads = groups(tmp_path)
    finish(greedy, 0.0)
    for run in two_heads.runs:
        leave(run, [row(20, 1.0, 2.0)], status="interrupted")
    assert [part.name for part in seed_groups.in_order([parameter, greedy, two_heads])] == [
        "Pong/epsilon-greedy-two-heads (seeds 0, 1)",
        "Pong/parameter (seeds 0, 1)",
    ]


def test_a_groups_summary_is_the_median_score_and_the_least_steps(tmp_path):
    group = groups(tmp_path, dataclasses.replace(TINY, seeds=3))[0]
    assert group.summary() is None
    for run, (steps, score) in zip(group.runs, [(40, 5.0), (40, 9.0), (20, 1.0)], strict=True):
        leave(run, [row(steps, 0.0, score)])
    assert group.summary() == {"steps": 20, "final_eval_return_mean": 5.0}
    assert group.steps_done() == 20


def test_a_game_is_found_by_its_name_or_id():
    pytest.importorskip("ale_py")
    assert [atari_figure.find_game(name) for name in ORDER] == list(ORDER)
    assert atari_figure.find_game("ALE/BankHeist-v5") == "BankHeist"
    assert atari_figure.find_game("asterix") == "Asterix"
    with pytest.raises(UsageError, match="did you mean Pong"):
        atari_figure.find_game("Pongg")


class Heard:
    """A worker's line that keeps what is said, and asks to stop in the end."""

    def __init__(self):
        self.reported: list[Progress] = []

    def should_stop(self) -> bool:
        return len(self.reported) > 2

    def report(self, progress) -> None:
        self.reported.append(progress())


@pytest.mark.parametrize("save_replay", [True, False])
def test_a_worker_trains_a_group_and_tells_the_median_of_its_last_evaluation(tmp_path, monkeypatch, save_replay):
    group = groups(tmp_path, dataclasses.replace(TINY, save_replay=save_replay))[0]
    given = {}

    def run_together(configs, paths, *, watcher, **settings):
        given.update(settings, configs=configs, paths=paths)
        watcher.on_step(10)
        for score in (1.0, 3.0, math.nan, math.nan):
            watcher.on_row({"eval_return_mean": score})
        watcher.on_step(20)
        for score in (5.0, 9.0):
            watcher.on_row({"eval_return_mean": score})
        assert not watcher.should_stop()
        watcher.on_step(30)
        assert watcher.should_stop()
        return [{"status": "finished"}, {"status": "interrupted"}]

    monkeypatch.setattr(seed_groups, "run_together", run_together)
    line = Heard()
    assert not group.train(line)
    assert [(progress.step, progress.value) for progress in line.reported] == [(10, None), (20, 2.0), (30, 7.0)]
    assert line.reported[2].steps_per_second > 0
    assert given["configs"] == [run.config for run in group.runs]
    assert given["paths"] == [run.directory.path for run in group.runs]
    assert (given["resume"], given["checkpoint_seconds"]) == (False, 600.0 if save_replay else 60.0)
    assert isinstance(group.runs[0], AtariRun)
