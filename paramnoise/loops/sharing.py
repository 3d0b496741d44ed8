"""Compiled programs that equal agents of one process share: compiling them takes longer than many a run."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from paramnoise.agents.base import Learner
from paramnoise.explorations.base import Exploration

Programs = TypeVar("Programs")

MOST_SHARED = 16
"""Programs of so many settings are kept for the next loop that needs the same."""
_shared: dict[Hashable, Any] = {}


def shared(
    learner: Learner, exploration: Exploration, others: tuple[Any, ...], make: Callable[[], Programs]
) -> Programs:
    """What `make` makes, or made before for an equal agent, its exploration and `others`; it must be pure."""
    settings = (learner.made_by, learner.config, learner.spaces, exploration, *others)
    try:
        programs = _shared.pop(settings, None) if learner.made_by else None
    except TypeError:  # a user's config that cannot be hashed
        return make()
    programs = programs or make()
    if learner.made_by:
        _shared[settings] = programs  # the last used is the last to be forgotten
    while len(_shared) > MOST_SHARED:
        del _shared[next(iter(_shared))]
    return programs
