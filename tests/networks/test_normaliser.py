import jax.numpy as jnp
import numpy as np

from paramnoise.networks import normaliser as normalisers


def normaliser_of(*batches):
    normaliser = normalisers.init(batches[0].shape[1])
    for batch in batches:
        normaliser = normalisers.observe(normaliser, jnp.asarray(batch))
    return normaliser


def test_statistics_of_batches_are_those_of_all_observations_at_once():
    data = np.random.default_rng(0).normal(3.0, 2.0, (1_000, 4)).astype(np.float32)
    normaliser = normaliser_of(*np.split(data, [1, 2, 10, 500]))
    assert normaliser.seen == 1_000
    np.testing.assert_allclose(normaliser.mean, data.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(jnp.sqrt(normaliser.squares / 1_000), data.std(axis=0), rtol=1e-4)


def test_an_observation_is_normalised_by_mean_and_std():
    normaliser = normaliser_of(np.array([[0.0], [4.0]], np.float32))  # mean 2, std 2
    np.testing.assert_allclose(normaliser(jnp.array([5.0])), [1.5], rtol=1e-6)


def test_the_std_has_a_floor_and_the_result_is_clipped():
    normaliser = normaliser_of(np.full((3, 1), 7.0, np.float32))  # std 0
    np.testing.assert_allclose(normaliser(jnp.array([7.2])), [2.0], rtol=1e-4)
    np.testing.assert_allclose(normaliser(jnp.array([[9.0], [-9.0]])), [[5.0], [-5.0]])


def test_an_observation_passes_before_any_was_seen():
    np.testing.assert_array_equal(normalisers.init(2)(jnp.array([30.0, -0.5])), [30.0, -0.5])
