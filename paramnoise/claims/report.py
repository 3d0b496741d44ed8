"""Verdicts for people and for programs: a table on the terminal, claims.json, and the tables of Markdown pages."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from paramnoise.claims.base import Claim, Number, Outcome
from paramnoise.figures.curve_summary import table_console
from paramnoise.markdown import markdown_table, with_table
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.validation import UsageError

JSON = "claims.json"
"""In the directory of results, unless another file is named."""
DIGITS = 6
"""Significant digits of a number in claims.json: the last bits of a sum are the machine's."""


def print_table(outcomes: Iterable[Outcome]) -> None:
    """Prints a row for each claim."""
    table = Table("claim", "where", "verdict", "evidence", "rule fixed", title="Claims")
    table.columns[0].no_wrap = table.columns[2].no_wrap = True
    table.columns[1].max_width, table.columns[4].max_width = 18, 11
    for outcome in outcomes:
        claim = outcome.claim
        table.add_row(claim.name, claim.where, verdict_text(outcome), outcome.evidence, claim.decided.when)
    table_console().print(table)


def verdict_text(outcome: Outcome) -> str:
    """The verdict, with what is known so far where it has to wait."""
    return f"{outcome.verdict}{f', so far {outcome.so_far}' if outcome.so_far else ''}"


def write_json(outcomes: Iterable[Outcome], path: Path) -> None:
    """Writes claims.json: the same bytes for the same results."""
    text = json.dumps({"claims": [_entry(outcome) for outcome in outcomes]}, indent=2, ensure_ascii=False)
    write_text(f"{text}\n", path)


def write_text(text: str, path: Path) -> None:
    """Writes a whole file, or leaves the old one."""
    write_atomically(path, lambda file: file.write(text.encode()))


def _entry(outcome: Outcome) -> dict[str, Any]:
    claim = outcome.claim
    return {
        "name": claim.name,
        "sentence": claim.sentence,
        "where": claim.where,
        "figure": claim.figure,
        "rule": claim.rule.text,
        "decided": claim.decided._asdict(),
        "asks": {"tasks": len(claim.rule.tasks) or None, **claim.asks._asdict()},
        "verdict": outcome.verdict,
        "so_far": outcome.so_far,
        "evidence": outcome.evidence,
        "coverage": outcome.coverage._asdict(),
        "numbers": [_number(number) for number in outcome.numbers],
    }


def _number(number: Number) -> dict[str, str | float | None]:
    name, *values = number
    rounded = [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values]
    return {"name": name, **dict(zip(Number._fields[1:], rounded, strict=True))}


def verdicts_in_markdown(outcomes: Iterable[Outcome]) -> str:
    """The table of verdicts."""
    rows = [
        (
            outcome.claim.sentence,
            outcome.claim.where,
            f"**{verdict_text(outcome)}**",
            outcome.evidence,
            outcome.claim.decided.when,
        )
        for outcome in outcomes
    ]
    return markdown_table(("claim", "where", "verdict", "evidence", "rule fixed"), rows)


def rules_in_markdown(claims: Iterable[Claim]) -> str:
    """The table of rules."""
    rows = [
        (
            f"`{claim.name}`",
            f"`{claim.figure}`",
            claim.rule.text,
            f"{claim.asks.seeds} seeds, {claim.asks.steps:,} {claim.asks.unit}",
            f"{claim.decided.when}, {claim.decided.date}",
        )
        for claim in claims
    ]
    return markdown_table(("claim", "figure", "rule", "asks for", "fixed"), rows)


def with_tables(path: Path, outcomes: Sequence[Outcome]) -> str:
    """A page with its tables of now: verdicts between `<!-- claims -->` marks, rules between `<!-- rules -->` marks."""
    if not path.is_file():
        raise UsageError(f"{path} does not exist: --readme takes pages that have a place for a table")
    page = path.read_text()
    tables = {
        "claims": verdicts_in_markdown(outcomes),
        "rules": rules_in_markdown([outcome.claim for outcome in outcomes]),
    }
    marked = [word for word in tables if f"<!-- {word} -->" in page and f"<!-- /{word} -->" in page]
    if not marked:
        raise UsageError(f"{path} has no place for a table: mark one with <!-- claims --> and <!-- /claims -->")
    for word in marked:
        page = with_table(page, word, tables[word])
    return page
