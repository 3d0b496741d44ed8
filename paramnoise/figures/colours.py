"""How a method looks in figures: one colour for an exploration, in every figure, for every eye.

The palette is that of Okabe and Ito (2008), which people with the common colour deficiencies can tell apart.
"""

from collections.abc import Sequence
from typing import NamedTuple

from paramnoise.figures.base import Method

VERMILION, ORANGE, YELLOW, GREEN = "#D55E00", "#E69F00", "#F0E442", "#009E73"
SKY, BLUE, PURPLE, BLACK = "#56B4E9", "#0072B2", "#CC79A7", "#000000"

COLOURS = {
    "parameter": VERMILION,
    "none": BLACK,
    "gaussian": SKY,
    "ou": BLUE,
    "pink": PURPLE,
    "gsde": GREEN,
    "epsilon-greedy": GREEN,
    "epsilon-greedy-two-heads": ORANGE,
    "bootstrap": PURPLE,
    "noisy": BLUE,
    "es": PURPLE,
}
"""By exploration; an agent that explores by none of them has its own. No figure of ours has two of a colour."""
SPARE = (PURPLE, GREEN, BLUE, ORANGE, SKY, YELLOW)
"""For explorations that are not known here, such as a plug-in's, and for more variants of one than there are styles."""
STYLES = ("-", "--", "-.")
"""Of the lines that have the same colour in a figure: agents with the same exploration, say."""


class Look(NamedTuple):
    """How one method is drawn."""

    colour: str
    style: str
    """Of its line."""


def looks(methods: Sequence[Method]) -> list[Look]:
    """How each method of a figure is drawn: its colour is the same in every figure, its style tells equals apart."""
    names = [method.algorithm if method.algorithm in COLOURS else method.exploration for method in methods]
    known = {COLOURS[name] for name in names if name in COLOURS}
    spare = [colour for colour in SPARE if colour not in known]
    strange = dict.fromkeys(name for name in names if name not in COLOURS)
    colours = COLOURS | {name: spare[i % len(spare)] for i, name in enumerate(strange)}
    return [_look(colours[name], spare, names[:place].count(name)) for place, name in enumerate(names)]


def _look(colour: str, spare: Sequence[str], equals: int) -> Look:
    """How a method is drawn that has so many before it with the same name; where styles end, other colours follow."""
    rounds, style = divmod(equals, len(STYLES))
    return Look(spare[(rounds - 1) % len(spare)] if rounds else colour, STYLES[style])
