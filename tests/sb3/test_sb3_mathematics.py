"""One source of truth: what is written in PyTorch is `paramnoise.noise`, on the same numbers."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from paramnoise import noise
from paramnoise.networks.policies import CategoricalPolicy, GaussianPolicy
from paramnoise.sb3 import distance
from paramnoise.sb3.scale import NoiseState, Scaling, adapted
from paramnoise.validation import UsageError

pytestmark = pytest.mark.sb3

RNG = np.random.default_rng(0)
CLEAN, PERTURBED = RNG.normal(size=(2, 7, 3)).astype(np.float32) * 3
GAUSSIANS = RNG.normal(size=(2, 7, 2, 3)).astype(np.float32)


def same(ours: object, theirs: object) -> None:
    np.testing.assert_allclose(float(ours), float(theirs), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["kl_distance", "rms_distance"])
@pytest.mark.parametrize("others", [PERTURBED, CLEAN, 100 * PERTURBED], ids=["apart", "equal", "far apart"])
def test_a_distance_is_that_of_the_noise_core(name: str, others: np.ndarray):
    ours = getattr(distance, name)(torch.from_numpy(CLEAN), torch.from_numpy(others))
    same(ours, getattr(noise, name)(CLEAN, others))


def test_the_distance_of_gaussians_is_that_of_the_gaussian_policy():
    policy = GaussianPolicy(None, None)  # its distance reads values alone
    ours = distance.gaussian_distance(*map(torch.from_numpy, GAUSSIANS))
    same(ours, policy.distance(*map(jnp.asarray, GAUSSIANS)))
    assert abs(ours - distance.gaussian_distance(*map(torch.from_numpy, GAUSSIANS[::-1]))) > 0.1  # the order matters


def test_the_distance_of_softmaxes_is_that_of_the_categorical_policy():
    ours = distance.categorical_distance(torch.from_numpy(CLEAN), torch.from_numpy(PERTURBED))
    same(ours, CategoricalPolicy(None).distance(jnp.asarray(CLEAN), jnp.asarray(PERTURBED)))
    assert abs(ours - distance.kl_distance(torch.from_numpy(CLEAN), torch.from_numpy(PERTURBED))) > 0.01


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_delta_from_epsilon_is_that_of_the_noise_core(epsilon: float):
    same(distance.delta_from_epsilon(epsilon, 4), noise.delta_from_epsilon(epsilon, 4))


@pytest.mark.parametrize("sigma", [0.0, 1e-8, 0.01, 0.2, 1e4])
@pytest.mark.parametrize("measured", [0.1, 0.2, 0.3])
@pytest.mark.parametrize("alpha", [1.0, 1.01, 1.5])
def test_sigma_is_adapted_as_in_the_noise_core(sigma: float, measured: float, alpha: float):
    same(adapted(sigma, measured, 0.2, alpha), noise.adapt(noise.initial_scale(sigma), measured, 0.2, alpha).sigma)


def test_a_state_takes_down_what_it_was_adapted_to():
    state = NoiseState(0.1, np.random.default_rng(0))
    state.adapt(0.3, 0.2, 1.01)
    state.adapt(0.1, 0.2, 1.01)
    assert (state.adaptations, state.distance, state.delta) == (2, 0.1, 0.2)
    assert state.sigma == pytest.approx(0.1)
    assert set(state.report()) == {f"rollout/param_noise_{name}" for name in ("sigma", "distance", "delta")}


@pytest.mark.parametrize("wrong", [{"delta": 0.0}, {"sigma": -0.1}, {"alpha": 0.9}, {"adapt_every": 0}], ids=str)
def test_a_setting_out_of_range_is_refused_by_name(wrong: dict[str, float]):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Scaling(**wrong)
