"""Environments stepped together, one step after the other, and the learning that follows: the heart of the host loop.

Actions are chosen in NumPy where the exploration has a twin (`fast.HostActor`), and else by one small compiled call.
What happened goes to the feed of the agent's experience, and from there into learning when it is due. On frames that is
while the emulators do the next step, so that acting is one step behind.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.agents.base import Learner
from paramnoise.experience.frames import resolved_place
from paramnoise.explorations.base import Exploration, is_fixed_by_episode
from paramnoise.keys import ACT, RANDOM
from paramnoise.loops.environments import ALL, EnvSource, EnvStep, with_terminal_limits
from paramnoise.loops.evaluation import Progress
from paramnoise.loops.fast.host_actor import BLOCK, HostActor, HostActors
from paramnoise.loops.fast.memory import keep_freed_memory
from paramnoise.loops.feeds import Feed, below
from paramnoise.loops.feeds.frames import FrameFeed
from paramnoise.loops.feeds.replay import ReplayFeed
from paramnoise.loops.feeds.rollout import RolloutFeed
from paramnoise.loops.frames import Stacks
from paramnoise.loops.learning import Learning
from paramnoise.loops.programs import merge, shared_programs
from paramnoise.loops.state import TrainState
from paramnoise.networks.policies import Policy
from paramnoise.validation import UsageError

_LOW, _HIGH = np.array(-1.0, np.float32), np.array(1.0, np.float32)
"""The bounds of continuous actions, as NumPy takes them fastest."""


class Stepping:
    """Training on environments that are stepped together, once for each seed; owns the side effects."""

    def __init__(
        self,
        learner: Learner,
        exploration: Exploration,
        source: EnvSource,
        *,
        seeds: Sequence[int],
        num_envs: int,
        overlap: bool,
        terminal_time_limits: bool,
        replay_on: str,
        save_replay: bool,
    ):
        """Makes the environments and the state; nothing is stepped yet. The arguments are those of `HostLoop`."""
        self.learner, self.exploration, self.seeds = learner, exploration, tuple(seeds)
        self._terminal_time_limits = terminal_time_limits
        self._num_envs, self._shape = num_envs, (len(self.seeds), num_envs)
        self._shows_frames = learner.spaces.shows_frames
        side_by_side = len(self.seeds) if self._shows_frames or len(self.seeds) > 1 else None
        self._has_axis = side_by_side is not None
        if learner.experience == "rollout" and self._has_axis:
            raise UsageError("seeds that learn from replay train side by side, and not those that learn from batches")
        self._envs = source.make_envs(self.seeds, num_envs, trains=True)
        self._env_parts: dict[int, dict[str, np.ndarray]] = {}
        self._obs = self._envs.restart()
        self._starts, self._turns = np.ones(self._envs.num_envs, bool), 0
        self._resets, self._any_start = self._starts.copy(), True
        self.progress = Progress(self.seeds, num_envs)
        self._stacks = Stacks((*self._shape, *learner.spaces.observation)) if self._shows_frames else None
        on_host = resolved_place(replay_on) == "host"
        self._frames_to_device = self._shows_frames and not on_host
        self._feed = self._make_feed(side_by_side, on_host, save_replay)
        keys = jnp.stack([jax.random.PRNGKey(seed) for seed in self.seeds])  # plain arrays, saved as all others are
        self._key = keys if self._has_axis else keys[0]
        obs = jax.ShapeDtypeStruct((num_envs, *learner.spaces.observation), self._obs.dtype)
        self._programs = shared_programs(learner, exploration, self._feed, keys[0], obs, side_by_side)
        fits = not self._shows_frames and HostActor.fits(exploration, self._programs.policy_shape)
        block = self._feed.block or BLOCK
        self._actors = HostActors(exploration, self.seeds, num_envs, block) if fits else None
        self._is_fixed = is_fixed_by_episode(exploration)
        if not overlap:  # with it, what waits would decide how far behind acting is
            self._feed.hold(for_episodes=fits and self._is_fixed)
        self._learning = Learning(self._programs, self._feed, self._key, side_by_side, overlap=overlap, waits=fits)
        self._loaded_at = -1
        self._unpacked: tuple[Any, list[Any]] = (None, [])
        self._clips = learner.experience == "rollout" and not learner.spaces.is_discrete

    def _make_feed(self, side_by_side: int | None, on_host: bool, save_replay: bool) -> Feed:
        """The feed of the experience that the learner asks for."""
        learner, exploration = self.learner, self.exploration
        if learner.experience == "rollout":
            return RolloutFeed(learner, exploration, self._obs, skips=self._envs.skips)
        if not self._shows_frames:
            return ReplayFeed(learner, exploration, self._num_envs, seeds=side_by_side, skips=self._envs.skips)
        keep_freed_memory()
        return FrameFeed(learner, exploration, self.seeds, self._num_envs, on_host=on_host, saves_replay=save_replay)

    def advance(self, on_step: Callable[[int], None], should_stop: Callable[[], bool], until: int) -> bool:
        """One step of every environment, and all the learning that is due."""
        feed, progress = self._feed, self.progress
        shown = self._see()
        actions = self._act(shown)
        # On-policy, continuous actions are kept as sampled and executed within bounds.
        self._envs.send(np.minimum(np.maximum(actions, _LOW), _HIGH) if self._clips else actions)
        if feed.is_beside:
            self._learning.take_in(progress.step)
        after = self._envs.recv()
        if self._terminal_time_limits:
            after = with_terminal_limits(after)
        feed.add(shown if self._stacks is None else self._frames, self._resets, actions, after)
        before = progress.step
        self._turns += 1
        progress.step += self._num_envs if after.skipped is None else self._num_envs - int(after.skipped.sum())
        if not feed.is_beside and feed.is_due(before, progress.step):
            self._learning.take_in(progress.step)
        self._count(after)
        on_step(progress.step)
        return True

    @property
    def policies(self) -> Policy:
        """The clean policy as learned so far; with a leading axis of seeds where there is one."""
        self._learning.settle(self.progress.step)
        return self._learning.policies

    def columns(self) -> list[dict[str, float]]:
        """What a row of progress shows of learning and exploration, of each seed; means start anew."""
        self._learning.settle(self.progress.step)
        return self._learning.report(self.progress.step)

    def state(self, member: int = 0, *, experience: bool = True) -> TrainState:
        """The state of training of one seed, with all that happened taken in."""
        self._learning.settle(self.progress.step)
        return self._learning.state(member, self.progress.step, experience=experience)

    def snapshot(self, member: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        """All that one seed needs to go on as if never interrupted, alone or beside others.

        Replay in the host's memory is not copied: write the snapshot down before training goes on.
        """
        state, here = self.state(member), self._part(member)
        own = {
            "seeds": np.array([self.seeds[member]]),
            "starts": self._starts[here].copy(),
            "resets": self._resets[here].copy(),
        }
        if self._stacks is not None:
            own["stacks"] = np.asarray(self._stacks.array[member])
        parts = {
            "behind": self._learning.behind(),
            "env": self._envs.snapshot(here if len(self.seeds) > 1 else ALL),
            "feed": self._feed.snapshot(member),
        }
        return state, own | {
            f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()
        }

    def restore(self, member: int, state: TrainState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot; the environments replay their current episodes once every seed has one."""
        if (saved := own["seeds"].tolist()) != [self.seeds[member]]:
            raise UsageError(f"the checkpoint is of seed {' '.join(map(str, saved))}, and here is {self.seeds[member]}")
        self._learning.settle(self.progress.step)
        self._learning.restore(member, state)
        self._learning.restore_behind(below("behind/", own))
        self._loaded_at = -1
        self.progress.step = int(state.step)
        self._turns = self.progress.step // self._num_envs
        here = self._part(member)
        self._starts[here], self._resets[here] = own["starts"], own["resets"]
        self._restore_environments(member, below("env/", own))
        self._any_start = bool(self._starts.any())
        if self._stacks is not None:
            self._stacks.array = self._stacks.array.at[member].set(own["stacks"])
        parts = below("feed/", own) | ({"stacks": own["stacks"]} if self._stacks is not None else {})
        self._feed.restore(member, parts, self.progress.step)

    def _restore_environments(self, member: int, part: dict[str, np.ndarray]) -> None:
        """Keeps one seed's part of a snapshot; with the last one the environments go back to it."""
        self._env_parts[member] = part
        if len(self._env_parts) < len(self.seeds):
            return
        parts, self._env_parts = [self._env_parts[i] for i in range(len(self.seeds))], {}
        self._obs = self._envs.restore(self._envs.joined(parts))
        if not self._envs.replays:
            self._starts[:] = self._resets[:] = True
            for each in range(len(self.seeds)):
                self.progress.drop_running(each)

    def restore_learned(self, member: int, state: TrainState) -> None:
        """Knows what a state has learned, and is at its step; experience and environments are left as they are."""
        self._learning.restore(member, state._replace(experience=self._learning.experience(member)))
        self._loaded_at, self.progress.step = -1, int(state.step)

    def close(self) -> None:
        """Closes all environments, and ends the thread that learns."""
        self._learning.close()
        self._envs.close()

    def _part(self, member: int) -> slice:
        return slice(member * self._num_envs, (member + 1) * self._num_envs)

    def _see(self) -> Any:
        """What the environments show, as the agent sees it."""
        if self._stacks is None:
            return self._obs
        frames = self._obs.reshape(*self._shape, *self._obs.shape[1:])
        self._frames: Any = jax.device_put(frames) if self._frames_to_device else frames  # once, for stacks and replay
        return self._stacks.see(self._frames, self._resets.reshape(self._shape))

    def _act(self, shown: Any) -> np.ndarray:
        """The actions of all environments; episodes begin where they are due."""
        step, learning = self.progress.step, self._learning
        if self._feed.acts_at_random(step):
            return np.concatenate([self._random_actions(seed) for seed in self.seeds])
        if self._any_start:
            if self._feed.holds:
                learning.take_in(step, all_of_it=True)
            self._begin_episodes(np.int32(step))
        if self._any_start or self._feed.begins:
            self._begin_segments()
        if self._any_start:
            self._starts, self._any_start = np.zeros_like(self._starts), False  # a new one: a program may still read it
        if self._actors is not None:
            self._load_actors(self._actors)
            return self._actors.act(shown, step, self._turns)
        if self._has_axis and not self._shows_frames:
            shown = shown.reshape(*self._shape, *shown.shape[1:])
        actions, news = self._programs.act(learning.explored, learning.source, self._key, np.int32(step), shown)
        learning.explored = merge(learning.explored, news) if news else learning.explored
        actions = np.asarray(actions)
        return actions.reshape(-1, *actions.shape[2:]) if self._has_axis else actions

    def _random_actions(self, seed: int) -> np.ndarray:
        """Uniformly random ones of one seed: a function of the seed and the step."""
        spaces, step = self.learner.spaces, self.progress.step
        if spaces.is_discrete:
            return np.random.default_rng((seed, ACT, step)).integers(0, spaces.actions, self._num_envs, dtype=np.int32)
        draws = np.random.default_rng((seed, RANDOM, step)).random((self._num_envs, spaces.actions), np.float32)
        return 2 * draws - 1

    def _begin_episodes(self, step: np.int32) -> None:
        """Prepares the environments in which an episode starts."""
        learning, programs, self._loaded_at = self._learning, self._programs, -1
        if not learning.explored:
            return
        if not self._shows_frames:
            starts = self._starts.reshape(self._shape) if self._has_axis else self._starts
            learning.explored = programs.begin(learning.explored, learning.source, self._key, step, starts)
            return
        for member, env in np.argwhere(self._starts.reshape(self._shape)).astype(np.int32):
            learning.explored = programs.begin_one(learning.explored, learning.source, self._key, step, member, env)

    def _begin_segments(self) -> None:
        """Tells the feed where episodes or its batch begin, and what behaviour adds to the parameters from there on."""
        needed = self._feed.waits and self.learner.needs_offsets
        offsets = self.exploration.offsets(self._explored_on_host()[0]) if needed else None
        self._feed.begin(self._starts, None if offsets is None else np.asarray(offsets))

    def _explored_on_host(self) -> list[Any]:
        """The state of exploration that acts, of each seed, in NumPy; unpacked once for each that there is."""
        explored = self._learning.explored
        if self._unpacked[0] is not explored:
            self._unpacked = (explored, [self._programs.explored.unpack(own) for own in self._on_host(explored)])
        return self._unpacked[1]

    def _on_host(self, packed: list[Any]) -> list[list[np.ndarray]]:
        """What is packed, of each seed, in NumPy."""
        vectors = list(map(np.asarray, packed))
        return [[vector[i] for vector in vectors] for i in range(len(self.seeds))] if self._has_axis else [vectors]

    def _load_actors(self, actors: HostActors) -> None:
        """Gives the actors the policies of now, unless they have them: an episode's may be fixed when it begins."""
        learning = self._learning
        fresh = self._loaded_at >= 0 and (self._is_fixed or self._loaded_at == learning.times_learned)
        if not fresh:
            policies = self._programs.policy(list(map(np.asarray, learning.source)))
            actors.load(policies, self._explored_on_host())
            self._loaded_at = learning.times_learned

    def _count(self, after: EnvStep) -> None:
        """Takes note of what a step led to."""
        self._obs, self._resets = after.obs, after.resets
        ended = self.progress.count(after.reward, after.resets)
        if ended or (after.starts is not after.resets and after.starts.any()):  # a game may go on after a lost life
            self._starts |= after.starts
            self._any_start = True
