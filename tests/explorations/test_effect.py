"""What noise does to a policy, against numbers computed by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.explorations.effect import effect
from paramnoise.networks.policies import DeterministicPolicy, GreedyPolicy
from paramnoise.noise import perturb

KEYS = jax.random.split(jax.random.key(0), 6)
OBS = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0], [0.5, 0.5]])


def linear() -> eqx.nn.Linear:
    layer = eqx.nn.Linear(2, 2, key=jax.random.key(1))
    return eqx.tree_at(lambda each: (each.weight, each.bias), layer, (jnp.eye(2), jnp.zeros(2)))


def outputs(key: jax.Array, sigma: float) -> np.ndarray:
    """What the perturbed layer gives for each state, in NumPy."""
    layer = perturb(key, linear(), sigma)
    return np.asarray(OBS) @ np.asarray(layer.weight).T + np.asarray(layer.bias)


def test_the_effect_on_action_values_is_a_kl_and_a_part_of_changed_actions():
    found = effect(KEYS, GreedyPolicy(linear()), OBS, 0.8)
    clean = np.asarray(OBS)
    log = lambda values: values - np.log(np.exp(values).sum(axis=1, keepdims=True))  # noqa: E731
    for i, key in enumerate(KEYS):
        noisy = outputs(key, 0.8)
        kl = (np.exp(log(clean)) * (log(clean) - log(noisy))).sum(axis=1).mean()
        assert found.distance[i] == pytest.approx(kl, rel=1e-4)
        assert found.changed[i] == np.mean(clean.argmax(axis=1) != noisy.argmax(axis=1))
    assert 0 < found.changed.mean() < 1


def test_the_effect_on_continuous_actions_is_a_root_mean_square():
    found = effect(KEYS, DeterministicPolicy(linear()), OBS, 0.3)
    expected = [np.sqrt(np.mean((outputs(key, 0.3) - np.asarray(OBS)) ** 2)) for key in KEYS]
    np.testing.assert_allclose(found.distance, expected, rtol=1e-5)


def test_without_noise_nothing_changes():
    found = effect(KEYS, GreedyPolicy(linear()), OBS, 0.0)
    assert not found.distance.any()
    assert not found.changed.any()
