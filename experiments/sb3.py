"""Measures parameter noise in Stable-Baselines3 against its own exploration, over seeds.

    .venv-sb3/bin/python experiments/sb3.py run --out DIR
    .venv-sb3/bin/python experiments/sb3.py page

Both sides of a comparison have the same settings and the same policy, with layer norm. A finished run leaves
DIR/sb3/NAME/EXPLORATION/seed-S.json and is never run again; one that was stopped begins anew. `make test-sb3` sets up
the environment.
"""

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from sb3_runs import Measured, measure
from sb3_tasks import TASKS, Task

from paramnoise.markdown import markdown_table, with_table
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError, lookup

NAME, RESULTS = "sb3", "results.csv"
REPOSITORY = Path(__file__).parent.parent
MEASURED = REPOSITORY / "results" / NAME / RESULTS
PAGE = REPOSITORY / "docs" / "sb3.md"
SEEDS = 5


def run(tasks: Sequence[Task], out: Path, seeds: int, steps: int | None) -> int:
    """`run`: a seed of every exploration of every task before the next seed; returns the exit status."""
    for seed in range(seeds):
        for task in tasks:
            for exploration in task.explorations:
                path = out / NAME / task.name / exploration / f"seed-{seed}.json"
                if path.exists():
                    continue
                row = measure(task, exploration, seed, steps or task.steps)
                path.parent.mkdir(parents=True, exist_ok=True)
                text = json.dumps(row._asdict())
                write_atomically(path, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
                print(f"{path.relative_to(out)}: {row.final_return:.2f} after {row.steps:,} steps, {row.seconds:.0f} s")
                collect(out / NAME)
    return 0


def collect(folder: Path) -> None:
    """Writes results.csv from the finished runs."""
    rows = [Measured(**json.loads(path.read_text())) for path in sorted(folder.glob("*/*/seed-*.json"))]
    text = csv_text(Measured._fields, (row._asdict() for row in rows))
    write_atomically(folder / RESULTS, lambda file: file.write(text.encode()))


def read_results(path: Path) -> list[dict[str, str]]:
    """Reads results.csv; no file is no results yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows: Sequence[dict[str, str]]) -> str:
    """The page's table: a row per task and exploration, measured or not."""
    heads = ("task", "steps", "exploration", "noise-free returns at the end, by seed", "solved", "after (median)")
    lines = []
    for task in TASKS.values():
        for exploration in task.explorations:
            own = [row for row in rows if (row["task"], row["exploration"]) == (task.name, exploration)]
            own.sort(key=lambda row: int(row["seed"]))
            solved = [int(row["solved_at"]) for row in own if row["solved_at"]]
            cells = (
                f"`{task.name}`",
                f"{task.steps:,}",
                exploration,
                " ".join(f"{float(row['final_return']):.2f}" for row in own) or "not measured yet",
                f"{len(solved)} of {len(own)}" if own else "",
                f"{statistics.median(solved):,.0f}" if solved else "",
            )
            lines.append(cells)
    return markdown_table(heads, lines, right=("steps", "solved", "after (median)"))


def page(text: str, rows: Sequence[dict[str, str]]) -> str:
    """The page with the table of these results between its marks."""
    return with_table(text, "results", table(rows))


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="sb3.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("run", help="run what is not on disk, one run after the other")
    asked.add_argument("--out", type=Path, required=True, help="where the runs and their results.csv are kept")
    asked.add_argument("--tasks", nargs="+", default=list(TASKS), help="some tasks, by name; default: all")
    asked.add_argument("--seeds", type=int, default=SEEDS, help="how many, from 0 on")
    asked.add_argument("--steps", type=int, default=None, help="fewer steps than a result has, to try it")
    commands.add_parser("page", help=f"write the table of {PAGE.name} from {MEASURED.relative_to(REPOSITORY)}")
    args = parser.parse_args(words)
    try:
        if args.command == "run":
            return run([lookup("task", name, TASKS) for name in args.tasks], args.out, args.seeds, args.steps)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    text = page(PAGE.read_text(), read_results(MEASURED))
    write_atomically(PAGE, lambda file: file.write(text.encode()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
