"""The small object that people use, whatever its algorithm: learn, predict, evaluate, save, load."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
from gymnasium.vector import VectorEnv

from paramnoise import noise
from paramnoise.agents.base import find_agent
from paramnoise.api import saved
from paramnoise.api.evaluation import Evaluation, film, film_perturbed
from paramnoise.api.learning import learn_on
from paramnoise.callbacks import CallbackLike, Followers
from paramnoise.envs import EnvLike, agent_observations, env_name, environment_actions, known_kwargs
from paramnoise.explorations import Exploration
from paramnoise.networks.own import NetworkSetting, OptimizerSetting, warn_without_layer_norm
from paramnoise.networks.policies import Policy, noise_free_actions
from paramnoise.runs.checkpoint import named_leaves
from paramnoise.runs.config import RunConfig, RunSettings, make_config
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.loop import make_loop
from paramnoise.runs.machine import set_up_process
from paramnoise.runs.video import check_path
from paramnoise.validation import UsageError, require, whole

RUN_SETTINGS = frozenset(field.name for field in dataclasses.fields(RunSettings)) - {"steps"}
"""The settings of a run that an agent takes; how many steps it learns for is told to `learn`."""
_CLASSES: dict[str, type["Agent"]] = {}


class Agent:
    """An agent, its exploration and its environment; the public classes only name the algorithm.

    A class with a name in `algorithm` is the one that `agent_class` and `load` use for the agent of that name.
    """

    algorithm: ClassVar[str]

    def __init_subclass__(cls, **options: Any):
        """Keeps the class for its algorithm."""
        super().__init_subclass__(**options)
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
        set_up_process(config, env)
        self.history: list[dict[str, float]] = []
        """The rows of progress of `learn`, as a run directory's progress.csv has them."""
        self._holds_experience = True
        self._env_like = env
        self._loop = make_loop([config], env)
        self.config = dataclasses.replace(config, num_envs=self._loop.source.num_envs or config.num_envs)
        if config.exploration.kind == "parameter":
            warn_without_layer_norm(getattr(config.agent, "network", None), self._loop.policy())

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return self._loop.step

    def learn(
        self,
        steps: int,
        *,
        callback: CallbackLike | Sequence[CallbackLike] | None = None,
        log_dir: str | Path | None = None,
        tensorboard: bool = False,
        eval_every: int | None = None,
        eval_episodes: int | None = None,
        progress: bool = True,
    ) -> Self:
        """Trains for `steps` more environment steps, with a noise-free evaluation every `eval_every` and at the end.

        The rows of progress are added to `history`.

        Args:
            steps: how many environment steps, over all environments.
            callback: a function of (agent, row), called after every evaluation, or a `Callback`, or several; one that
                returns False stops the learning.
            log_dir: a run directory, as the command line writes it: progress.csv, checkpoint/, the best agent in best/.
                An agent may go on in the directory that it was logged to.
            tensorboard: write event files to `log_dir` too.
            eval_every: environment steps between evaluations, in place of the agent's setting and from now on.
            eval_episodes: episodes of an evaluation, likewise.
            progress: show a bar and a line for every evaluation.
        """
        steps = whole("steps", steps, least=1)
        require(not tensorboard or log_dir is not None, "tensorboard", tensorboard, "used together with log_dir")
        if not self._holds_experience:
            raise UsageError("this agent is a run's best, kept without its experience: load the run itself to learn on")
        every = self.config.eval_every if eval_every is None else whole("eval_every", eval_every, least=1)
        episodes = (
            self.config.eval_episodes if eval_episodes is None else whole("eval_episodes", eval_episodes, least=1)
        )
        self.config = dataclasses.replace(self.config, eval_every=every, eval_episodes=episodes)
        config = dataclasses.replace(self.config, steps=self.step + steps)
        path = None if log_dir is None else Path(log_dir)
        learn_on(self._loop, config, self.history, Followers(self, callback), path, tensorboard, progress)
        return self

    def history_frame(self) -> Any:
        """`history` as a pandas DataFrame, for those who have pandas."""
        try:
            import pandas
        except ImportError:
            raise UsageError("history_frame needs pandas: run `pip install pandas`") from None

        return pandas.DataFrame(self.history)

    @property
    def policy(self) -> Policy:
        """The clean policy as learned so far: a pytree, whose call takes one observation as networks see it.

        It works under `jax.jit`, `jax.vmap` and `jax.grad`. Its output is what the agent computes (values, logits, or
        an action in [-1, 1]); `policy.greedy(output)` is the noise-free action.
        """
        return self._loop.policy()

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """The arrays of `policy` by name, such as `network/layers/0/weight`."""
        return named_leaves(self.policy)

    def perturb(self, key: jax.Array | int, sigma: float) -> Policy:
        """The policy with parameter noise: N(0, sigma^2) is added to the weights and biases of its linear layers.

        Args:
            key: a key of JAX, or a number that decides the noise.
            sigma: the standard deviation of the noise.
        """
        require(0 <= sigma < math.inf, "sigma", sigma, "at least 0 and finite")
        return noise.perturb(jax.random.PRNGKey(key) if isinstance(key, int | np.integer) else key, self.policy, sigma)

    def export(self, path: str | Path) -> None:
        """Writes `parameters` as a safetensors file, for other frameworks (needs the extra `safetensors`)."""
        facts = {"paramnoise": self.algorithm, "env": self.config.env, "step": str(self.step)}
        saved.export(self.parameters, facts, Path(path))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies an agent by what `save` writes, with its history; the environment is pickled as it is."""
        env = None if isinstance(self._env_like, str) else saved.copyable(self._env_like)
        parts = saved.unnamed_parts(self.config)
        return _from_files, (saved.files_of(self.save), env, parts, list(self.history), type(self))

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
        episodes, seed = whole("episodes", episodes, least=1), whole("seed", seed, least=0)
        return Evaluation(tuple(self._loop.evaluate(episodes, seed).tolist()))

    def record(
        self,
        path: str | Path,
        episodes: int = 1,
        seed: int = 0,
        *,
        perturbed: int = 0,
        sigma: float | None = None,
        max_steps: int | None = None,
    ) -> Evaluation:
        """Films the first noise-free episodes of `evaluate` with the same seed; returns their returns.

        Args:
            path: a file that ends in .mp4 (needs the extra `video`) or .gif.
            episodes: how many episodes, shown one after the other.
            seed: decides the environment's random draws.
            perturbed: how many perturbed policies to film beside the clean one, on the same episode; their returns
                follow the clean one's.
            sigma: the standard deviation of their noise.
            max_steps: steps after which an episode beside perturbed ones is cut, in place of `eval_max_steps`.
        """
        episodes, seed = whole("episodes", episodes, least=1), whole("seed", seed, least=0)
        require(max_steps is None or bool(perturbed), "max_steps", max_steps, "used together with perturbed")
        max_steps = self.config.eval_max_steps if max_steps is None else whole("max_steps", max_steps, least=1)
        path = Path(path)
        check_path(path)
        if not perturbed:
            return film(self._loop, self.config, self._env_like, path, episodes, seed)
        require(episodes == 1, "episodes", episodes, "1 where perturbed policies are filmed")
        require(perturbed >= 1, "perturbed", perturbed, "at least 0")
        if sigma is None:
            raise UsageError("sigma must be a number where perturbed policies are filmed")
        policies = [self.policy, *(self.perturb(number, sigma) for number in range(perturbed))]
        return film_perturbed(self._loop, self.config, self._env_like, policies, path, seed, max_steps)

    def save(self, path: str | Path) -> None:
        """Writes the whole agent, replay included, so that a loaded one learns on as this one would."""
        saved.save(self._loop, self.config, Path(path))

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: EnvLike | None = None,
        *,
        network: NetworkSetting = None,
        critic_network: NetworkSetting = None,
        optimizer: OptimizerSetting = None,
    ) -> Self:
        """Loads an agent of this class from what `save` wrote or from a run directory; nothing in it is executed.

        `paramnoise.load` is that of `Agent`, and loads one of any class.

        Args:
            path: the directory.
            env: the environment, if the agent was made with one that is not a Gymnasium id.
            network: the factory of the agent's network, if it was made with one that is not registered.
            critic_network: the same of the critic's.
            optimizer: the agent's optimizer, likewise.
        """
        directory = RunDirectory(Path(path))
        parts = {"network": network, "critic_network": critic_network, "optimizer": optimizer}
        config = saved.read_config(directory, env, parts)
        kind: Any = cls if getattr(cls, "algorithm", "") == config.algorithm else agent_class(config.algorithm)
        if not issubclass(kind, cls):
            raise UsageError(f"{path} holds an agent of {config.algorithm}, which paramnoise.load loads")
        agent = object.__new__(kind)
        with directory.naming_plugins():  # the environment may be a plug-in's
            agent._adopt(config, config.env if env is None else env)
        agent._holds_experience = saved.restore(agent._loop, config, directory)
        agent.history = saved.read_history(directory)
        return agent


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


load = Agent.load


def _from_files(
    files: dict[str, bytes], env: EnvLike | None, parts: dict[str, Any], history: list[Any], cls: type[Agent] = Agent
) -> Agent:
    """The agent that `Agent.__reduce__` described; pickles of before name no class."""
    with saved.folder_of(files) as folder:
        agent = cls.load(folder, env, **parts)
    agent.history = history
    return agent
