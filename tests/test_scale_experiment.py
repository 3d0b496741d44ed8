"""Deep exploration at scale: what counts as solved, what is run and what is not run again, and its tables."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "experiments"))

import scale
from scale_cells import LABELS, SIZES, Cell, cells, task_of, training
from scale_plots import draw
from scale_results import Outcome, median_of, read_results, solved_at, table

from paramnoise.explorations import ParameterNoise

CELL = Cell("deepsea", "deepsea-20", 20, "dqn", "policies-64")


def outcome(cell: Cell = CELL, seed: int = 0, solved: tuple[int, float] | None = None, returns: str = "0.5") -> Outcome:
    steps, seconds = solved or (None, None)
    return Outcome(*cell, seed, 4_096, 5_000_000, 8.0, steps, seconds, returns)


@pytest.mark.parametrize(
    ("returns", "place"),
    [([1, 1, 0, 1, 1, 1], 3), ([1, 1, 1], 0), ([1, 1, 0, 1, 1], None), ([0, 0, 0], None), ([0, 1, 1, 1, 0], 1)],
)
def test_a_task_is_solved_at_the_first_of_enough_optimal_evaluations_in_a_row(returns, place):
    assert solved_at(np.array(returns, float), 1.0, in_a_row=3) == place


def test_an_unsolved_seed_counts_as_slower_than_any_other():
    seeds = [outcome(seed=0, solved=(100, 1.0)), outcome(seed=1), outcome(seed=2, solved=(300, 3.0))]
    assert median_of(seeds) == (2, 3, 300, 3.0)
    assert median_of(seeds[:2]).steps == float("inf")


def test_every_cell_has_a_name_of_its_own_and_all_but_brax_can_be_made():
    made = list(cells(scale.PARTS))
    assert len({cell.name for cell in made}) == len(made)
    for cell in made:
        if cell.part != "brax" and cell.size in (None, 10, 50):
            own = training(cell)
            assert own.pieces >= 1
            assert (own.best is not None) == (cell.part in SIZES)


def test_policies_are_what_the_explorer_says():
    explorations = {name: training(CELL._replace(explorer=name)).exploration for name in LABELS if "policies" in name}
    assert {name: each.pool for name, each in explorations.items() if isinstance(each, ParameterNoise)} == {
        "policies-4096": None,  # each environment has its own
        "policies-64": 128,  # two for each of 64 groups, of which one acts
        "policies-1": 2,
    }


@pytest.mark.parametrize("part", ["deepsea", "shuffled", "chain"])
def test_the_way_to_the_far_end_is_optimal(part):
    env, episode, best = task_of(part, 10)
    obs, state = env.reset(jax.random.key(0))
    assert obs.dtype == jnp.uint8
    returned, actions = 0.0, []
    with jax.disable_jit():
        for place in range(episode):
            action = 1 if part == "chain" else int(state.action_mapping[place, place])
            obs, state, reward, *ends = env.step(jax.random.key(place), state, jnp.int32(action))
            returned += float(reward)
            actions.append(action)
            assert any(ends) == (place == episode - 1)
    assert returned == pytest.approx(best)
    assert (set(actions) == {1}) == (part != "shuffled")


def fake(solves_at: int) -> scale.Programs:
    """A cell that is optimal from an evaluation on, and steps 100 times between evaluations."""
    made = training(CELL)

    class Train:
        def __init__(self, step: int):
            self.train, self.step = self, np.int32(step)

    def epoch(state, pieces):
        after = Train(int(state.step) + 100)
        return after, np.full(2, 0.99 if after.step >= 100 * solves_at else 0.0)

    return scale.Programs(made, lambda keys: Train(0), epoch, 0.0)


def test_a_cell_ends_when_solved_and_is_never_run_again(tmp_path, monkeypatch, capsys):
    compiled = []
    monkeypatch.setattr(scale.jax, "block_until_ready", lambda state: state)
    monkeypatch.setattr(scale, "compile_cell", lambda cell, *_: compiled.append(cell) or fake(solves_at=3))
    words = ["run", "--out", str(tmp_path), "--tasks", "deepsea-20", "--explorers", "policies-64", "--seeds", "2"]
    assert scale.main(words) == 0
    assert scale.main(words) == 0
    assert compiled == [CELL]
    assert "solved by 2 of 2 after 300 300" in capsys.readouterr().out
    first, second = read_results(tmp_path / "scale" / "results.csv")
    assert (first.seed, second.seed) == (0, 1)
    assert first.solved_steps == 300
    assert first.steps == 1_200  # ten optimal evaluations, the last of which is the twelfth


def test_a_cell_that_fails_is_one_line_and_the_others_run(tmp_path, monkeypatch, capsys):
    def compile_cell(cell: Cell, *_: object) -> scale.Programs:
        if cell.explorer == "policies-1":
            raise MemoryError("too large\nby far")
        if cell.explorer == "noisy":
            raise MemoryError  # without a word
        return fake(solves_at=1)

    monkeypatch.setattr(scale.jax, "block_until_ready", lambda state: state)
    monkeypatch.setattr(scale, "compile_cell", compile_cell)
    words = [
        "run",
        "--out",
        str(tmp_path),
        "--tasks",
        "deepsea-20",
        "--explorers",
        "policies-1",
        "noisy",
        "policies-64",
    ]
    assert scale.main([*words, "--seeds", "2"]) == 1
    shown = capsys.readouterr().out
    assert "deepsea-20-dqn-policies-1: MemoryError: too large\n" in shown
    assert "deepsea-20-dqn-noisy: MemoryError" in shown
    assert {row.explorer for row in read_results(tmp_path / "scale" / "results.csv")} == {"policies-64"}


def test_the_command_refuses_what_there_is_not(tmp_path, capsys):
    assert scale.main(["run", "--out", str(tmp_path), "--parts", "deepsee"]) == 2
    assert scale.main(["run", "--out", str(tmp_path), "--tasks", "deepsea-21"]) == 2
    assert "no cell is like that" in capsys.readouterr().err


def test_tables_have_what_was_measured():
    solved = [outcome(seed=seed, solved=(400_000, 1.26)) for seed in range(3)]
    unsolved = [outcome(CELL._replace(explorer="noisy"), seed=seed) for seed in range(3)]
    text = table("deepsea", [*solved, *unsolved])
    assert "| parameter noise, 64 policies | not measured yet | 3 of 3; 400,000 steps, 1.3 s |" in text
    assert "| noisy layers | not measured yet | 0 of 3 in 5,000,000 steps, 8.0 s |" in text
    assert "epsilon" not in text
    game = Cell("minatar", "Breakout", None, "pqn", "parameter")
    text = table("minatar", [outcome(game, seed, returns=f"1 {10 * seed}") for seed in range(3)])
    assert "| Breakout | PQN | parameter | 4,096 | 5,000,000 | 10.0 | 0.0 10.0 20.0 | 8 |" in text


def test_the_page_is_that_of_the_results_which_are_kept():
    text = scale.PAGE.read_text()
    assert scale.page(text, read_results(scale.MEASURED)) == text


def test_plots_are_drawn_of_what_there_is(tmp_path):
    game = Cell("minatar", "Breakout", None, "pqn", "parameter")
    rows = [outcome(seed=0, solved=(100, 1.0)), outcome(seed=1), outcome(game, returns="1 2 3")]
    assert [path.name for path in draw(rows, tmp_path)] == ["scale.png", "minatar.png"]
    assert all(path.stat().st_size > 5_000 for path in tmp_path.iterdir())
