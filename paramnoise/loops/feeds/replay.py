"""The feed of replay: transitions wait on the host until what is learned from them is needed, then go in together."""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jax import Array

from paramnoise.agents.base import Learner
from paramnoise.experience.replay import Transition
from paramnoise.explorations.base import Exploration
from paramnoise.loops import state as states
from paramnoise.loops import step as steps
from paramnoise.loops.environments import EnvStep
from paramnoise.loops.feeds import Taken
from paramnoise.loops.state import TrainState
from paramnoise.validation import UsageError

MOST_PENDING = 1_000
"""Vector steps that wait on the host at the most."""
HELD = 32
"""Vector steps that wait where training is due more often and acting does not need it: one call then learns from all of
them, step by step, and costs little more than its train steps."""


class ReplayFeed:
    """Transitions of vectors; replay is on the device, part of the state of training."""

    is_beside = False
    axes: tuple[int | None, ...] = (0, None)
    block: int | None = None
    waits = False
    begins = False
    remedy = "a lower rate may help"

    def __init__(
        self,
        learner: Learner,
        exploration: Exploration,
        num_envs: int,
        *,
        seeds: int | None = None,
        skips: bool = False,
    ):
        """Begins with nothing.

        Args:
            learner: the agent.
            exploration: its exploration.
            num_envs: environments of each seed, stepped together.
            seeds: how many train side by side; None: one, without an axis for it.
            skips: whether an environment may skip a step.
        """
        if skips and seeds is not None:
            raise UsageError("environments that skip a step to start their next episode train one seed alone")
        if skips and learner.drawing.n_step > 1:
            raise UsageError(
                f"n_step is {learner.drawing.n_step}, but environments that skip a step to start their next episode do "
                "not go on row by row: make the vector environment with AutoresetMode.SAME_STEP, or set n_step 1"
            )
        self._learner, self._exploration, self._num_envs, self._seeds = learner, exploration, num_envs, seeds
        self._capacity = min(max(learner.config.train_every // num_envs, 1), MOST_PENDING)
        self._policy_every = 1
        self._pending: list[Transition] = []
        self._loose: Transition | None = None  # less than a batch, of environments that skip steps
        self._before = 0
        self._trains = False
        self.holds = False
        self.experience: Any = ()
        agent = (learner, exploration)
        self.init: Callable[[Array, Array], TrainState] = functools.partial(states.init_with_replay, *agent)
        self.learn: Callable[..., TrainState] = functools.partial(learn, *agent)
        self.settings: Hashable = ()

    def hold(self, *, for_episodes: bool) -> None:
        """Lets steps wait until they are many, or the policy changes; whoever needs what is learned takes all of them.

        One call then learns from all that wait, step by step.
        """
        config, self._policy_every = self._learner.config, self._learner.policy_every
        between = self._policy_every * config.train_every // (config.train_steps * self._num_envs)
        self._capacity = min(max(between, self._capacity), MOST_PENDING)
        if for_episodes and self._capacity < HELD:
            self.holds, self._capacity = True, HELD

    def acts_at_random(self, step: int) -> bool:
        """As long as the learner asks for it; none does unless its config says so."""
        return step < self._learner.random_steps

    def begin(self, starts: np.ndarray, offsets: np.ndarray | None) -> None:
        """Nothing: `add` hears of it too."""

    def add(self, obs: Any, resets: np.ndarray, actions: np.ndarray, after: EnvStep) -> None:
        """Takes in a step."""
        happened: Any = (obs, actions, after.reward, after.next_obs, after.terminated)  # NumPy, as jit takes it
        if after.skipped is None:
            starts: Any = resets if self._learner.drawing.n_step > 1 else None
            self._pending.append(Transition(*happened)._replace(starts=starts))
        else:
            self._add_loose(Transition(*(part[~after.skipped] for part in happened)))

    def _add_loose(self, rows: Transition) -> None:
        """Takes in the transitions of some environments, which wait until they are as many as a batch has."""
        if self._loose is not None:
            rows = jax.tree.map(lambda *parts: np.concatenate(parts), self._loose, rows)
        if len(rows.reward) >= self._num_envs:
            self._pending.append(jax.tree.map(lambda part: part[: self._num_envs], rows))
            rows = jax.tree.map(lambda part: part[self._num_envs :], rows)
        self._loose = rows

    @property
    def _num_loose(self) -> int:
        return 0 if self._loose is None else len(self._loose.reward)

    def is_due(self, before: int, after: int) -> bool:
        """Whether the policy or the exploration changes between these counts, if that matters, or no more can wait."""
        if self._loose is not None:  # what waits for a whole batch is not learned from yet
            before, after = self._before, after - self._num_loose
            self._before = after
        config, due = self._learner.config, steps.adaptations_by
        trained, trains = steps.updates_by(config, before), steps.updates_by(config, after)
        self._trains |= trains > trained
        is_full = len(self._pending) == self._capacity
        if self.holds or is_full:
            return is_full
        adapts = due(self._exploration, after) > due(self._exploration, before)
        return adapts or trains // self._policy_every > trained // self._policy_every

    def take(self, step: int, *, all_of_it: bool = False) -> Taken | None:
        """Hands over all steps that wait, padded to one shape."""
        if not self._pending:
            return None
        count = len(self._pending)
        padded = [*self._pending, *[self._pending[-1]] * (self._capacity - count)]  # one shape, one program
        batches = padded[0] if self._capacity == 1 else Transition(*map(_stacked, zip(*padded, strict=True)))
        if self._seeds is not None:
            batches = Transition(*map(self._by_seed, batches))
        self._pending = []
        trains, self._trains = self._trains, False
        first = step - self._num_loose - count * self._num_envs
        return Taken(None, (batches, np.int32(count)), first, trains)

    def _by_seed(self, steps: Any) -> Any:
        """One field of steps of all environments with the axis of seeds first, if there is such a field."""
        if steps is None:
            return None
        axis = 0 if self._capacity == 1 else 1
        shape = (*steps.shape[:axis], self._seeds, self._num_envs, *steps.shape[axis + 1 :])
        return np.moveaxis(steps.reshape(shape), axis, 0)

    def finish(self) -> None:
        """Nothing."""

    def snapshot(self, member: int) -> dict[str, np.ndarray]:
        """Nothing: all that waited was taken first, and replay is part of the state."""
        return {}

    def restore(self, member: int, parts: dict[str, np.ndarray], step: int) -> None:
        """Forgets what waits."""
        self._pending, self._loose, self._before = [], None, step


def _stacked(parts: tuple[Any, ...]) -> Any:
    """One field of all steps as one array, if they have it."""
    return None if parts[0] is None else np.array(parts)


def learn(
    learner: Learner,
    exploration: Exploration,
    variant: Hashable,
    state: TrainState,
    batches: Transition,
    count: Array,
) -> TrainState:
    """Takes in `count` of the steps and does all that is due."""

    def one(i: Array, state: TrainState) -> TrainState:
        return steps.learn(learner, exploration, state, jax.tree.map(lambda rows: rows[i], batches))

    if batches.reward.ndim == 1:  # an agent that trains at every step, such as DQN: no loop around its one step
        return steps.learn(learner, exploration, state, batches)
    return jax.lax.fori_loop(0, count, one, state)
