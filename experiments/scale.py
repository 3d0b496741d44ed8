"""Deep exploration at scale: what thousands of perturbed policies bring over one, on environments written in JAX.

    python experiments/scale.py run --out DIR                                # all of it, on one large GPU
    python experiments/scale.py run --out DIR --parts deepsea --sizes 20 40  # some of it
    python experiments/scale.py page                                         # tables and plots from results/scale

A cell is an agent with an explorer on a task; all its seeds train side by side in one compiled program. Programs are
compiled in the background, and run as they are ready. A finished cell leaves DIR/scale/PART/CELL.json and is never
run again; one that was stopped begins anew.
"""

import argparse
import functools
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scale_cells import SIZES, Cell, Training, cells, training
from scale_results import Outcome, read_results, solved_at, table, write_results

from paramnoise.keys import EVALUATE
from paramnoise.loops import compiled, jax_steps
from paramnoise.loops.devices import compiler_options
from paramnoise.loops.jax_steps import LoopState
from paramnoise.loops.state import key_for
from paramnoise.markdown import with_table
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.validation import UsageError, lookup

NAME, RESULTS = "scale", "results.csv"
REPOSITORY = Path(__file__).parent.parent
MEASURED = REPOSITORY / "results" / NAME / RESULTS
PAGE = REPOSITORY / "docs" / "scale.md"
PARTS = ("deepsea", "chain", "minatar", "shuffled", "brax")
SEED_COUNT = {"deepsea": 10, "chain": 10, "minatar": 10, "shuffled": 10, "brax": 3}
"""By part."""
COMPILERS = 3
"""Programs that are compiled at once: Python traces them in turn, XLA compiles each on several cores."""


class Asked(NamedTuple):
    """What `run` was asked for."""

    out: Path
    cells: Sequence[Cell]
    seeds: int | None = None
    """Other than a result has, to try it; so are the two below."""
    num_envs: int | None = None
    evaluations: int | None = None
    seconds: float | None = None
    """No cell begins later than this after the command."""


class Programs(NamedTuple):
    """A cell, compiled."""

    training: Training
    init: Callable[..., LoopState]
    """keys -> the state of all seeds."""
    epoch: Callable[..., tuple[LoopState, Array]]
    """state, pieces -> the state after so many, and the mean noise-free return of each seed."""
    compile_seconds: float


class Curve(NamedTuple):
    """What was seen at each evaluation."""

    steps: list[int]
    seconds: list[float]
    returns: list[np.ndarray]
    """[seeds]."""


def compile_cell(cell: Cell, seeds: int, num_envs: int | None) -> Programs:
    """Makes the programs of a cell, for so many seeds side by side; allocates nothing."""
    began = time.perf_counter()
    made = training(cell, num_envs)
    learner, exploration, env, own_envs = made[:4]
    along = compiled.axes(learner)

    def epoch(state: LoopState, pieces: Array) -> tuple[LoopState, Array]:
        state = compiled.advance(learner, exploration, env, state, pieces)
        policy = learner.policy(state.train.learner)
        returns = jax_steps.evaluate(policy, env, key_for(state.train, EVALUATE), made.eval_episodes)
        return state, jnp.mean(returns)

    first = functools.partial(compiled.init, learner, exploration, env, own_envs)
    init = jax.jit(compiled.over_seeds(first, seeds, (0,), along))
    advance = jax.jit(
        compiled.over_seeds(epoch, seeds, (along, None), (along, 0)),
        donate_argnums=0,
        compiler_options=compiler_options(),
    )
    keys = jax.ShapeDtypeStruct((seeds, 2), jnp.uint32)
    state = jax.eval_shape(init, keys)
    programs = init.lower(keys).compile(), advance.lower(state, np.int32(0)).compile()
    return Programs(made, *programs, time.perf_counter() - began)


