"""PPO and A2C of Stable-Baselines3 with parameter space noise: each sample is learned from under its own perturbation.

On-policy the gradient goes to the clean parameters theta through the perturbed ones, theta + offset (eq. 2, app. B).
The rollout buffer knows which offset each sample was acted with, and log-probabilities and ratios are taken under it,
when acting and in every minibatch. The values are those of the clean network.
"""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import DictRolloutBufferSamples, RolloutBufferSamples
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor, nn

from paramnoise.sb3.distance import categorical_distance, gaussian_distance
from paramnoise.sb3.perturbation import ActingPerturbations, PerturbedLayers, has_layer_norm
from paramnoise.sb3.rows import RowPerturbations
from paramnoise.sb3.scale import NoiseState, Scaling
from paramnoise.validation import UsageError

PROBED_STATES = 128
"""States of the rollout that a distance is measured on, at most."""
SCALARS = ("values", "log_probs", "advantages", "returns")
"""What a rollout buffer has one number of for each sample."""


class KeepsPerturbations:
    """What a rollout buffer has in addition: the perturbations of the rollout's episodes, and each sample's number."""

    drawn: Sequence[Tensor] = ()
    """The perturbations, by number."""

    def belong_to(self: Any, layers: PerturbedLayers) -> None:
        """Says whose perturbations are kept: none of them is drawn yet."""
        self.layers = layers
        self.drawn = [layers.none()] * self.n_envs

    def reset(self: Any) -> None:
        """Begins a rollout; the episodes that go on keep their perturbations."""
        super().reset()  # type: ignore[misc]
        if len(self.drawn) != self.n_envs:
            self.drawn = [self.drawn[number] for number in self.acting] if self.drawn else ()
            self.by_row: RowPerturbations | None = None
        self.acting = np.arange(self.n_envs)
        self.numbers = np.zeros((self.buffer_size, self.n_envs), np.int64)

    def begin_episode(self: Any, env: int, perturbation: Tensor) -> None:
        """Takes down the perturbation with which an environment acts from now on."""
        self.acting[env] = len(self.drawn)
        self.drawn.append(perturbation)
        self.by_row = None

    def add(self: Any, *args: Any, **kwargs: Any) -> None:
        """Adds a step of every environment, which acted with the perturbations of now."""
        self.numbers[self.pos] = self.acting
        super().add(*args, **kwargs)  # type: ignore[misc]

    def get(self: Any, batch_size: int | None = None) -> Iterator[Any]:
        """Yields Stable-Baselines3's minibatches, to the bit; the layers have the perturbations of the one at hand.

        When the iterator ends, or is dropped, the layers are clean again.

        What is small is put in the epoch's order at once, and PyTorch does it: that makes up for some of the time that
        the perturbations take.
        """
        assert self.full
        shuffled = np.random.permutation(self.buffer_size * self.n_envs)  # noqa: NPY002 - that of Stable-Baselines3
        order = torch.from_numpy(shuffled)
        if not self.generator_ready:
            self._end_rollout()
        size = batch_size or len(order)
        numbers = self.number_of_sample.index_select(0, order).to(self.device)
        actions = self._actions.index_select(0, order).to(self.device)
        scalars = self._scalars.index_select(1, order).to(self.device)
        try:
            for begin in range(0, len(order), size):
                batch = slice(begin, begin + size)
                self._perturb(numbers[batch])
                seen = self._observations_at(order[batch])
                yield self.samples_class(seen, actions[batch], *scalars[:, batch].unbind())
        finally:  # also where minibatches are looked at outside of `train`, or only some of them
            self.layers.restore()

    def _end_rollout(self: Any) -> None:
        """Flattens steps and environments to samples, as Stable-Baselines3 does."""
        seen = self.observations
        self.observations = (
            {key: self.swap_and_flatten(values) for key, values in seen.items()}
            if isinstance(seen, dict)
            else self.swap_and_flatten(seen)
        )
        for name in ("actions", *SCALARS):
            setattr(self, name, self.swap_and_flatten(getattr(self, name)))
        self.number_of_sample = torch.from_numpy(self.swap_and_flatten(self.numbers)[:, 0])
        self._actions = torch.from_numpy(self.actions).float()
        scalars = np.concatenate([getattr(self, name) for name in SCALARS])
        self._scalars = torch.from_numpy(scalars).view(len(SCALARS), -1)
        self.generator_ready = True

    def _observations_at(self: Any, at: Tensor) -> Any:
        # Each minibatch has its own copy: products of matrices have other last bits where a part of a copy begins.
        if isinstance(self.observations, dict):
            return {key: _rows(values, at, self.device) for key, values in self.observations.items()}
        return _rows(self.observations, at, self.device)

    def _perturb(self: Any, numbers: Tensor) -> None:
        """From now on the layers have a batch of samples, each under the perturbation of its number."""
        if len(self.drawn) == 1:
            self.layers.use(self.layers.folded(self.drawn[0]))
            return
        if self.by_row is None:
            self.by_row = RowPerturbations(self.layers, self.drawn)
        self.by_row.use(numbers)


