"""Writes the tables of docs/rivals.md from the results that are kept in the repository.

    python experiments/rivals.py page

The runs are the queue's: `python experiments/evidence.py run --out DIR --figures rivals-td3`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from paramnoise.figures.rivals import KINDS, RIVALS
from paramnoise.markdown import with_table
from paramnoise.runs.checkpoint import write_atomically

REPOSITORY = Path(__file__).parent.parent
RESULTS, PAGE = REPOSITORY / "results", REPOSITORY / "docs" / "rivals.md"


def page(text: str, results: Path) -> str:
    """The page with the tables of these results between its marks."""
    for kind in KINDS:
        text = with_table(text, kind, RIVALS.markdown(kind, results))
    return text


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="rivals.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("page", help=f"write the tables of {PAGE.name} from {RESULTS.name}")
    parser.parse_args(words)
    text = page(PAGE.read_text(), RESULTS)
    write_atomically(PAGE, lambda file: file.write(text.encode()))
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