def train(programs: Programs, seeds: int, evaluations: int | None = None) -> Curve:
    """Trains all seeds of a cell until they have solved it, or as long as the cell has."""
    made, curve = programs.training, Curve([], [], [])
    state = programs.init(jnp.stack([jax.random.PRNGKey(seed) for seed in range(seeds)]))
    jax.block_until_ready(state)
    began = time.perf_counter()
    for _ in range(evaluations or made.evaluations):
        state, returns = programs.epoch(state, np.int32(made.pieces))
        curve.returns.append(np.asarray(returns))
        curve.seconds.append(time.perf_counter() - began)
        curve.steps.append(int(state.train.step if state.train.step.ndim == 0 else state.train.step[0]))
        if made.best is not None and all(at is not None for at in solved_by_seed(curve, made.best)):
            break
        if made.seconds is not None and curve.seconds[-1] > made.seconds:
            break
    return curve


def solved_by_seed(curve: Curve, best: float) -> list[int | None]:
    """The evaluation at which each seed has solved the task, or None."""
    return [solved_at(own, best) for own in np.stack(curve.returns, axis=1)]


def outcomes(cell: Cell, made: Training, curve: Curve) -> list[Outcome]:
    """The rows of a cell, one for each seed."""
    found = []
    places = solved_by_seed(curve, float("inf") if made.best is None else made.best)
    for seed, (own, place) in enumerate(zip(np.stack(curve.returns, axis=1), places, strict=True)):
        shown = own if made.best is None else own[-1:]
        row = Outcome(
            *cell,
            seed=seed,
            num_envs=made.num_envs,
            steps=curve.steps[-1],
            seconds=round(curve.seconds[-1], 2),
            solved_steps=None if place is None else curve.steps[place],
            solved_seconds=None if place is None else round(curve.seconds[place], 2),
            returns=" ".join(f"{value:.4g}" for value in shown),
        )
        found.append(row)
    return found


def run(asked: Asked) -> int:
    """`run`: the cells that are not on disk, one after the other; returns the exit status."""
    began = time.perf_counter()
    warnings.simplefilter("ignore")  # gymnax's of the future: what keeps them apart elsewhere is not made for threads
    sys.setswitchinterval(1e-4)  # so that tracing programs in the background holds up those that run very little
    left = [cell for cell in asked.cells if not place_of(asked.out, cell).exists()]
    count = lambda cell: asked.seeds or SEED_COUNT[cell.part]  # noqa: E731
    failed = 0
    with ThreadPoolExecutor(COMPILERS) as pool:
        compiling = {pool.submit(compile_cell, cell, count(cell), asked.num_envs): cell for cell in left}
        for future in as_completed(list(compiling)):
            if asked.seconds is not None and time.perf_counter() - began > asked.seconds:
                pool.shutdown(wait=False, cancel_futures=True)
                say(f"{len(compiling)} cells are left: the command's time is over")
                return 1
            cell = compiling.pop(future)
            try:
                programs = future.result()
                curve = train(programs, count(cell), asked.evaluations)
            except Exception as error:  # a cell that does not fit, or a package that is missing, stops no other
                failed += 1
                reason = str(error).partition("\n")[0]
                say(f"{cell.part}/{cell.name}: {type(error).__name__}: {reason}")
                continue
            rows = outcomes(cell, programs.training, curve)
            keep(asked.out, cell, rows)
            say(f"{time.perf_counter() - began:5.0f} s: {line(cell, rows, programs.compile_seconds)}")
            del programs, future
    return 1 if failed else 0


def line(cell: Cell, rows: Sequence[Outcome], compile_seconds: float) -> str:
    """What the screen shows of a cell."""
    seconds, steps = rows[0].seconds, rows[0].steps
    text = f"{cell.part}/{cell.name}: {steps:,} steps in {seconds:.1f} s (compiled in {compile_seconds:.0f} s), "
    if cell.part in SIZES:
        solved = sorted(row.solved_steps for row in rows if row.solved_steps is not None)
        return f"{text}solved by {len(solved)} of {len(rows)} after {' '.join(f'{each:,}' for each in solved)}"
    return f"{text}returns at the end {' '.join(f'{row.final_return:.1f}' for row in rows)}"


