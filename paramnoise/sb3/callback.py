"""Parameter space noise for the off-policy algorithms of Stable-Baselines3, as a callback."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from sb3_contrib import QRDQN, TQC, TRPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor, nn

from paramnoise.sb3.distance import delta_from_epsilon, gaussian_distance, kl_distance, rms_distance
from paramnoise.sb3.perturbation import ActingPerturbations, PerturbedLayers, has_layer_norm
from paramnoise.sb3.scale import NoiseState, Scaling
from paramnoise.validation import UsageError, require


class Kind(NamedTuple):
    """What parameter noise needs to know of an algorithm."""

    network: str
    """The name of the network that acts, in the policy."""
    outputs: Callable[[Any, Tensor], Tensor]
    """The network and observations -> what distances are taken of, a row for each."""
    distance: Callable[[Tensor, Tensor], Tensor]
    """The outputs of the clean and of a perturbed network -> their distance."""
    delta: float | None
    """The distance to keep where the user names none; None: that which matches epsilon-greedy."""
    sigma: float | None
    """The first sigma where the user names none; None: delta."""


def _gaussians(actor: Any, obs: Tensor) -> Tensor:
    mean, log_std, _ = actor.get_action_dist_params(obs)
    return torch.stack([mean, log_std], -2)


KINDS: dict[type[BaseAlgorithm], Kind] = {
    DQN: Kind("q_net", lambda network, obs: network(obs), kl_distance, None, 0.01),
    QRDQN: Kind("quantile_net", lambda network, obs: network(obs).mean(1), kl_distance, None, 0.01),
    TD3: Kind("actor", lambda actor, obs: actor(obs), rms_distance, 0.2, None),
    SAC: Kind("actor", _gaussians, gaussian_distance, 0.1, 0.01),
    TQC: Kind("actor", _gaussians, gaussian_distance, 0.1, 0.01),
}
"""The algorithms that the callback is for; DDPG is a TD3 in Stable-Baselines3."""


class ParameterNoise(BaseCallback):
    """Every environment acts with a perturbed policy of its own, for a whole episode (sec. 3).

    For DQN, QRDQN, DDPG, TD3, SAC and TQC, with any number of environments: `model.learn(..., callback=
    ParameterNoise())`. Sigma follows the distance between clean and perturbed policy: the KL of Q values' softmax, the
    root mean square of deterministic actions, the KL of stochastic policies. `model.predict`, evaluations and
    checkpoints have the clean policy alone. Sigma and the generator are in `model.parameter_noise`, which `model.save`
    keeps: `learn(..., reset_num_timesteps=False)` goes on with them.
    """

    model: Any

    def __init__(
        self,
        delta: float | None = None,
        *,
        sigma: float | None = None,
        alpha: float = 1.01,
        adapt_every: int = 50,
        epsilon: float | None = 0.0,
        seed: int | None = None,
        verbose: int = 0,
    ):
        """Sets the noise; nothing is drawn yet.

        Args:
            delta: the distance in action space to keep. None: that of the model's epsilon (DQN, QRDQN), 0.2 (DDPG, TD3)
                or 0.1 (SAC, TQC).
            sigma: the standard deviation of the noise before the first adaptation. None: delta (DDPG, TD3), else 0.01.
            alpha: the factor by which one adaptation changes sigma; with 1 it stays as it is.
            adapt_every: calls of env.step, each a step of every environment, between adaptations.
            epsilon: of DQN and QRDQN, the probability of a random action on top of the noise, in place of the model's
                own; None: the model's own.
            seed: of the noise; None: that of the model.
            verbose: as for every callback.
        """
        super().__init__(verbose)
        require(epsilon is None or 0 <= epsilon <= 1, "epsilon", epsilon, "between 0 and 1")
        self.scaling = Scaling(delta=delta, sigma=sigma, alpha=alpha, adapt_every=adapt_every)
        self.epsilon, self.seed = epsilon, seed
        self._plain_class: type[BaseAlgorithm] | None = None

    def _init_callback(self) -> None:
        self._kind = find_kind(self.model)
        self._network: nn.Module = getattr(self.model.policy, self._kind.network)
        if not has_layer_norm(self._network):
            warnings.warn(
                "parameter noise needs layer norm, so that one sigma suits every layer, and this policy has none: "
                "see the policies in paramnoise.sb3",
                stacklevel=2,
            )

    def _on_training_start(self) -> None:
        if self.locals["reset_num_timesteps"] or not hasattr(self.model, "parameter_noise"):
            self.model.parameter_noise = self._first_state()
        self._starting: Sequence[int] = range(self.model.n_envs)
        self._layers = PerturbedLayers(self._network)
        self._acting = ActingPerturbations(self._layers, self.model.n_envs)
        self._install()

    def _on_step(self) -> bool:
        self._starting = np.flatnonzero(self.locals["dones"]).tolist()
        if self.n_calls % self.scaling.adapt_every == 0:
            self._adapt()
        if self._starting:  # the only steps at which Stable-Baselines3 writes its log
            for key, value in self._state.report().items():
                self.logger.record(key, value)
        return True

    def _on_training_end(self) -> None:
        self.remove()

    @property
    def _state(self) -> NoiseState:
        return self.model.parameter_noise

    def _first_state(self) -> NoiseState:
        named, usual = self.scaling, self._kind
        sigma = next(value for value in (named.sigma, usual.sigma, named.delta, usual.delta) if value is not None)
        return NoiseState(sigma, np.random.default_rng(self.model.seed if self.seed is None else self.seed))

    def _install(self) -> None:
        """Makes the model act with noise, until `remove`.

        For the time of `learn` the model's class is a subclass of its own. A method patched into the model itself would
        be written into every checkpoint.
        """
        callback, plain = self, type(self.model)

        class Exploring(plain):  # type: ignore[misc, valid-type]
            def _sample_action(self, *args: Any, **kwargs: Any) -> Any:
                rate = callback.begin_acting()
                try:
                    return super()._sample_action(*args, **kwargs)
                finally:
                    callback.end_acting(rate)

            def collect_rollouts(self, *args: Any, **kwargs: Any) -> Any:
                with callback.removed_on_error():
                    return super().collect_rollouts(*args, **kwargs)

            def train(self, *args: Any, **kwargs: Any) -> Any:
                with callback.removed_on_error():
                    super().train(*args, **kwargs)
                callback.weights_changed()

        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(Exploring, name, getattr(plain, name))
        self._plain_class = plain
        self.model.__class__ = Exploring

    def remove(self) -> None:
        """Leaves the model as it was: its class is its own, and its layers are clean."""
        if self._plain_class is not None:
            self._layers.restore()
            self.model.__class__ = self._plain_class
            self._plain_class = None

    @contextlib.contextmanager
    def removed_on_error(self) -> Iterator[None]:
        """Ctrl-C or an error ends `learn` without a last call of its callbacks."""
        try:
            yield
        except BaseException:
            self.remove()
            raise

    def begin_acting(self) -> float | None:
        """Before the actions of a step are chosen: the network is perturbed, and epsilon is that of the noise.

        Returns:
            The model's own epsilon, for `end_acting`; None if it has none.
        """
        for env in self._starting:
            self._acting.begin_episode(env, self._layers.draw(self._state.sigma, self._state.rng))
        self._starting = ()
        self._acting.use()
        rate = getattr(self.model, "exploration_rate", None)
        if rate is not None and self.epsilon is not None:
            self.model.exploration_rate = self.epsilon
        return rate

    def end_acting(self, rate: float | None) -> None:
        """After the actions of a step are chosen: the network is clean, and epsilon is the model's own."""
        self._layers.restore()
        if rate is not None:
            self.model.exploration_rate = rate

    def weights_changed(self) -> None:
        """After learning: what acts is made from the weights of now."""
        self._acting.weights_changed()

    def _adapt(self) -> None:
        """Measures the distance on states of the replay, and adapts sigma to it (eq. 1)."""
        obs = self._replayed_observations()
        if obs is None:
            return
        with torch.no_grad():
            clean = self._kind.outputs(self._network, obs)
            # A perturbation of its own: measuring must not touch those that act.
            self._layers.use(self._layers.folded(self._layers.draw(self._state.sigma, self._state.rng)))
            perturbed = self._kind.outputs(self._network, obs)
            self._layers.restore()
        self._state.adapt(self._kind.distance(clean, perturbed).item(), self._threshold(), self.scaling.alpha)

    def _threshold(self) -> float:
        """Delta now."""
        if self.scaling.delta is not None:
            return self.scaling.delta
        if self._kind.delta is not None:
            return self._kind.delta
        return delta_from_epsilon(self.model.exploration_rate, int(self.model.action_space.n))

    def _replayed_observations(self) -> Any:
        """A batch of stored observations as the networks see them, or None if there are none yet.

        They are drawn here, as the replay itself draws with NumPy's own generator, on which learning depends.
        """
        buffer, rng = self.model.replay_buffer, self._state.rng
        stored = buffer.buffer_size if buffer.full else buffer.pos
        if stored == 0:
            return None
        at = rng.integers(stored, size=self.model.batch_size), rng.integers(buffer.n_envs, size=self.model.batch_size)
        if isinstance(buffer.observations, dict):
            obs: Any = {key: values[at] for key, values in buffer.observations.items()}
        else:
            obs = buffer.observations[at]
        if self.model.get_vec_normalize_env() is not None:
            obs = self.model.get_vec_normalize_env().normalize_obs(obs)
        return obs_as_tensor(obs, self.model.device)


def find_kind(model: BaseAlgorithm) -> Kind:
    """What parameter noise needs to know of a model, or UsageError that says what to use instead."""
    name = type(model).__name__
    if isinstance(model, TRPO):
        raise UsageError("on TRPO parameter noise is a natural step of its own (app. C.3): use paramnoise's, pn.TRPO")
    if isinstance(model, PPO | A2C):
        raise UsageError(
            f"on-policy each sample must be learned from under its own noise, which no callback can do: use {name} of "
            "paramnoise.sb3, without a callback"
        )
    if getattr(model, "use_sde", False):
        raise UsageError(
            "use_sde=True is noise on the last layer's weights already: use it or ParameterNoise, not both"
        )
    for algorithm, kind in KINDS.items():
        if isinstance(model, algorithm):
            return kind
    raise UsageError(f"ParameterNoise is for DQN, QRDQN, DDPG, TD3, SAC and TQC, not for {name}")
