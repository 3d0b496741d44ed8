"""The paper's figures and tables as data, how they are run, and how they are drawn.

Each registers in the file that defines it.
"""

from paramnoise.figures import (
    atari_figure,
    chain_figure,
    continuous_figures,
    es_figure,
    question_figures,
    rival_figures,
    rivals,
)
from paramnoise.figures.base import FIGURES, Arguments, Figure, Method, register_figure
from paramnoise.figures.curves import CurveFigure, CurveScale

__all__ = [
    "FIGURES",
    "Arguments",
    "CurveFigure",
    "CurveScale",
    "Figure",
    "Method",
    "atari_figure",
    "chain_figure",
    "continuous_figures",
    "es_figure",
    "question_figures",
    "register_figure",
    "rival_figures",
    "rivals",
]