def _rows(values: np.ndarray, at: Tensor, device: torch.device) -> Tensor:
    return torch.from_numpy(values).index_select(0, at).to(device)


class PerturbedRolloutBuffer(KeepsPerturbations, RolloutBuffer):
    """The rollout buffer of PPO and A2C, each sample with its perturbation."""

    samples_class = RolloutBufferSamples


class PerturbedDictRolloutBuffer(KeepsPerturbations, DictRolloutBuffer):
    """The same for Dict observations."""

    samples_class = DictRolloutBufferSamples


class OnPolicyNoise:
    """What PPO and A2C have in addition: their environments act with perturbed policies, and they learn from these."""

    def __init__(
        self,
        *args: Any,
        delta: float = 0.1,
        sigma: float = 0.01,
        alpha: float = 1.01,
        adapt_every: int = 50,
        **kwargs: Any,
    ):
        """Makes a model.

        Args:
            *args: those of Stable-Baselines3's class.
            delta: the mean KL between perturbed and clean policy to keep.
            sigma: the standard deviation of the noise before the first adaptation.
            alpha: the factor by which one adaptation changes sigma; with 1 it stays as it is.
            adapt_every: calls of env.step, each a step of every environment, between adaptations.
            **kwargs: those of Stable-Baselines3's class.
        """
        self.scaling = Scaling(delta=delta, sigma=sigma, alpha=alpha, adapt_every=adapt_every)
        self._unadapted = 0
        super().__init__(*args, **kwargs)

    def _setup_model(self: Any) -> None:
        is_dict = isinstance(self.observation_space, gym.spaces.Dict)
        buffer_class = PerturbedDictRolloutBuffer if is_dict else PerturbedRolloutBuffer
        if self.rollout_buffer_class not in (None, buffer_class):
            raise UsageError("rollout_buffer_class cannot be set: it must keep each sample's perturbation")
        if self.use_sde:
            raise UsageError("use_sde=True is noise on the last layer's weights already: use Stable-Baselines3's class")
        if not isinstance(self.action_space, gym.spaces.Box | gym.spaces.Discrete):
            raise UsageError(f"parameter noise needs a Box or Discrete action space, not {self.action_space}")
        self.rollout_buffer_class = buffer_class
        super()._setup_model()  # type: ignore[misc]
        acting = nn.ModuleList([self.policy.mlp_extractor.policy_net, self.policy.action_net])
        if not has_layer_norm(acting):
            warnings.warn(
                "parameter noise needs layer norm, so that one sigma suits every layer, and this policy has none: "
                "use paramnoise.sb3.LayerNormActorCriticPolicy",
                stacklevel=3,
            )
        self._layers = PerturbedLayers(acting, beside=self.policy.mlp_extractor.value_net)
        self.rollout_buffer.belong_to(self._layers)
        self._acting = ActingPerturbations(self._layers, self.n_envs)

    def _setup_learn(
        self: Any, total_timesteps: int, callback: Any = None, reset_num_timesteps: bool = True, *args: Any
    ) -> Any:
        if reset_num_timesteps or not hasattr(self, "parameter_noise"):
            self.parameter_noise = NoiseState(self.scaling.sigma, np.random.default_rng(self.seed))
        return super()._setup_learn(total_timesteps, callback, reset_num_timesteps, *args)  # type: ignore[misc]

    def collect_rollouts(self: Any, *args: Any, **kwargs: Any) -> bool:
        """Collects a rollout in which every environment acts with its own perturbed policy, for whole episodes."""
        with self._acting_with_noise():
            ended_well = super().collect_rollouts(*args, **kwargs)  # type: ignore[misc]
        for key, value in self.parameter_noise.report().items():
            self.logger.record(key, value)
        return ended_well

    def train(self: Any) -> None:
        """Learns from the rollout: the buffer says with each minibatch which perturbations its samples have."""
        try:
            super().train()  # type: ignore[misc]
        finally:
            self._layers.restore()
            self._acting.weights_changed()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_layers", "_acting"]  # type: ignore[misc]

    @contextlib.contextmanager
    def _acting_with_noise(self: Any) -> Iterator[None]:
        """The time of a rollout: a call of the policy acts with noise; `predict`, which is no such call, does not."""
        plain = self.policy.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            self._begin_acting()
            try:
                return plain(*args, **kwargs)
            finally:
                self._layers.restore()

        vars(self.policy)["forward"] = forward  # hooks would take longer
        try:
            yield
        finally:
            del self.policy.forward

    def _begin_acting(self: Any) -> None:
        state = self.parameter_noise
        self._unadapted += 1
        if self._unadapted > self.scaling.adapt_every and self.rollout_buffer.pos:
            self._adapt()
            self._unadapted = 1
        for env in self._last_episode_starts.nonzero()[0]:
            perturbation = self._layers.draw(state.sigma, state.rng)
            self._acting.begin_episode(int(env), perturbation)
            self.rollout_buffer.begin_episode(env, perturbation)
        self._acting.use()

    def _adapt(self: Any) -> None:
        """Measures the distance on states of the rollout so far, and adapts sigma to it (eq. 1)."""
        buffer, state = self.rollout_buffer, self.parameter_noise
        size = min(PROBED_STATES, buffer.pos * buffer.n_envs)
        at = state.rng.integers(buffer.pos, size=size), state.rng.integers(buffer.n_envs, size=size)
        if isinstance(buffer.observations, dict):
            seen: Any = {key: values[at] for key, values in buffer.observations.items()}
        else:
            seen = buffer.observations[at]
        with torch.no_grad():
            # As the policy itself has it for its actions; it has no noise, so one pass is enough.
            features = BasePolicy.extract_features(
                self.policy, obs_as_tensor(seen, self.device), self.policy.pi_features_extractor
            )
            clean = self._distribution_parameters(features)
            self._layers.use(self._layers.folded(self._layers.draw(state.sigma, state.rng)))
            perturbed = self._distribution_parameters(features)
            self._layers.restore()
        distance = gaussian_distance if isinstance(self.action_space, gym.spaces.Box) else categorical_distance
        state.adapt(distance(clean, perturbed).item(), self.scaling.delta, self.scaling.alpha)

    def _distribution_parameters(self: Any, features: Tensor) -> Tensor:
        """What distances are taken of: logits, or means and log standard deviations."""
        outputs = self.policy.action_net(self.policy.mlp_extractor.forward_actor(features))
        if isinstance(self.action_space, gym.spaces.Box):
            return torch.stack([outputs, self.policy.log_std.expand_as(outputs)], -2)
        return outputs


class PPO(OnPolicyNoise, stable_baselines3.PPO):
    """Stable-Baselines3's PPO with parameter space noise."""


class A2C(OnPolicyNoise, stable_baselines3.A2C):
    """Stable-Baselines3's A2C with parameter space noise."""
