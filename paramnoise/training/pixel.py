"""The pixel loop: environments that show frames, a replay that keeps each frame once, and several seeds side by side.

Emulation and learning overlap: once the actions of a step are on their way to the environments, one compiled call takes
in the step before and does all the training that is due, while the environments run. The next actions wait for both, so
that nothing depends on timing. Acting is thus on all that was learned from the step before last.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.agents.learner import Learner
from paramnoise.envs.frames import STACK, FrameEnvs, FrameStep
from paramnoise.exploration import Exploration
from paramnoise.policies import Policy
from paramnoise.training import core, frame_replay
from paramnoise.training.evaluation import EVALUATION_STREAM, first_columns, require_finite
from paramnoise.training.frame_replay import Drawn, FrameReplay, HostFrames, Slot
from paramnoise.training.memory import keep_freed_memory
from paramnoise.training.pixel_evaluation import first_scores
from paramnoise.training.pixel_programs import Leaves, PixelPrograms, in_batches

MakeEnvs = Callable[[Sequence[int], int, bool], FrameEnvs]
"""The seeds, the environments of each, and whether they are for training -> the environments."""


class Pending(NamedTuple):
    """A step that happened and is not learned from yet; arrays with leading axes of seeds and environments."""

    slot: Slot
    truncated: np.ndarray
    final_frame: np.ndarray | None


class PixelLoop:
    """Training of one agent on frames, once for each of several seeds; owns the side effects."""

    def __init__(
        self,
        learner: Learner,
        exploration: Exploration,
        make_envs: MakeEnvs,
        *,
        seeds: Sequence[int],
        num_envs: int,
        eval_max_steps: int,
        log_every: int | None = None,
        replay_on: str = "auto",
    ):
        """Makes the environments and the state; nothing is stepped yet.

        Args:
            learner: the agent.
            exploration: its exploration.
            make_envs: makes environments of several seeds.
            seeds: each decides every random draw of its own run.
            num_envs: environments of each seed, stepped together, each with its own exploration.
            eval_max_steps: steps after which an evaluation's episode is cut.
            log_every: environment steps of a seed between rows of progress without an evaluation; None: no such rows.
            replay_on: where frames are kept: `device`, `host`, or `auto`, which is the device if it is a GPU.
        """
        keep_freed_memory()
        self.learner, self.exploration, self.seeds, self.num_envs = learner, exploration, tuple(seeds), num_envs
        self.step = 0
        self._make_envs, self._eval_max_steps, self._log_every = make_envs, eval_max_steps, log_every
        self.envs = make_envs(self.seeds, num_envs, True)
        self._keys = jnp.stack([jax.random.PRNGKey(seed) for seed in self.seeds])
        self._host_keys = np.asarray(self._keys)
        stack = jax.ShapeDtypeStruct((num_envs, STACK, *self.envs.frame_shape), jnp.uint8)
        self.programs = PixelPrograms(learner, exploration, self._keys, stack)
        self._learned, self._explored = self.programs.init(self._keys)
        is_host = replay_on == "host" or (replay_on == "auto" and jax.default_backend() == "cpu")
        self.replay: FrameReplay | list[HostFrames] = self._empty_replay(is_host)
        self.learns_from = 0
        self.stack = jnp.zeros((len(self.seeds), *stack.shape), jnp.uint8)
        self.frame: Any = self._by_seed(self.envs.restart())
        self.starts = np.ones(self._shape, bool)
        self.resets = np.ones(self._shape, bool)
        self.pending: Pending | None = None
        self.running_return = np.zeros(self._shape)
        self.games = np.zeros(len(self.seeds), np.int64)
        self.ended: list[list[float]] = [[] for _ in self.seeds]

    def run(
        self,
        steps: int,
        *,
        eval_every: int,
        eval_episodes: int,
        on_step: Callable[[int], None] = lambda step: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[list[dict[str, float]]]:
        """Trains until `steps` environment steps of each seed in all, and yields rows of progress, one of each seed.

        A row with a noise-free evaluation follows every `eval_every` steps and the last step, one without every
        `log_every`. `on_step` hears the step count after each vector step; `should_stop` is asked before each, where a
        snapshot can be taken.
        """
        while self.step < steps and not should_stop():
            before = self.step
            self._step()
            on_step(self.step)
            if self.step // eval_every > before // eval_every or self.step >= steps:
                yield self._rows(eval_episodes)
            elif self._log_every is not None and self.step // self._log_every > before // self._log_every:
                yield self._rows(0)

    @property
    def leaves(self) -> tuple[Leaves, Leaves]:
        """The arrays of what was learned and of exploration, each with a leading axis of seeds."""
        return self._learned, self._explored

    @leaves.setter
    def leaves(self, leaves: tuple[Leaves, Leaves]) -> None:
        self._learned, self._explored = leaves

    def policy(self, member: int) -> Policy:
        """The clean policy of one of the seeds, as learned so far."""
        return self.programs.policy([leaf[member] for leaf in self._learned])

    def evaluate(
        self, episodes: int, seeds: Sequence[int], watch: Callable[[np.ndarray], None] | None = None
    ) -> np.ndarray:
        """The scores of noise-free games on environments of their own, [seeds, episodes].

        `watch` sees the frames of all the games, until a first game of a seed ends.
        """
        envs = self._make_envs([EVALUATION_STREAM + seed for seed in seeds], episodes, False)
        act = functools.partial(self.programs.noise_free, self._learned)
        scores = first_scores(act, envs, (len(seeds), episodes), self._eval_max_steps, watch)
        envs.close()
        return scores

    def replay_of(self, member: int) -> FrameReplay | HostFrames:
        """The replay of one of the seeds."""
        if isinstance(self.replay, list):
            return self.replay[member]
        return jax.tree.map(lambda x: x[member], self.replay)

    def fill_replay(self, member: int, parts: dict[str, np.ndarray]) -> None:
        """Puts back what replay held: its arrays by name, their first rows."""
        new = FrameReplay(Slot(*(parts[name] for name in Slot._fields)), parts["is_final"], parts["written"])
        rows = parts["is_final"].shape[0]
        if isinstance(self.replay, list):
            held = self.replay[member].state
            for old, part in zip(jax.tree.leaves(held), jax.tree.leaves(new), strict=True):
                old[: len(part)] = part
            return
        slots, is_final = jax.tree.map(
            lambda old, part: old.at[member, :rows].set(part), self.replay[:2], (new.slots, new.is_final)
        )
        self.replay = FrameReplay(slots, is_final, self.replay.written.at[member].set(new.written))

    def close(self) -> None:
        """Closes all environments."""
        self.envs.close()

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.seeds), self.num_envs

    def _by_seed(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(*self._shape, *array.shape[1:])

    def _empty_replay(self, is_host: bool) -> FrameReplay | list[HostFrames]:
        nothing = np.zeros(self.num_envs)
        frame = np.zeros((self.num_envs, *self.envs.frame_shape), np.uint8)
        action, reward, flag = nothing.astype(np.int32), nothing.astype(np.float32), nothing.astype(bool)
        slot = Slot(frame, flag, action, reward, flag)
        capacity = self.learner.config.buffer_size
        if is_host:
            return [HostFrames(capacity, slot) for _ in self.seeds]
        make = jax.jit(jax.vmap(lambda _: frame_replay.init(capacity, slot)))
        return make(self._keys)

    def _step(self) -> None:
        """One step of every environment, and all the learning that is due after the step before."""
        actions = self._act()
        self.envs.send(actions.reshape(-1))
        if self.pending is not None:
            self._take_in(self.pending)
        self._count(actions, self.envs.recv())

    def _act(self) -> np.ndarray:
        """The actions on what the environments show: at random until learning starts."""
        step = np.int32(self.step)
        if not isinstance(self.replay, list):
            self.frame = jax.device_put(self.frame)  # once, for acting and for replay
        if self.step < self.learner.config.learning_starts:
            self.stack = self.programs.push(self.stack, self.frame, self.resets)
            return np.stack([self._random_actions(seed) for seed in self.seeds])
        self._begin(step)
        chosen, self.stack, changed = self.programs.act(
            self._learned, self._explored, self._keys, step, self.stack, self.frame, self.resets
        )
        self._explored = changed or self._explored
        return np.asarray(chosen)

    def _random_actions(self, seed: int) -> np.ndarray:
        random = np.random.default_rng((seed, core.ACT, self.step))
        return random.integers(0, self.envs.num_actions, self.num_envs, dtype=np.int32)

    def _begin(self, step: np.int32) -> None:
        """Prepares the environments in which an episode starts."""
        for member, env in np.argwhere(self.starts).astype(np.int32):
            self._explored = self.programs.begin(self._learned, self._explored, self._keys, step, member, env)
        self.starts[:] = False

    def _take_in(self, pending: Pending) -> None:
        """Stores a step, and does all that is due after it."""
        after = self.step
        before = after - self.num_envs
        config = self.learner.config
        train_steps = core.updates_by(config, after) - core.updates_by(config, max(before, self.learns_from))
        # Of the very first step nothing can be drawn: what it led to is not in replay yet.
        train_steps = train_steps if after > max(self.learns_from, self.num_envs) else 0
        adaptations = core.adaptations_by(self.exploration, after) - core.adaptations_by(self.exploration, before)
        self.pending = None
        if isinstance(self.replay, list):
            self._learn_on_host(self.replay, pending, train_steps, adaptations)
        else:
            self.replay = self._learn_on_device(self.replay, pending, train_steps, adaptations)

    def _learn_on_device(
        self, replay: FrameReplay, pending: Pending, train_steps: int, adaptations: int
    ) -> FrameReplay:
        if train_steps or adaptations:
            learn = self.programs.learn_from_device(train_steps)
            self._learned, changed, replay = learn(
                self._learned, self._explored, self._keys, np.int32(self.step), adaptations, replay, pending.slot
            )
            self._explored = self.programs.adopt(self._explored, changed)
        else:
            replay = self.programs.add(replay, pending.slot)
        if pending.final_frame is not None:
            replay = self.programs.add_final(replay, pending.final_frame, pending.truncated)
        return replay

    def _learn_on_host(self, replays: list[HostFrames], pending: Pending, train_steps: int, adaptations: int) -> None:
        config = self.learner.config
        drawn = []
        for i, replay in enumerate(replays):
            replay.add(Slot(*(np.asarray(part[i]) for part in pending.slot)))
            if train_steps or adaptations:
                count = max(train_steps, 1) * config.batch_size
                draws = replay.draw(self._host_keys[i], np.int32(self.step), count)
                drawn.append(in_batches(draws, config.batch_size))
            if pending.final_frame is not None:
                replay.add_final(pending.final_frame[i], pending.truncated[i])
        if drawn:
            batches = Drawn(*(np.stack(parts) for parts in zip(*drawn, strict=True)))
            learn = self.programs.train if train_steps else self.programs.adapt
            self._learned, changed = learn(
                self._learned, self._explored, self._keys, np.int32(self.step), adaptations, batches
            )
            self._explored = self.programs.adopt(self._explored, changed)

    def _count(self, actions: np.ndarray, after: FrameStep) -> None:
        """Takes note of what a step led to."""
        reward, terminated = self._by_seed(after.reward), self._by_seed(after.terminated)
        final = None if after.final_frame is None else self._by_seed(after.final_frame)
        slot = Slot(self.frame, self.resets, actions, reward, terminated)
        self.pending = Pending(slot, self._by_seed(after.truncated), final)
        self.frame, self.resets = self._by_seed(after.frame), self._by_seed(after.resets)
        self.starts = self.starts | self._by_seed(after.starts)
        self.step += self.num_envs
        self.running_return += reward
        if self.resets.any():
            for member, resets in enumerate(self.resets):
                self.ended[member] += self.running_return[member, resets].tolist()
            self.games += self.resets.sum(axis=1)
            self.running_return[self.resets] = 0.0

    def _rows(self, eval_episodes: int) -> list[dict[str, float]]:
        """A row of progress of each seed; means start anew."""
        scores = np.full((len(self.seeds), 1), np.nan)
        if eval_episodes:
            scores = self.evaluate(eval_episodes, [EVALUATION_STREAM * seed + self.step for seed in self.seeds])
        self._learned, reported, train_steps = self.programs.report(self._learned, self._explored, np.int32(self.step))
        shown, ended = jax.device_get(reported), self.ended
        self.ended = [[] for _ in self.seeds]
        rows = []
        for member in range(len(self.seeds)):
            columns = {name: values[member].item() for name, values in shown.items()}
            if train_steps[member]:
                require_finite({name: columns[name] for name in self.programs.loss_names}, self.step)
            counted = first_columns(self.step, int(self.games[member]), scores[member], ended[member])
            rows.append({**counted, **columns})
        return rows
