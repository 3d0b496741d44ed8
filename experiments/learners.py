"""Do our learners learn as well as their peers with the same settings? HalfCheetah, Hopper, Walker2d, over seeds.

    python experiments/learners.py run --out DIR --workers 2
    python experiments/learners.py run --out DIR --sides ours --side-by-side       # on a GPU
    python experiments/learners.py status --out DIR
    python experiments/learners.py report --out DIR
    python experiments/learners.py page

It needs the extra bench; `--sides ours` does not. A run of ours is in DIR/learners/TASK/AGENT-ours/seed-S and goes on
where it was stopped; one of a peer is beside it and begins anew if it was stopped; a finished run is never run again.
`status` says what is left, and how many hours of one core that takes. `report` prints, for each agent, the ratio of the
interquartile means over the three tasks, ours over theirs, with its 95 % interval. `page` writes docs/learners.md and
its pictures from results/learners/results.csv, which is a copy of DIR/learners/results.csv.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from learners_results import draw, lines, page
from learners_runs import NAME, OURS, agent_of, all_runs, rate_of, side_of
from learners_settings import AGENTS
from rich.table import Table

from paramnoise.figures.curve_results import read_results, write_results
from paramnoise.figures.curve_runs import CurveRun, check_envs
from paramnoise.figures.curve_summary import table_console
from paramnoise.figures.figure_sweep import Sweep, run_sweep
from paramnoise.figures.pieces import Piece
from paramnoise.figures.seed_groups import by_task_and_method, in_order
from paramnoise.parallel.engine import Engine
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.validation import UsageError, lookup, require_extra

RESULTS = "results.csv"
PEERS = "peers"
"""What `--sides` calls the other side, whatever its library."""
REPOSITORY = Path(__file__).parent.parent
MEASURED = REPOSITORY / "results" / NAME / RESULTS
PAGE = REPOSITORY / "docs" / "learners.md"


def run(
    out: Path,
    agents: Sequence[str],
    sides: Sequence[str],
    seeds: int | None,
    steps: int | None,
    workers: int | None,
    side_by_side: bool,
) -> int:
    """`run`: trains what is not on disk, and writes results.csv; returns the exit status."""
    if side_by_side and PEERS in sides:
        raise UsageError("--side-by-side is for --sides ours: a peer trains one seed")
    for library in {AGENTS[agent].library for agent in agents} if PEERS in sides else ():
        require_extra(library, "bench", "the peers")
    both, known = all_runs(out, agents, seeds, steps), all_runs(out, AGENTS, None, steps)
    runs = [each for each in both if (OURS if side_of(each) == OURS else PEERS) in sides]
    for each in runs:
        each.check()
    check_envs(each for each in runs if isinstance(each, CurveRun))
    engine = Engine(workers=workers, whole_machine=side_by_side)
    todo: Sequence[Piece] = [each for each in runs if not each.is_finished()]
    if side_by_side:
        todo = in_order(by_task_and_method(each for each in runs if isinstance(each, CurveRun)))

    def write() -> bool:
        every = {each.name: each for each in (*known, *runs)}  # several calls may share the work
        points = [point for each in every.values() for point in each.curve()]
        if points:
            write_results(points, out / NAME / RESULTS)
        return bool(points)

    sweep = Sweep(
        headline=f"{NAME}: {len(runs)} runs, {sum(each.is_finished() for each in runs)} on disk, {engine}",
        directory=out / NAME,
        runs=runs,
        pieces=todo if side_by_side else runs,
        todo=todo,
        unit="groups" if side_by_side else "runs",
        write=write,
    )
    status = run_sweep(sweep, engine)
    print(out / NAME / RESULTS if write() else "no run has a result yet")
    return status


def show_status(out: Path, agents: Sequence[str], seeds: int | None, steps: int | None) -> int:
    """`status`: prints what is done and left, and the hours of one core that this takes."""
    table = Table("agent", "side", "finished", "steps left", "steps/s of a core", "core-hours left")
    for column in table.columns[2:]:
        column.justify = "right"
    runs, total, unknown = all_runs(out, agents, seeds, steps), 0.0, 0
    for agent in agents:
        for side in (OURS, AGENTS[agent].library):
            own = [each for each in runs if (agent_of(each), side_of(each)) == (agent, side)]
            left = sum(each.steps - each.steps_done() for each in own)
            rates = [rate for each in own if (rate := rate_of(each)) is not None]
            rate = statistics.median(rates) if rates else None
            hours = left / rate / 3600 if rate else None
            total, unknown = total + (hours or 0), unknown + (hours is None)
            finished = f"{sum(each.is_finished() for each in own)} of {len(own)}"
            shown = ("", "?") if rate is None or hours is None else (f"{rate:,.0f}", f"{hours:.1f}")
            table.add_row(agent, side, finished, f"{left:,}", *shown)
    table_console(100).print(table)
    not_begun = f", and those of {unknown} more without an evaluation yet" if unknown else ""
    print(f"{total:.1f} core-hours left{not_begun}")
    return 0


def report(out: Path) -> int:
    """`report`: prints what results.csv says of each agent."""
    path = out / NAME / RESULTS
    if not path.exists():
        raise UsageError(f"{path} does not exist: `run` writes it")
    for line in lines(read_results(path)):
        print(line)
    return 0


def write_page() -> int:
    """`page`: writes the page's tables and its pictures from the results that are kept."""
    points = read_results(MEASURED) if MEASURED.exists() else []
    draw(points, MEASURED.parent)
    text = page(PAGE.read_text(), points)
    write_atomically(PAGE, lambda file: file.write(text.encode()))
    print(PAGE)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="learners.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("run", help="run what is not on disk")
    training.add_argument(
        "--sides", nargs="+", choices=(OURS, PEERS), default=(OURS, PEERS), help="one side alone; default: both"
    )
    training.add_argument("--workers", type=int, help="processes; default: the cores, or 1 with --side-by-side")
    training.add_argument("--side-by-side", action="store_true", help="ours: all seeds of a task in one program")
    status = commands.add_parser("status", help="what is done and left")
    for command in (training, status):
        command.add_argument("--agents", nargs="+", default=list(AGENTS), help="some agents; default: all")
        command.add_argument("--seeds", type=int, help="seeds of each; default: those of its agent")
        command.add_argument("--steps", type=int, help="environment steps of a run; default: those of its agent")
    for command in (training, status, commands.add_parser("report", help="print the ratios")):
        command.add_argument("--out", type=Path, required=True, help="where the runs and results.csv are kept")
    commands.add_parser("page", help=f"write {PAGE.name} from {MEASURED.relative_to(REPOSITORY)}")
    args = parser.parse_args(words)
    try:
        if args.command == "page":
            return write_page()
        if args.command == "report":
            return report(args.out)
        for name in args.agents:
            lookup("agent", name, AGENTS)
        if args.command == "status":
            return show_status(args.out, args.agents, args.seeds, args.steps)
        own = (args.agents, args.sides, args.seeds, args.steps, args.workers, args.side_by_side)
        return run(args.out, *own)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
