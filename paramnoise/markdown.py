"""Tables of Markdown pages: how they are written, and how they come to their place in a page."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> str:
    """A table in Markdown, without a line's end after it. The arguments are those of `table_lines`."""
    return "\n".join(table_lines(heads, rows, right))


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> Iterator[str]:
    """The lines of a table in Markdown, each as soon as its row is there: a row may take minutes to measure.

    Args:
        heads: the columns' names.
        rows: their cells.
        right: the heads of the columns that are aligned to the right.
    """
    ruler = ["---:" if head in right else "---" for head in heads]
    for cells in itertools.chain((heads, ruler), rows):
        yield f"| {' | '.join(cells)} |"


def with_table(page: str, word: str, table: str) -> str:
    """A page with a table in the place that `<!-- word -->` and `<!-- /word -->` mark."""
    before, _, rest = page.partition(f"<!-- {word} -->")
    _, _, after = rest.partition(f"<!-- /{word} -->")
    return f"{before}<!-- {word} -->\n{table}\n<!-- /{word} -->{after}"