def say(text: str) -> None:
    """A line on the screen, at once."""
    print(text, flush=True)


def place_of(out: Path, cell: Cell) -> Path:
    """Where a finished cell is kept."""
    return out / NAME / cell.part / f"{cell.name}.json"


def keep(out: Path, cell: Cell, rows: Sequence[Outcome]) -> None:
    """Writes down a finished cell, and results.csv of all that are finished."""
    path = place_of(out, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps([row._asdict() for row in rows])
    write_atomically(path, lambda file: file.write(text.encode()))
    kept = [place_of(out, each) for each in cells(PARTS)]
    texts = [each.read_text() for each in kept if each.exists()]
    write_results([Outcome(**row) for text in texts for row in json.loads(text)], out / NAME / RESULTS)


def chosen(options: Any) -> list[Cell]:
    """The cells that some options ask for."""
    for part in options.parts:
        lookup("part", part, dict.fromkeys(PARTS))
    found = [
        cell
        for cell in cells(options.parts)
        if (options.explorers is None or cell.explorer in options.explorers)
        and (options.sizes is None or cell.size in options.sizes)
        and (options.tasks is None or cell.task in options.tasks)
        and (options.algorithms is None or cell.algorithm in options.algorithms)
    ]
    if not found:
        raise UsageError("no cell is like that: see the names of tasks and explorers in experiments/scale_cells.py")
    return found


def page(text: str, results: Sequence[Outcome]) -> str:
    """The page with the tables of these results between its marks, and the pictures that `draw` makes of them."""
    measured = {outcome.part for outcome in results}
    for part in PARTS:
        picture = f"\n\n{picture_of(part)}" if part in measured and part not in SIZES else ""
        text = with_table(text, part, table(part, results) + picture)
    return with_table(text, "picture", picture_of(NAME) if measured & set(SIZES) else "")


def picture_of(name: str) -> str:
    """A picture of the results in Markdown."""
    return f"![{name}](../results/{NAME}/{name}.png)"


def write_page() -> int:
    """`page`: the tables of the page and the plots, from the results that the repository keeps."""
    from scale_plots import draw  # matplotlib is not needed to run

    results = read_results(MEASURED)
    text = page(PAGE.read_text(), results)
    write_atomically(PAGE, lambda file: file.write(text.encode()))
    for path in [PAGE, *draw(results, MEASURED.parent)]:
        print(path.relative_to(REPOSITORY))
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="scale.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("run", help="run the cells that are not on disk, one after the other")
    asked.add_argument("--out", type=Path, required=True, help="where finished cells and their results.csv are kept")
    asked.add_argument("--parts", nargs="+", default=PARTS, help=f"of {', '.join(PARTS)}; default: all")
    asked.add_argument("--sizes", nargs="+", type=int, help="of DeepSea or the chain; default: all")
    asked.add_argument("--tasks", nargs="+", help="such as deepsea-20 or Breakout; default: all")
    asked.add_argument("--algorithms", nargs="+", help="such as pqn; default: all")
    asked.add_argument("--explorers", nargs="+", help="such as policies-64 or epsilon-greedy; default: all")
    asked.add_argument("--seconds", type=float, help="begin no cell later than this")
    asked.add_argument("--seeds", type=int, help="fewer than a result has, to try it")
    asked.add_argument("--num-envs", type=int, help="fewer than a result has, to try it")
    asked.add_argument("--evaluations", type=int, help="fewer than a result has, to try it")
    commands.add_parser("page", help=f"write the tables of {PAGE.name}, and plots, from results/{NAME}/{RESULTS}")
    options = parser.parse_args(words)
    if options.command == "page":
        return write_page()
    try:
        own = (options.seeds, options.num_envs, options.evaluations, options.seconds)
        return run(Asked(options.out, chosen(options), *own))
    except UsageError as error:
        print(f"scale.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
