"""The small object that people use: learn, predict, evaluate, save, load."""

import contextlib
import dataclasses
import functools
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
from gymnasium.vector import VectorEnv
from jax import Array

from paramnoise import keywords, noise
from paramnoise.agents.base import find_agent
from paramnoise.callbacks import CallbackLike, Followers
from paramnoise.envs import EnvLike, agent_observations, env_name, environment_actions, known_kwargs
from paramnoise.explorations import Exploration
from paramnoise.loops.evaluation import EVALUATION_STREAM
from paramnoise.loops.vector import episode_seed
from paramnoise.networks.own import OWN_PARTS, NetworkSetting, OptimizerSetting, warn_without_layer_norm
from paramnoise.networks.policies import Policy, noise_free_actions
from paramnoise.runs import checkpoint, video
from paramnoise.runs.config import RunConfig, RunSettings, make_config
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.display import Bar, bar, describe
from paramnoise.runs.files import RunFiles
from paramnoise.runs.lock import only_writer
from paramnoise.runs.loop import load_loop, make_loop, save_loop
from paramnoise.runs.machine import fitting_here, set_up_process
from paramnoise.runs.side_by_side import record_games_side_by_side, record_side_by_side
from paramnoise.runs.training import train
from paramnoise.validation import UsageError, require, require_extra


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
        spaces = self._loop.learner.spaces
        self._stack_shape = spaces.observation if spaces.shows_frames else None
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
            eval_every: environment steps between evaluations, in place of the agent's setting.
            eval_episodes: episodes of an evaluation, in place of the agent's setting.
            progress: show a bar and a line for every evaluation.
        """
        require(steps >= 1, "steps", steps, "at least 1")
        require(not tensorboard or log_dir is not None, "tensorboard", tensorboard, "used together with log_dir")
        if not self._holds_experience:
            raise UsageError("this agent is a run's best, kept without its experience: load the run itself to learn on")
        config = dataclasses.replace(
            self.config,
            steps=self.step + steps,
            eval_every=self.config.eval_every if eval_every is None else eval_every,
            eval_episodes=self.config.eval_episodes if eval_episodes is None else eval_episodes,
        )
        followers = Followers(self, callback)
        with contextlib.ExitStack() as stack:
            files = []
            if log_dir is not None:
                files.append(self._open(Path(log_dir), config, tensorboard, stack))
            shown = stack.enter_context(bar(config.steps, f"{self.algorithm} {config.env}", "steps", show=progress))
            watcher = _Learning(self.history, followers, shown if progress else None)
            train(self._loop, files, config, watcher, followers.on_episode_end)
        return self

    def _open(self, path: Path, config: RunConfig, tensorboard: bool, stack: contextlib.ExitStack) -> RunFiles:
        """The files of a run directory that is new, or this agent's own; it is held until the stack is closed."""
        if tensorboard:
            require_extra("tensorboardX", "tensorboard", "TensorBoard logs")
        config.to_json()  # refuses what could not be loaded, before anything is written
        directory = RunDirectory(path)
        holds_run = directory.exists()
        directory.check(config, resume=holds_run)
        if holds_run and (at := checkpoint.facts(directory.checkpoint)["step"]) != self.step:
            raise UsageError(
                f"{path} holds a run at step {at:,}, and this agent is at step {self.step:,}: choose another log_dir, "
                f"or go on with the run itself, pn.load({str(path)!r})"
            )
        stack.enter_context(only_writer(path))
        files = RunFiles(self._loop, 0, config, directory, tensorboard=tensorboard, restores=False)
        files.begin()
        return files

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
        return checkpoint.named_leaves(self.policy)

    def perturb(self, key: Array | int, sigma: float) -> Policy:
        """The policy with parameter noise: N(0, sigma^2) is added to the weights and biases of its linear layers.

        Args:
            key: a key of JAX, or a number that decides the noise.
            sigma: the standard deviation of the noise.
        """
        require(sigma >= 0, "sigma", sigma, "at least 0")
        return noise.perturb(jax.random.PRNGKey(key) if isinstance(key, int) else key, self.policy, sigma)

    def export(self, path: str | Path) -> None:
        """Writes `parameters` as a safetensors file, for other frameworks (needs the extra `safetensors`)."""
        require_extra("safetensors", "safetensors", "export")
        from safetensors.numpy import save_file

        facts = {"paramnoise": self.algorithm, "env": self.config.env, "step": str(self.step)}
        save_file({name: np.ascontiguousarray(array) for name, array in self.parameters.items()}, path, facts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies an agent by what `save` writes, with its history; the environment is pickled as it is."""
        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            files = {str(file.relative_to(folder)): file.read_bytes() for file in Path(folder).rglob("*.*")}
        env = None if isinstance(self._env_like, str) else self._env_like
        given = {name: getattr(self.config.agent, name, None) for name in OWN_PARTS}
        parts = {name: part for name, part in given.items() if part is not None and not isinstance(part, str)}
        return _from_files, (files, env, parts, self.history)

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
        require(episodes >= 1, "episodes", episodes, "at least 1")
        require(max_steps is None or bool(perturbed), "max_steps", max_steps, "used together with perturbed")
        path = Path(path)
        video.check_path(path)
        if perturbed:
            require(episodes == 1, "episodes", episodes, "1 where perturbed policies are filmed")
            return self._record_perturbed(path, seed, perturbed, sigma, max_steps or self.config.eval_max_steps)
        if self._stack_shape is not None:
            return Evaluation(tuple(video.record_frames(self._loop, path, episodes, seed)))
        env = video.rendering_env(self._env_like, self.config.env_kwargs)
        seeds = [episode_seed(EVALUATION_STREAM + seed, i, 0) for i in range(episodes)]
        return Evaluation(tuple(video.record(env, self._loop.policy(), path, seeds, self.config.eval_max_steps)))

    def _record_perturbed(
        self, path: Path, seed: int, perturbed: int, sigma: float | None, max_steps: int
    ) -> Evaluation:
        require(perturbed >= 1, "perturbed", perturbed, "at least 0")
        if sigma is None:
            raise UsageError("sigma must be a number where perturbed policies are filmed")
        policies = {f"perturbed {number + 1}": self.perturb(number, sigma) for number in range(perturbed)}
        policies = {"clean": self.policy, **policies}
        if self._stack_shape is not None:
            return Evaluation(tuple(record_games_side_by_side(self._loop, policies, path, seed, max_steps)))
        make_env = functools.partial(video.rendering_env, self._env_like, self.config.env_kwargs)
        first = episode_seed(EVALUATION_STREAM + seed, 0, 0)
        return Evaluation(tuple(record_side_by_side(make_env, policies, path, first, max_steps)))

    def save(self, path: str | Path) -> None:
        """Writes the whole agent, replay included, so that a loaded one learns on as this one would."""
        path = Path(path)
        if path.exists() and not (path / "config.json").exists() and (path.is_file() or any(path.iterdir())):
            raise UsageError(f"{path} exists and is not a saved agent: choose another path")
        self.config.to_json()  # refuses what could not be loaded, before anything is written
        RunDirectory(path).check_links()
        save_loop(self._loop, path / "checkpoint", {"wall_time": 0.0, "digests": {"config": self.config.digest()}})
        RunDirectory(path).write_config(self.config)

    @classmethod
    def load(cls, path: str | Path, env: EnvLike | None = None, **parts: Any) -> Self:
        """Loads an agent of this kind, as `paramnoise.load` does one of any kind."""
        agent = load(path, env, **parts)
        if not isinstance(agent, cls):
            raise UsageError(f"{path} holds an agent of {agent.algorithm}, which paramnoise.load loads")
        return agent


class DQN(Agent):
    """DQN, plain or with a policy head (`policy_head=True`); explores by `EpsilonGreedy` unless told otherwise."""

    algorithm = "dqn"

    @keywords.takes(keywords.DQNKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class BootstrappedDQN(Agent):
    """Bootstrapped DQN; explores by `BootstrapHead` unless told otherwise."""

    algorithm = "bootstrapped-dqn"

    @keywords.takes(keywords.BootstrappedDQNKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class DDPG(Agent):
    """DDPG for continuous actions; explores by `ParameterNoise` unless told otherwise."""

    algorithm = "ddpg"

    @keywords.takes(keywords.DDPGKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class TD3(Agent):
    """TD3 for continuous actions; explores by `ParameterNoise` unless told otherwise."""

    algorithm = "td3"

    @keywords.takes(keywords.TD3Keywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class SAC(Agent):
    """SAC for continuous actions; explores by its own stochastic policy (`NoNoise`) unless told otherwise."""

    algorithm = "sac"

    @keywords.takes(keywords.SACKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class TRPO(Agent):
    """TRPO for continuous or discrete actions; explores by `OnPolicyParameterNoise` unless told otherwise."""

    algorithm = "trpo"

    @keywords.takes(keywords.TRPOKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class PPO(Agent):
    """PPO for continuous or discrete actions; explores by `OnPolicyParameterNoise` unless told otherwise."""

    algorithm = "ppo"

    @keywords.takes(keywords.PPOKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class PQN(Agent):
    """PQN for discrete actions; explores by `EpsilonGreedy` unless told otherwise."""

    algorithm = "pqn"

    @keywords.takes(keywords.PQNKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class ES(Agent):
    """Evolution strategies for continuous or discrete actions; it learns by perturbing, so nothing else explores."""

    algorithm = "es"

    @keywords.takes(keywords.ESKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


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


def load(
    path: str | Path,
    env: EnvLike | None = None,
    *,
    network: NetworkSetting = None,
    critic_network: NetworkSetting = None,
    optimizer: OptimizerSetting = None,
) -> Agent:
    """Loads an agent from what `save` wrote or from a run directory; nothing in it is executed.

    Args:
        path: the directory.
        env: the environment, if the agent was made with one that is not a Gymnasium id.
        network: the factory of the agent's network, if it was made with one that is not registered.
        critic_network: the same of the critic's.
        optimizer: the agent's optimizer, likewise.
    """
    directory = RunDirectory(Path(path))
    parts = {"network": network, "critic_network": critic_network, "optimizer": optimizer}
    config = fitting_here(directory.config(parts))
    if env is None and not config.env_is_id:
        raise UsageError(f"{path} was made with an environment object ({config.env}): pass env= to load it")
    if env is None:
        directory.check_env(config)
    agent = object.__new__(agent_class(config.algorithm))
    with directory.naming_plugins():  # the environment may be a plug-in's
        agent._adopt(config, config.env if env is None else env)
    facts = load_loop(agent._loop, directory.checkpoint)
    directory.check_digests(facts.get("digests", {}), config, facts["step"])
    agent._holds_experience = facts.get("holds_experience", True)
    agent.history = [{name: _number(text) for name, text in row.items()} for row in directory.rows()]
    return agent


def _number(text: str) -> float:
    """A value of progress.csv."""
    return int(text) if text.isdigit() else float(text or "nan")


def _from_files(
    files: dict[str, bytes], env: EnvLike | None, parts: dict[str, Any], history: list[dict[str, float]]
) -> Agent:
    """The agent that `Agent.__reduce__` described."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        agent = load(folder, env, **parts)
    agent.history = history
    return agent


class _Learning:
    """Follows one call of `learn` for the agent's history, for its callbacks and for people."""

    signal = None

    def __init__(self, history: list[dict[str, float]], followers: Followers, shown: Bar | None):
        self._history, self._followers, self._shown = history, followers, shown

    def on_step(self, step: int) -> None:
        if self._shown is not None:
            self._shown.advance_to(step)
        self._followers.on_step(step)

    def on_row(self, row: dict[str, float]) -> None:
        self._history.append(row)
        if self._shown is not None:
            self._shown.line(describe(row))
        if not math.isnan(row["eval_return_mean"]):
            self._followers.on_evaluation(row)

    def should_stop(self) -> bool:
        return self._followers.wants_to_stop
