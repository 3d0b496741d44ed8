"""Environments stepped together, one step after the other, and the learning that follows: the heart of the host loop.

Actions are chosen in NumPy where the exploration has a twin (`fast.HostActor`), and else by one small compiled call.
What happened goes to the feed of the agent's experience; when learning is due one compiled call does all of it. It runs
in the background until its result is needed: with parameter noise that is the next episode, since an episode's policy
is fixed; with `overlap` the next call of its kind, so that acting is one training behind; on frames it runs while the
emulators do the next step, so that acting is one step behind. Nothing depends on timing.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.agents.base import Learner
from paramnoise.explorations.base import Exploration
from paramnoise.keys import ACT
from paramnoise.loops.environments import EnvSource, EnvStep
from paramnoise.loops.evaluation import Progress, require_finite
from paramnoise.loops.fast.host_actor import BLOCK, HostActor
from paramnoise.loops.fast.memory import keep_freed_memory
from paramnoise.loops.feeds import Feed, Taken
from paramnoise.loops.feeds.frames import FrameFeed, below
from paramnoise.loops.feeds.replay import ReplayFeed
from paramnoise.loops.feeds.rollout import RolloutFeed
from paramnoise.loops.frames import Stacks
from paramnoise.loops.programs import Packed, Programs, merge
from paramnoise.loops.step import TrainState
from paramnoise.networks.policies import Policy
from paramnoise.validation import UsageError


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
        replay_on: str,
        save_replay: bool,
    ):
        """Makes the environments and the state; nothing is stepped yet. The arguments are those of `HostLoop`."""
        self.learner, self.exploration, self.seeds = learner, exploration, tuple(seeds)
        self._num_envs, self._shape = num_envs, (len(self.seeds), num_envs)
        self._envs = source.make_envs(self.seeds, num_envs, trains=True)
        self._obs = self._envs.restart()
        self._starts = np.ones(self._envs.num_envs, bool)
        self._resets, self._any_start = self._starts.copy(), True
        self.progress = Progress(self.seeds, num_envs)
        self._shows_frames = learner.spaces.shows_frames
        is_axis = self._shows_frames  # only large programs are worth an axis of seeds
        if len(self.seeds) > 1 and not is_axis:
            raise UsageError("only seeds that learn from frames train side by side")
        self._stacks = Stacks((*self._shape, *learner.spaces.observation)) if self._shows_frames else None
        self._frames_to_device = self._shows_frames and not _on_host(replay_on)
        if self._shows_frames:
            keep_freed_memory()
        self._feed = self._make_feed(replay_on, save_replay)
        self._overlap = overlap
        keys = np.stack([np.asarray(jax.random.PRNGKey(seed)) for seed in self.seeds])
        # A plain array, as are all leaves: it is saved and passed like any other.
        self._key = jnp.asarray(keys if is_axis else keys[0])
        obs = jax.ShapeDtypeStruct((num_envs, *learner.spaces.observation), self._obs.dtype)
        template = jax.eval_shape(lambda key: self._feed.init(key, jnp.zeros(obs.shape, obs.dtype)), keys[0])
        self._programs = Programs(
            learner, exploration, template, obs, self._feed.learn, len(self.seeds) if is_axis else None
        )
        start = jax.jit(lambda key: self._feed.init(key, jnp.zeros(obs.shape, obs.dtype)))
        self._learner_thread = ThreadPoolExecutor(1, thread_name_prefix="learner")
        self._learning: Future[None] = Future()
        self._learning.set_result(None)
        self._training = self._learning
        fits = HostActor.fits(exploration, jax.eval_shape(learner.policy, template.learner))
        block = self._feed.block or BLOCK
        self._actor = HostActor(exploration, self.seeds[0], num_envs, block) if fits and not is_axis else None
        state: TrainState = (jax.vmap(start) if is_axis else start)(self._key)
        if not self._shows_frames:
            self._feed.experience = state.experience
        self._adopt_state(state.learner, state.losses, state.exploration)

    def _make_feed(self, replay_on: str, save_replay: bool) -> Feed:
        """The feed of the experience that the learner asks for."""
        if self.learner.experience == "rollout":
            return RolloutFeed(self.learner, self.exploration, self._obs)
        if not self._shows_frames:
            return ReplayFeed(self.learner, self.exploration, self._num_envs)
        return FrameFeed(
            self.learner,
            self.exploration,
            self.seeds,
            self._num_envs,
            on_host=_on_host(replay_on),
            saves_replay=save_replay,
        )

    def advance(self, on_step: Callable[[int], None], should_stop: Callable[[], bool]) -> bool:
        """One step of every environment, and all the learning that is due."""
        feed, progress = self._feed, self.progress
        shown = self._see()
        actions = self._act(shown)
        self._envs.send(self._executed(actions))
        if feed.is_beside:
            self._take_in()
        after = self._envs.recv()
        feed.add(shown if self._stacks is None else self._frames, self._resets, actions, after)
        before = progress.step
        progress.step += self._num_envs
        if not feed.is_beside and feed.is_due(before, progress.step):
            self._take_in()
        self._count(after)
        on_step(progress.step)
        return True

    @property
    def policies(self) -> Policy:
        """The clean policy as learned so far; where seeds train side by side, with a leading axis of them."""
        self._settle()
        learner, _ = self._programs.learned.unpack(self._learned)
        return self.learner.policy(learner)

    def state(self, member: int = 0) -> TrainState:
        """The state of training of one seed, with all that happened taken in."""
        self._settle()
        parts = self._programs.unpack(self._learned, self._explored)
        if self._shows_frames:
            parts = jax.tree.map(lambda leaf: leaf[member], parts)
        learner, losses, explored = parts
        key = self._key[member] if self._shows_frames else self._key
        experience = () if self._shows_frames else self._feed.experience
        return TrainState(learner, explored, experience, losses, key, jnp.int32(self.progress.step))

    def snapshot(self, member: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        """All that is needed to go on as if never interrupted; the environments' part is that of all the seeds.

        Replay in the host's memory is not copied: write the snapshot down before training goes on.
        """
        state = self.state(member)
        here = slice(member * self._num_envs, (member + 1) * self._num_envs)
        own = {"seeds": np.array(self.seeds), "starts": self._starts[here].copy(), "resets": self._resets[here].copy()}
        if self._stacks is not None:
            own["stacks"] = np.asarray(self._stacks.array[member])
        if self._overlap:
            behind = jax.tree.leaves((self._source, self._adapted, self._trained))
            own |= {f"behind/{i}": np.asarray(vector) for i, vector in enumerate(behind)}
        own |= {f"env/{name}": array for name, array in self._envs.snapshot().items()}
        own |= {f"feed/{name}": array for name, array in self._feed.snapshot(member).items()}
        return state, own

    def restore(self, member: int, state: TrainState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot; the environments replay their current episodes, once for all seeds."""
        if own["seeds"].tolist() != list(self.seeds):
            together = " ".join(map(str, own["seeds"]))
            raise UsageError(f"seeds {together} were trained side by side and go on only together")
        self._settle()
        parts: Any = (state.learner, state.losses, state.exploration)
        if self._shows_frames:
            held = self._programs.unpack(self._learned, self._explored)
            parts = jax.tree.map(lambda old, new: old.at[member].set(new), held, parts)
        else:
            self._feed.experience = state.experience
        self._adopt_state(*parts)
        here = slice(member * self._num_envs, (member + 1) * self._num_envs)
        self._starts[here], self._resets[here] = own["starts"], own["resets"]
        self._any_start = bool(self._starts.any())
        self.progress.step = int(state.step)
        if self._stacks is not None:
            self._stacks.array = self._stacks.array.at[member].set(own["stacks"])
        if member == 0:
            self._obs = self._envs.restore(below("env/", own))
        self._feed.restore(member, below("feed/", own), self.progress.step)
        if self._overlap:
            behind = (self._source, self._adapted, self._trained)
            vectors = [jnp.array(own[f"behind/{i}"]) for i in range(len(jax.tree.leaves(behind)))]
            self._source, self._adapted, self._trained = jax.tree.unflatten(jax.tree.structure(behind), vectors)

    def columns(self) -> list[dict[str, float]]:
        """What a row of progress shows of learning and exploration, of each seed; means start anew."""
        self._settle()
        explored = self._adapted if self._overlap else self._explored
        self._learned, reported, updates = self._programs.report(
            self._learned, explored, self._key, np.int32(self.progress.step)
        )
        self._source = self._source if self._programs.is_flat else self._learned
        shown, updates = jax.device_get((reported, updates))
        rows = []
        for member in range(len(self.seeds)):
            at = (lambda value: value[member]) if self._shows_frames else (lambda value: value)
            row = {name: at(values).item() for name, values in shown.items()}
            if at(updates):
                losses = {name: row[name] for name in self._programs.loss_names}
                require_finite(losses, self.progress.step, self._feed.remedy)
            rows.append(row)
        return rows

    def close(self) -> None:
        """Closes all environments, and ends the thread that learns."""
        self._learner_thread.shutdown()
        self._envs.close()

    def _adopt_state(self, learner: Any, losses: Any, explored: Any) -> None:
        self._learned, self._explored, source = self._programs.pack(learner, losses, explored)
        self._source: Packed = source if self._programs.is_flat else self._learned
        self._adapted = self._explored
        self._trained = (self._source, self._adapted)
        self._is_actor_loaded = False

    def _see(self) -> Any:
        """What the environments show, as the agent sees it."""
        if self._stacks is None:
            return self._obs
        frames = self._obs.reshape(*self._shape, *self._obs.shape[1:])
        self._frames: Any = jax.device_put(frames) if self._frames_to_device else frames  # once, for stacks and replay
        return self._stacks.see(self._frames, self._resets.reshape(self._shape))

    def _act(self, shown: Any) -> np.ndarray:
        """The actions of all environments; episodes begin where they are due."""
        step = self.progress.step
        if self._feed.acts_at_random(step):
            return np.concatenate([self._random_actions(seed) for seed in self.seeds])
        if self._any_start:
            self._begin_episodes(np.int32(step))
        self._feed.begin(self._starts, self._offsets)
        if self._any_start:
            self._starts, self._any_start = np.zeros_like(self._starts), False  # a new one: a program may still read it
        if self._actor is not None:
            self._load_actor(self._actor)
            return self._actor.act(shown, step)
        actions, news = self._programs.act(self._explored, self._source, self._key, np.int32(step), shown)
        self._explored = merge(self._explored, news) if news else self._explored
        actions = np.asarray(actions)
        return actions.reshape(-1, *actions.shape[2:]) if self._shows_frames else actions

    def _random_actions(self, seed: int) -> np.ndarray:
        random = np.random.default_rng((seed, ACT, self.progress.step))
        return random.integers(0, self.learner.spaces.actions, self._num_envs, dtype=np.int32)

    def _begin_episodes(self, step: np.int32) -> None:
        """Prepares the environments in which an episode starts."""
        self._is_actor_loaded = False
        if not self._explored:
            return
        if not self._shows_frames:
            self._explored = self._programs.begin(self._explored, self._source, self._key, step, self._starts)
            return
        for member, env in np.argwhere(self._starts.reshape(self._shape)).astype(np.int32):
            self._explored = self._programs.begin_one(self._explored, self._source, self._key, step, member, env)

    def _offsets(self) -> np.ndarray | None:
        """What behaviour adds to the parameters, of each environment."""
        offsets = self.exploration.offsets(self._programs.explored.unpack(list(map(np.asarray, self._explored))))
        return None if offsets is None else np.asarray(offsets)

    def _load_actor(self, actor: HostActor) -> None:
        if not self._is_actor_loaded:
            unpack = self._programs.explored.unpack
            policy = self._programs.policy(list(map(np.asarray, self._source)))
            actor.load(policy, unpack(list(map(np.asarray, self._explored))))
            self._is_actor_loaded = True

    def _executed(self, actions: np.ndarray) -> np.ndarray:
        """On-policy, continuous actions are kept as sampled and executed within bounds."""
        if self.learner.experience != "rollout" or self.learner.spaces.is_discrete:
            return actions
        return np.minimum(np.maximum(actions, -1.0), 1.0)

    def _settle(self) -> None:
        """Takes in all that happened, and waits until it is learned."""
        self._take_in(all_of_it=True)
        self._learning.result()

    def _take_in(self, all_of_it: bool = False) -> None:
        """Learns from what the feed holds."""
        taken = self._feed.take(self.progress.step, all_of_it=all_of_it)
        if taken is None:
            return
        if not self._overlap:
            if taken.trains and self._actor is not None:  # acting waits for nothing: never be ahead of a whole training
                jax.block_until_ready(self._trained)
            self._learn_from(taken)
            self._explored, (self._source, _) = self._adapted, self._trained
            self._is_actor_loaded &= self.exploration.fixes_episodes
            return
        if taken.trains:  # act on what the training before this one learned
            self._training.result()
            self._source, adapted = self._trained
            self._explored = self._programs.adopt(self._explored, adapted)
            self._is_actor_loaded &= self.exploration.fixes_episodes
        # From a thread of its own: JAX runs what one thread asks for in order, and acting must not wait.
        self._learning = self._learner_thread.submit(self._learn_from, taken)
        self._training = self._learning if taken.trains else self._training

    def _learn_from(self, taken: Taken) -> None:
        explored = self._adapted if self._overlap else self._explored
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
            self.columns()  # says which number it is

    def _count(self, after: EnvStep) -> None:
        """Takes note of what a step led to."""
        self._obs, self._resets = after.obs, after.resets
        if after.starts.any():
            self._starts |= after.starts
            self._any_start = True
        self.progress.count(after.reward, after.resets)


def _on_host(replay_on: str) -> bool:
    return replay_on == "host" or (replay_on == "auto" and jax.default_backend() == "cpu")
