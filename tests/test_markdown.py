"""Tables of Markdown pages."""

import pytest

from paramnoise.markdown import markdown_table, table_lines, with_table


def test_a_table_has_heads_a_ruler_and_rows_and_some_columns_are_aligned_to_the_right():
    rows = [("chain", "1,000", "yes"), ("cheetah", "20", "")]
    assert markdown_table(("task", "steps", "solved"), rows, right=("steps",)).splitlines() == [
        "| task | steps | solved |",
        "| --- | ---: | --- |",
        "| chain | 1,000 | yes |",
        "| cheetah | 20 |  |",
    ]


def test_a_line_is_there_before_the_next_row_is_measured():
    def rows():
        yield ["1"]
        raise RuntimeError("the second was asked for")

    lines = table_lines(["seed"], rows())
    assert [next(lines) for _ in range(3)] == ["| seed |", "| --- |", "| 1 |"]
    with pytest.raises(RuntimeError, match="second"):
        next(lines)


def test_a_table_takes_the_place_of_the_one_before_it_and_leaves_the_page_alone():
    page = "# Title\n\n<!-- own -->\nold\n<!-- /own -->\n\n<!-- other -->\n<!-- /other -->\n"
    assert with_table(page, "own", "new") == page.replace("old", "new")
