"""What an agent in training knows, packed for compiled calls, and the learning that goes on in the background.

One compiled call does all the learning that is due. It runs until its result is needed: with parameter noise that is
the next episode, since an episode's policy is fixed; with `overlap` the next call of its kind, so that acting is one
training behind. Nothing depends on timing.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.loops.evaluation import require_finite
from paramnoise.loops.feeds import Feed, Taken
from paramnoise.loops.programs import Packed, Programs, merge
from paramnoise.loops.state import TrainState, at_member, with_member


class Learning:
    """The state of training of one seed, or of several side by side, apart from the environments."""

    def __init__(self, programs: Programs, feed: Feed, key: Array, seeds: int | None, *, overlap: bool, waits: bool):
        """Makes the state before the first step.

        Args:
            programs: those of the agent and its exploration.
            feed: what is learned from.
            key: of the seed, or of each seed.
            seeds: how many train side by side; None: one, without an axis for it.
            overlap: learn in a thread; what acts is then one training behind.
            waits: whether acting waits for nothing, so that learning must: never be behind by a whole training.
        """
        self._programs, self._feed, self._key, self._seeds = programs, feed, key, seeds
        self._overlap, self._waits = overlap, waits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="learner")
        self._learning: Future[None] = Future()
        self._learning.set_result(None)
        self._training = self._learning
        state: TrainState = programs.init(key)
        if programs.is_flat:
            feed.experience = state.experience
        self.load(state.learner, state.losses, state.exploration)

    def load(self, learner: Any, losses: Any, explored: Any) -> None:
        """Takes another state in place of the one so far."""
        packed: tuple[Packed, Packed, Packed] = self._programs.pack(learner, losses, explored)
        self._learned, self.explored, source = packed
        self.source: Packed = source if self._programs.is_flat else self._learned
        """Where the policy that acts is taken from; `explored` is the state of exploration that acts with it."""
        self._adapted = self.explored
        self._trained = (self.source, self._adapted)
        self.times_learned = 0
        """Grows whenever the policy that acts may have changed."""

    @property
    def policies(self) -> Any:
        """The clean policy as learned so far; where seeds train side by side, with a leading axis of them."""
        return self._programs.policies(self._learned, self.explored)

    def take_in(self, step: int, *, all_of_it: bool = False) -> None:
        """Learns from what the feed holds by a step."""
        taken = self._feed.take(step, all_of_it=all_of_it)
        if taken is None:
            return
        if not self._overlap:
            if taken.trains and self._waits:
                jax.block_until_ready(self._trained)
            self._learn_from(taken)
            self.explored, (self.source, _) = self._adapted, self._trained
            self.times_learned += 1
            return
        if taken.trains:  # act on what the training before this one learned
            self._training.result()
            self.source, adapted = self._trained
            self.explored = self._programs.adopt(self.explored, adapted)
            self.times_learned += 1
        # From a thread of its own: JAX runs what one thread asks for in order, and acting must not wait.
        self._learning = self._thread.submit(self._learn_from, taken)
        self._training = self._learning if taken.trains else self._training

    def settle(self, step: int) -> None:
        """Takes in all that happened by a step, and waits until it is learned."""
        self.take_in(step, all_of_it=True)
        self._learning.result()

    def _learn_from(self, taken: Taken) -> None:
        explored = self._adapted if self._overlap else self.explored
        program = self._programs.learning(taken.variant, self._feed.axes)
        self._learned, news, self._feed.experience, source = program(
            self._learned, explored, self._feed.experience, self._key, np.int32(taken.step), *taken.args
        )
        self._adapted = merge(explored, news) if news else explored
        if taken.trains or not self._overlap:
            self._trained = (source if self._programs.is_flat else self._learned, self._adapted)
        if self._overlap or self._feed.waits:
            jax.block_until_ready(self._learned)
        self._feed.finish()
        if self._feed.waits and not all(np.isfinite(vector).all() for vector in self._learned):
            self.report(taken.step)  # says which number it is

    def report(self, step: int) -> list[dict[str, float]]:
        """What a log should show, of each seed; means start anew.

        Raises:
            RunError: if a number that learning reports is not finite.
        """
        explored = self._adapted if self._overlap else self.explored
        self._learned, reported, updates = self._programs.report(self._learned, explored, self._key, np.int32(step))
        self.source = self.source if self._programs.is_flat else self._learned
        shown, updates = jax.device_get((reported, updates))
        rows = []
        for member in range(self._seeds or 1):
            own, count = shown, updates
            if self._seeds is not None:
                own, count = {name: values[member] for name, values in shown.items()}, updates[member]
            row = {name: value.item() for name, value in own.items()}
            if count:
                which = f" of seed {member + 1} of {self._seeds}" if (self._seeds or 1) > 1 else ""
                losses = {f"{name}{which}": row[name] for name in self._programs.loss_names}
                require_finite(losses, step, self._feed.remedy)
            rows.append(row)
        return rows

    def state(self, member: int, step: int, *, experience: bool = True) -> TrainState:
        """The state of training of one seed; without its experience, of which several seeds' would be copied."""
        parts = self._programs.unpack(self._learned, self.explored)
        learner, losses, explored = parts if self._seeds is None else at_member(parts, member)
        key = self._key if self._seeds is None else self._key[member]
        stored = self.experience(member) if experience else ()
        return TrainState(learner, explored, stored, losses, key, jax.device_put(np.int32(step)))

    def experience(self, member: int) -> Any:
        """What one seed has stored on the device, as part of its state; frames are the feed's own to save."""
        if not self._programs.is_flat:
            return ()
        return self._feed.experience if self._seeds is None else at_member(self._feed.experience, member)

    def restore(self, member: int, state: TrainState) -> None:
        """Goes back to a state of one seed."""
        parts: Any = (state.learner, state.losses, state.exploration)
        if self._seeds is None:
            self._feed.experience = state.experience
        else:
            held = self._programs.unpack(self._learned, self.explored)
            parts = with_member(held, member, parts)
            if self._programs.is_flat:
                self._feed.experience = with_member(self._feed.experience, member, state.experience)
        self.load(*parts)

    def behind(self) -> dict[str, np.ndarray]:
        """With overlap: what acts and is behind what was learned, which a snapshot needs too."""
        vectors = jax.tree.leaves((self.source, self._adapted, self._trained)) if self._overlap else []
        return {str(i): np.asarray(vector) for i, vector in enumerate(vectors)}

    def restore_behind(self, vectors: dict[str, np.ndarray]) -> None:
        """Goes back to what `behind` gave."""
        if self._overlap:
            held = (self.source, self._adapted, self._trained)
            new = [jnp.array(vectors[str(i)]) for i in range(len(jax.tree.leaves(held)))]
            self.source, self._adapted, self._trained = jax.tree.unflatten(jax.tree.structure(held), new)

    def close(self) -> None:
        """Ends the thread that learns."""
        self._thread.shutdown()
