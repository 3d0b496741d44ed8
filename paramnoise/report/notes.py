"""Markdown beside results, as a part of a page: the commands, the commits and the machines behind them."""

import re
from typing import Any


def to_html(markdown: str) -> str:
    """The text in HTML, without its title and without links to files beside it, which a report does not hold."""
    from markdown_it import MarkdownIt  # an extra

    parser = MarkdownIt("js-default", {"html": False})
    tokens = parser.parse(re.sub(r"\A#[^\n]*\n", "", markdown))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"
        _unlink(token.children or [])
    return str(parser.renderer.render(tokens, parser.options, {}))


def title_of(markdown: str) -> str:
    """The text's first heading."""
    match = re.match(r"#\s+([^\n]+)", markdown)
    return match[1] if match else "How this was made"


def _unlink(tokens: list[Any]) -> None:
    """Makes words of links that only hold where the text lies."""
    dropped = False
    for token in tokens:
        if token.type == "link_open":
            dropped = "://" not in str(token.attrGet("href"))
        if token.type in ("link_open", "link_close") and dropped:
            token.type, token.tag, token.content = "text", "", ""
