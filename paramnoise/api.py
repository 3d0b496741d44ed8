"""The small object that people use: learn, predict, evaluate, save, load."""

import dataclasses
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium.vector import VectorEnv

from paramnoise.agents.base import find_agent
from paramnoise.envs import EnvLike, agent_observations, env_name, environment_actions, known_kwargs
from paramnoise.explorations import Exploration
from paramnoise.loops.evaluation import EVALUATION_STREAM
from paramnoise.loops.vector import episode_seed
from paramnoise.networks.policies import noise_free_actions
from paramnoise.runs import video
from paramnoise.runs.config import RunConfig, RunSettings, make_config
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.display import bar, describe
from paramnoise.runs.run import load_loop, make_loop, save_loop
from paramnoise.validation import UsageError, require


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The returns of noise-free episodes."""

    returns: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    @property
    def median(self) -> float:
        """The median return."""
        return float(np.median(self.returns))

    @property
    def std(self) -> float:
        """The standard deviation of the returns."""
        return float(np.std(self.returns))

    def __str__(self) -> str:
        return f"mean {self.mean:.1f}, median {self.median:.1f}, std {self.std:.1f} over {len(self.returns)} episodes"


RUN_SETTINGS = frozenset(field.name for field in dataclasses.fields(RunSettings)) - {"steps"}
"""The settings of a run that an agent takes; how many steps it learns for is told to `learn`."""
_CLASSES: dict[str, type["Agent"]] = {}


class Agent:
    """An agent, its exploration and its environment; the public classes below only name the algorithm.

    A class with a name in `algorithm` is the one that `agent_class` and `load` use for the agent of that name.
    """

    algorithm: ClassVar[str]

    def __init_subclass__(cls, **keywords: Any):
        """Keeps the class for its algorithm."""
        super().__init_subclass__(**keywords)
        if "algorithm" in vars(cls):
            _CLASSES[cls.algorithm] = cls

    def __init__(
        self,
        env: EnvLike,
        *,
        exploration: Exploration | str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        **settings: Any,
    ):
        """Makes an agent.

        Args:
            env: a Gymnasium id or a name, an environment (it is copied) or a vector of them (it is not), or a function
                that makes one.
            exploration: a strategy such as `ParameterNoise(delta=0.05)`, or its name; None: the algorithm's default.
            env_kwargs: keywords of an environment that is given by id.
            settings: fields of the agent's config, such as `learning_rate`, and of `RunSettings`, such as `seed`,
                `num_envs` and `overlap`; they override the environment's preset.
        """
        if isinstance(env, VectorEnv):
            settings.setdefault("num_envs", env.num_envs)
        config = make_config(
            self.algorithm,
            env_name(env),
            env_kwargs or known_kwargs(env),
            env_is_id=isinstance(env, str),
            exploration=exploration,
            agent={name: value for name, value in settings.items() if name not in RUN_SETTINGS},
            **{name: value for name, value in settings.items() if name in RUN_SETTINGS},
        )
        self._adopt(config, env)

    def _adopt(self, config: RunConfig, env: EnvLike) -> None:
        self._env_like = env
        self._loop = make_loop([config], env)
        self.config = dataclasses.replace(config, num_envs=self._loop.source.num_envs or config.num_envs)
        spaces = self._loop.learner.spaces
        self._stack_shape = spaces.observation if spaces.shows_frames else None

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return self._loop.step

    def learn(
        self, steps: int, *, eval_every: int | None = None, eval_episodes: int | None = None, progress: bool = True
    ) -> Self:
        """Trains for `steps` more environment steps, with a noise-free evaluation every `eval_every` and at the end."""
        eval_every = self.config.eval_every if eval_every is None else eval_every
        eval_episodes = self.config.eval_episodes if eval_episodes is None else eval_episodes
        for name, value in (("steps", steps), ("eval_every", eval_every), ("eval_episodes", eval_episodes)):
            require(value >= 1, name, value, "at least 1")
        first, until = self.step, self.step + steps
        started = time.perf_counter()
        with bar(until, f"{self.algorithm} {self.config.env}", "steps", show=progress) as shown:
            rows = self._loop.run(
                until,
                eval_every=eval_every,
                eval_episodes=eval_episodes,
                on_step=shown.advance_to,
            )
            for (row,) in rows:
                rate = (self.step - first) / (time.perf_counter() - started)
                if progress:
                    shown.line(describe({**row, "steps_per_second": rate}))
        return self

    def predict(
        self, obs: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[np.ndarray, None]:
        """The noise-free action for an observation of the environment, or for each of a batch of any leading axes.

        Of images it takes the stacks that `FrameStack` makes of them. The signature is Stable-Baselines3's, so that its
        tools work; the other arguments change nothing.
        """
        rows, batch = agent_observations(self._loop.source, obs)
        chosen = np.asarray(noise_free_actions(self._loop.policy(), rows))
        actions = environment_actions(self._loop.source.action_space, chosen)
        return (actions.reshape(*batch, *actions.shape[1:]) if batch else actions[0]), None

    def evaluate(self, episodes: int = 20, seed: int = 0) -> Evaluation:
        """Runs noise-free episodes on environments of their own."""
        require(episodes >= 1, "episodes", episodes, "at least 1")
        return Evaluation(tuple(self._loop.evaluate(episodes, seed).tolist()))

    def record(self, path: str | Path, episodes: int = 1, seed: int = 0) -> Evaluation:
        """Films the first noise-free episodes of `evaluate` with the same seed; returns their returns.

        Args:
            path: a file that ends in .mp4 (needs the extra `video`) or .gif.
            episodes: how many episodes, shown one after the other.
            seed: decides the environment's random draws.
        """
        require(episodes >= 1, "episodes", episodes, "at least 1")
        path = Path(path)
        video.check_path(path)
        if self._stack_shape is not None:
            return Evaluation(tuple(video.record_frames(self._loop, path, episodes, seed)))
        env = video.rendering_env(self._env_like, self.config.env_kwargs)
        seeds = [episode_seed(EVALUATION_STREAM + seed, i, 0) for i in range(episodes)]
        return Evaluation(tuple(video.record(env, self._loop.policy(), path, seeds, self.config.eval_max_steps)))

    def save(self, path: str | Path) -> None:
        """Writes the whole agent, replay included, so that a loaded one learns on as this one would."""
        path = Path(path)
        if path.exists() and not (path / "config.json").exists() and (path.is_file() or any(path.iterdir())):
            raise UsageError(f"{path} exists and is not a saved agent: choose another path")
        self.config.to_json()  # refuses what could not be loaded, before anything is written
        save_loop(self._loop, path / "checkpoint", wall_time=0.0)
        RunDirectory(path).write_config(self.config)

    @classmethod
    def load(cls, path: str | Path, env: EnvLike | None = None) -> Self:
        """Loads an agent of this kind, as `paramnoise.load` does one of any kind."""
        agent = load(path, env)
        if not isinstance(agent, cls):
            raise UsageError(f"{path} holds an agent of {agent.algorithm}, which paramnoise.load loads")
        return agent


class DQN(Agent):
    """DQN, plain or with a policy head (`policy_head=True`); explores by `EpsilonGreedy` unless told otherwise."""

    algorithm = "dqn"


class BootstrappedDQN(Agent):
    """Bootstrapped DQN; explores by `BootstrapHead` unless told otherwise."""

    algorithm = "bootstrapped-dqn"


class DDPG(Agent):
    """DDPG for continuous actions; explores by `ParameterNoise` unless told otherwise."""

    algorithm = "ddpg"


class TRPO(Agent):
    """TRPO for continuous or discrete actions; explores by `OnPolicyParameterNoise` unless told otherwise."""

    algorithm = "trpo"


class ES(Agent):
    """Evolution strategies for continuous or discrete actions; it learns by perturbing, so nothing else explores."""

    algorithm = "es"


def agent_class(name: str) -> type[Agent]:
    """The class of any registered agent by its name: `agent_class("dqn")` is `DQN`.

    An agent that was registered without a class, such as a plug-in's, gets one here.

    Raises:
        UsageError: if there is no agent of that name.
    """
    entry = find_agent(name)
    if name not in _CLASSES:
        words = "".join(word.capitalize() for word in re.split(r"\W+", name))
        doc = f"{entry.title}; explores by {entry.default_exploration!r} unless told otherwise."
        type(words, (Agent,), {"algorithm": name, "__doc__": doc, "__module__": entry.config.__module__})
    return _CLASSES[name]


def load(path: str | Path, env: EnvLike | None = None) -> Agent:
    """Loads an agent from what `save` wrote or from a run directory; nothing in it is executed.

    Args:
        path: the directory.
        env: the environment, if the agent was made with one that is not a Gymnasium id.
    """
    directory = RunDirectory(Path(path))
    config = directory.config()
    if env is None and not config.env_is_id:
        raise UsageError(f"{path} was made with an environment object ({config.env}): pass env= to load it")
    agent = object.__new__(agent_class(config.algorithm))
    with directory.naming_plugins():  # the environment may be a plug-in's
        agent._adopt(config, config.env if env is None else env)
    load_loop(agent._loop, directory.checkpoint)
    return agent
