"""The chain figure: when a chain counts as solved, what is kept on disk, and what is drawn."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from paramnoise.envs.chain import optimal_return
from paramnoise.figures import chain_cells, chain_results
from paramnoise.figures.base import FIGURES
from paramnoise.figures.chain_cells import Cell
from paramnoise.figures.chain_figure import CHAIN, ChainArguments, ChainScale
from paramnoise.figures.chain_results import Median, Outcome
from paramnoise.figures.pieces import SilentLine
from paramnoise.figures.plots import plot_chain
from paramnoise.runs.config import RunConfig

PARAMETER, BOOTSTRAP, EPSILON = CHAIN.methods
BEST, POOR = optimal_return(5), 0.014


def outcome(episodes: int, solved: bool, seed: int = 0, exploration: str = "parameter", length: int = 5) -> Outcome:
    return Outcome(length, "dqn", exploration, seed, episodes, solved)


def cell(episodes: int, seeds: int = 1, out: Path = Path()) -> Cell:
    return Cell(out / "chain", 5, PARAMETER, tuple(range(seeds)), episodes)


class StopAfter(SilentLine):
    """Asks to stop once there were so many calls."""

    def __init__(self, calls: list[int], number: int):
        self.calls, self.number = calls, number

    def should_stop(self) -> bool:
        return len(self.calls) == self.number


def script_training(monkeypatch, *curves: list[float]) -> list[int]:
    """Puts evaluation returns, one list per seed, in the place of training; the list gets the episodes of each call."""
    calls = []

    class ScriptedLoop:
        def __init__(self, learner, exploration, env, *, seeds, eval_every):
            assert eval_every == env.max_episode_steps
            assert len(seeds) == len(curves)
            self.eval_every, self.done = eval_every, 0

        def run(self, evaluations: int) -> dict[str, np.ndarray]:
            calls.append(evaluations)
            episodes = np.arange(self.done, self.done + evaluations)
            self.done += evaluations
            returns = np.array([[curve[min(i, len(curve) - 1)] for curve in curves] for i in episodes])
            number = np.repeat(episodes[:, None] + 1, len(curves), axis=1)
            return {"step": number * self.eval_every, "episodes": number, "eval_return_mean": returns}

    monkeypatch.setattr(chain_cells, "CompiledLoop", ScriptedLoop)
    return calls


@pytest.mark.parametrize(
    ("returns", "episode"),
    [
        ([], None),
        ([BEST] * 99, None),
        ([BEST] * 100, 100),
        ([BEST] * 250, 100),
        ([POOR] * 7 + [BEST] * 100, 107),
        ([BEST] * 99 + [POOR] + [BEST] * 99, None),
        ([BEST] * 99 + [POOR] + [BEST] * 100, 200),
        ([BEST - 0.001] * 300, None),
        ([np.float32(BEST) - np.float32(1e-6)] * 100, 100),
    ],
)
def test_a_chain_is_solved_after_100_optimal_rollouts_in_a_row(returns, episode):
    assert chain_cells.solved_at(returns, BEST) == episode


def test_the_median_is_over_the_seeds_of_a_cell():
    seeds = [outcome(300, True), outcome(120, True, 1), outcome(200, True, 2)]
    assert chain_results.medians(seeds) == [Median(5, "parameter", 200.0, True, 3, 3)]


def test_a_cell_counts_as_unsolved_unless_most_seeds_solved_it():
    most = [outcome(150, True), outcome(2_000, False, 1), outcome(180, True, 2)]
    few = [outcome(150, True), outcome(2_000, False, 1), outcome(2_000, False, 2)]
    half = [outcome(150, True), outcome(2_000, False, 1)]
    assert chain_results.medians(most) == [Median(5, "parameter", 180.0, True, 2, 3)]
    assert chain_results.medians(few) == [Median(5, "parameter", 2_000.0, False, 1, 3)]
    assert not chain_results.medians(half)[0].solved


def test_cells_have_medians_of_their_own():
    mixed = [outcome(100, True), outcome(300, True, exploration="bootstrap"), outcome(500, True, length=10)]
    found = {(m.length, m.exploration): m.episodes for m in chain_results.medians(mixed)}
    assert found == {(5, "parameter"): 100, (5, "bootstrap"): 300, (10, "parameter"): 500}


def test_the_grid_has_every_length_and_method_the_longest_first():
    grid = CHAIN.grid(ChainScale(lengths=(5, 20, 10), seeds=2, episodes=7), CHAIN.methods, Path())
    assert [cell.length for cell in grid] == [20] * 3 + [10] * 3 + [5] * 3
    assert {(cell.length, cell.method) for cell in grid} == set(itertools.product((5, 10, 20), CHAIN.methods))
    assert all((cell.seeds, cell.episodes) == ((0, 1), 7) for cell in grid)


def test_the_paper_s_scale_is_that_of_the_figure():
    paper = CHAIN.scales["paper"]
    assert (paper.lengths, paper.episodes) == (tuple(range(5, 101, 5)), 2_000)
    seeds = {cell.method.name: len(cell.seeds) for cell in CHAIN.grid(paper, CHAIN.methods, Path())}
    assert seeds == {"parameter": 10, "bootstrap": 10, "epsilon-greedy": 5}


@pytest.mark.parametrize("seeds", [3, 12])
def test_seeds_that_are_asked_for_are_those_of_all_methods(seeds):
    scale = CHAIN.asked_scale(ChainArguments(scale="paper", seeds=seeds))
    assert {len(cell.seeds) for cell in CHAIN.grid(scale, CHAIN.methods, Path())} == {seeds}


def test_cells_of_two_variants_of_one_exploration_have_directories_and_outcomes_of_their_own(tmp_path, monkeypatch):
    script_training(monkeypatch, [BEST])
    figure = FIGURES["ablations-chain"]
    cells = figure.grid(ChainScale(lengths=(5,), seeds=1, episodes=200), figure.methods, tmp_path)
    assert [each.config(0).agent.layer_norm for each in cells] == [False, True]
    assert all(each.train(SilentLine()) for each in cells)
    names = ["parameter", "parameter-no-layer-norm"]
    assert figure.collect(cells) == [outcome(100, True, exploration=name) for name in names]
    assert sorted(path.name for path in (tmp_path / "ablations-chain/Chain-5").iterdir()) == names
    chain_results.print_medians(figure.collect(cells), figure.methods)


def test_a_cell_s_run_has_the_budget_in_steps_and_an_evaluation_per_episode():
    config = cell(episodes=30).config(seed=2)
    assert isinstance(config, RunConfig)
    assert (config.seed, config.steps, config.eval_every) == (2, 30 * 14, 14)
    assert config.env_kwargs == {"length": 5}
    assert config.exploration.delta == 0.05


def test_a_cell_leaves_one_finished_run_per_seed_that_ends_where_it_was_solved(tmp_path, monkeypatch):
    calls = script_training(monkeypatch, [POOR] * 10 + [BEST], [BEST])
    assert cell(episodes=500, seeds=2, out=tmp_path).train(SilentLine())
    assert sum(calls) < 500
    for seed, episodes in ((0, 110), (1, 100)):
        directory = cell(500, out=tmp_path).directory(seed)
        assert directory.path == tmp_path / f"chain/Chain-5/parameter/seed-{seed}"
        assert [int(row["step"]) for row in directory.rows()] == [14 * (i + 1) for i in range(episodes)]
        assert directory.summary()["status"] == "finished"
        assert cell(500, out=tmp_path).outcome(seed) == outcome(episodes, True, seed)


def test_an_unsolved_cell_ends_at_its_budget(tmp_path, monkeypatch):
    script_training(monkeypatch, [POOR])
    assert cell(episodes=70, out=tmp_path).train(SilentLine())
    assert len(cell(70, out=tmp_path).directory(0).rows()) == 70
    assert cell(70, out=tmp_path).outcome(0) == outcome(70, False)


def test_rollouts_past_the_budget_do_not_count(tmp_path, monkeypatch):
    script_training(monkeypatch, [POOR] * 25 + [BEST])
    cell(episodes=120, out=tmp_path).train(SilentLine())
    assert cell(120, out=tmp_path).directory(0).summary()["solved"] is False
    assert cell(120, out=tmp_path).outcome(0) == outcome(120, False)


def test_what_is_on_disk_serves_another_budget_as_far_as_it_can(tmp_path, monkeypatch):
    script_training(monkeypatch, [POOR] * 50 + [BEST], [POOR])
    cell(episodes=200, seeds=2, out=tmp_path).train(SilentLine())
    solved, unsolved = ({n: cell(n, out=tmp_path).outcome(seed) for n in (100, 150, 200, 900)} for seed in (0, 1))
    assert solved == {100: outcome(100, False), **{n: outcome(150, True) for n in (150, 200, 900)}}
    assert unsolved == {**{n: outcome(n, False, 1) for n in (100, 150, 200)}, 900: None}


def test_a_finished_cell_is_not_run_again_and_an_unsolved_one_only_for_a_larger_budget(tmp_path, monkeypatch):
    calls = script_training(monkeypatch, [POOR] * 100 + [BEST])
    cell(episodes=60, out=tmp_path).train(SilentLine())
    before = len(calls)
    assert cell(episodes=60, out=tmp_path).train(SilentLine())
    assert cell(episodes=30, out=tmp_path).train(SilentLine())
    assert len(calls) == before
    assert cell(episodes=300, out=tmp_path).train(SilentLine())
    assert cell(300, out=tmp_path).outcome(0) == outcome(200, True)


def test_a_stopped_cell_writes_nothing(tmp_path, monkeypatch):
    calls = script_training(monkeypatch, [POOR])
    assert not cell(episodes=500, out=tmp_path).train(StopAfter(calls, 2))
    assert len(calls) == 2
    assert list(tmp_path.iterdir()) == []
    assert cell(500, out=tmp_path).outcome(0) is None


def test_outcomes_are_collected_in_order_and_unfinished_runs_left_out(tmp_path, monkeypatch):
    script_training(monkeypatch, [BEST])
    done = [Cell(tmp_path / "chain", 5, method, (0,), 200) for method in (EPSILON, PARAMETER)]
    for each in done:
        each.train(SilentLine())
    grid = [*done, *(Cell(tmp_path / "chain", *rest, (0,), 200) for rest in ((5, BOOTSTRAP), (10, PARAMETER)))]
    assert CHAIN.collect(grid) == [outcome(100, True), outcome(100, True, exploration="epsilon-greedy")]


def test_results_survive_their_file(tmp_path):
    outcomes = [outcome(100, True), outcome(2_000, False, 1, "bootstrap", 100)]
    path = tmp_path / "new" / "results.csv"
    chain_results.write_results(outcomes, path)
    assert path.read_text().splitlines()[0] == "length,algorithm,exploration,seed,episodes,solved"
    assert chain_results.read_results(path) == outcomes


@pytest.mark.parametrize("explorations", [("parameter",), ("parameter", "bootstrap", "epsilon-greedy")])
def test_the_figure_is_a_png(tmp_path, explorations):
    outcomes = [
        outcome(100 * length, length < 10, seed, exploration, length)
        for exploration in explorations
        for length in (5, 10)
        for seed in (0, 1)
    ]
    path: Path = tmp_path / "new" / "chain.png"
    plot_chain(outcomes, CHAIN.methods, path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert path.stat().st_size > 5_000
