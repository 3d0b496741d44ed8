"""Following an agent while it learns: what a callback hears, and how it stops the learning."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from paramnoise.loops.evaluation import EndedEpisode
from paramnoise.validation import UsageError


class Callback:
    """Hears of training as it goes on; override what you need. Whoever returns False stops the learning.

    A stopped agent is whole: it can be saved, evaluated, and learn on.
    """

    def on_step(self, agent: Any, step: int) -> bool | None:
        """The environments were stepped; `step` counts the steps of all of them since the agent was made."""

    def on_episode_end(self, agent: Any, episode: EndedEpisode) -> bool | None:
        """An episode of training ended."""

    def on_evaluation(self, agent: Any, row: dict[str, float]) -> bool | None:
        """A row of progress with a noise-free evaluation is complete."""


OnEvaluation = Callable[[Any, dict[str, float]], bool | None]
"""A function in place of a callback: it hears of evaluations alone, as `on_evaluation(agent, row)`."""
CallbackLike = Callback | OnEvaluation


class Followers:
    """The callbacks of one call of `learn`, asked one after the other."""

    def __init__(self, agent: Any, callbacks: "CallbackLike | Iterable[CallbackLike] | None"):
        """Takes a callback, a function, or several of them."""
        many = callbacks if isinstance(callbacks, list | tuple) else [] if callbacks is None else [callbacks]
        self._agent, self._all = agent, [_as_callback(each) for each in many]
        self._on_step = [each for each in self._all if type(each).on_step is not Callback.on_step]
        self.wants_to_stop = False

    def on_step(self, step: int) -> None:
        """Tells those who want to know of steps."""
        for each in self._on_step:
            self._hear(each.on_step(self._agent, step))

    def on_episode_end(self, episode: EndedEpisode) -> None:
        """Tells of an episode."""
        for each in self._all:
            self._hear(each.on_episode_end(self._agent, episode))

    def on_evaluation(self, row: dict[str, float]) -> None:
        """Tells of an evaluation."""
        for each in self._all:
            self._hear(each.on_evaluation(self._agent, dict(row)))

    def _hear(self, answer: bool | None) -> None:
        self.wants_to_stop |= isinstance(answer, bool | np.bool_) and not answer


class _Function(Callback):
    def __init__(self, function: OnEvaluation):
        self._function = function

    def on_evaluation(self, agent: Any, row: dict[str, float]) -> bool | None:
        return self._function(agent, row)


def _as_callback(callback: Any) -> Callback:
    if isinstance(callback, type) and issubclass(callback, Callback):
        raise UsageError(f"callback is the class {callback.__name__}: pass an object of it, {callback.__name__}()")
    if isinstance(callback, Callback):
        return callback
    if not callable(callback):
        raise UsageError(f"callback is {callback!r}: pass a function of (agent, row), or an object of pn.Callback")
    return _Function(callback)
