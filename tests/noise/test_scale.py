from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from paramnoise.noise import Scale, adapt, initial_scale, kl_distance, perturb, rms_distance


@pytest.mark.parametrize(("distance", "grows"), [(0.0, True), (0.1, True), (0.2, True), (0.21, False), (3.0, False)])
def test_sigma_grows_up_to_delta_and_shrinks_above(distance: float, grows: bool):
    scale = adapt(initial_scale(0.5), distance, 0.2)
    assert (scale.sigma > 0.5) == grows
    assert (scale.sigma < 0.5) == (not grows)


@pytest.mark.parametrize("alpha", [1.0, 1.01, 1.5])
def test_one_adaptation_changes_sigma_by_exactly_alpha(alpha: float):
    sigma = np.float32(0.3)
    assert adapt(initial_scale(0.3), 0.0, 1.0, alpha).sigma == sigma * np.float32(alpha)
    assert adapt(initial_scale(0.3), 2.0, 1.0, alpha).sigma == sigma * np.float32(1 / alpha)


def test_alpha_is_that_of_the_paper_by_default():
    assert adapt(initial_scale(1.0), 0.0, 1.0).sigma == np.float32(1.01)


def test_adaptations_are_counted():
    scale = initial_scale()
    for distance in (0.0, 2.0, 0.0):
        scale = adapt(scale, distance, 1.0)
    assert scale.adaptations == 3


def test_the_initial_scale_is_as_given_and_never_adapted():
    scale = initial_scale(0.25)
    assert (float(scale.sigma), int(scale.adaptations)) == (0.25, 0)
    assert initial_scale().sigma == np.float32(0.01)


def test_types_and_shapes_stay_as_they_are_so_that_a_scan_can_carry_the_scale():
    scale, _ = jax.lax.scan(lambda s, d: (adapt(s, d, 0.5), None), initial_scale(), jnp.array([0.0, 1.0, 1.0]))
    assert isinstance(scale, Scale)
    assert (scale.sigma.dtype, scale.sigma.shape) == (jnp.float32, ())
    np.testing.assert_allclose(scale.sigma, 0.01 / 1.01, rtol=1e-6)


@pytest.mark.parametrize("start", [0.001, 10.0])
@pytest.mark.parametrize(("measure", "delta"), [(kl_distance, 0.05), (rms_distance, 0.2)])
def test_sigma_settles_where_the_distance_is_delta(measure: Callable[..., Array], delta: float, start: float):
    policy = eqx.nn.MLP(4, 4, 64, 2, key=jax.random.key(0), final_activation=jnp.tanh)
    obs = jax.random.normal(jax.random.key(1), (32, 4))

    def step(scale: Scale, key: Array) -> tuple[Scale, Array]:
        distance = measure(jax.vmap(policy)(obs), jax.vmap(perturb(key, policy, scale.sigma))(obs))
        return adapt(scale, distance, delta), distance

    keys = jax.random.split(jax.random.key(2), 1500)
    scale, distances = jax.jit(lambda k: jax.lax.scan(step, initial_scale(start), k))(keys)
    assert jnp.mean(distances[-500:]) == pytest.approx(delta, rel=0.3)
    assert scale.adaptations == 1500


@pytest.mark.parametrize("distance", [0.0, 1.0])
def test_a_delta_that_is_never_met_leaves_sigma_finite_and_positive(distance):
    def step(scale, _):
        return adapt(scale, distance, 0.5), None

    scale, _ = jax.lax.scan(step, initial_scale(0.01), length=20_000)
    assert 0 < scale.sigma < np.inf
