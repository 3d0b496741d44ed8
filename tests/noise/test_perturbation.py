from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import stats

from paramnoise.noise import perturb, perturb_each, resample, selected
from paramnoise.noise.many import MANY, chunk_of, places_of
from paramnoise.noise.perturbation import redraw_first

KEY = jax.random.key(0)


class Network(eqx.Module):
    """A user's network, with a leaf of every sort: convolution, linear, layer norm, a function."""

    conv: eqx.nn.Conv1d
    dense: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    out: eqx.nn.Linear
    activation: Callable[[Array], Array]

    def __init__(self, key: Array):
        conv_key, dense_key, out_key = jax.random.split(key, 3)
        self.conv = eqx.nn.Conv1d(1, 2, 3, key=conv_key)
        self.dense = eqx.nn.Linear(6, 4, key=dense_key)
        self.norm = eqx.nn.LayerNorm(4)
        self.out = eqx.nn.Linear(4, 3, key=out_key)
        self.activation = jax.nn.relu

    def __call__(self, obs: Array) -> Array:
        features = self.activation(self.conv(obs[None])).reshape(-1)
        return self.out(self.activation(self.norm(self.dense(features))))


@pytest.fixture
def network() -> Network:
    return Network(jax.random.key(1))


def zeros(rows: int, columns: int, names: str = "ab") -> dict[str, Array]:
    """A policy of zeros: perturbed, it is the noise itself."""
    return {name: jnp.zeros((rows, columns)) for name in names}


def everything(path: str, leaf: Array) -> bool:
    return True


def correlation(a: Array, b: Array) -> float:
    return float(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


def arrays(tree: object) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def test_sigma_zero_is_the_identity(network: Network):
    assert eqx.tree_equal(perturb(KEY, network, 0.0), network)


def test_perturbing_leaves_the_original_policy_unchanged(network: Network):
    before = [leaf.copy() for leaf in arrays(network)]
    perturbed = perturb(KEY, network, 1.0)
    assert not np.allclose(perturbed.dense.weight, network.dense.weight)
    for old, now in zip(before, arrays(network), strict=True):
        np.testing.assert_array_equal(old, now)


def test_layer_norm_and_convolutions_get_no_noise(network: Network):
    perturbed = perturb(KEY, network, 1.0)
    assert eqx.tree_equal(perturbed.conv, network.conv)
    assert eqx.tree_equal(perturbed.norm, network.norm)


@pytest.mark.parametrize("layer", ["dense", "out"])
@pytest.mark.parametrize("leaf", ["weight", "bias"])
def test_every_weight_and_bias_of_every_linear_layer_gets_noise(network: Network, layer: str, leaf: str):
    clean, noisy = (getattr(getattr(policy, layer), leaf) for policy in (network, perturb(KEY, network, 1.0)))
    assert np.all(clean != noisy)


def test_a_subclass_of_linear_gets_noise_and_an_absent_bias_stays_absent():
    class Mine(eqx.nn.Linear):
        pass

    layer = Mine(3, 2, use_bias=False, key=KEY)
    perturbed = perturb(KEY, layer, 1.0)
    assert np.all(perturbed.weight != layer.weight)
    assert perturbed.bias is None


def test_a_perturbed_policy_is_a_policy_and_acts_otherwise(network: Network):
    perturbed = perturb(KEY, network, 1.0)
    assert isinstance(perturbed, Network)
    assert perturbed.activation is network.activation
    assert not np.allclose(perturbed(jnp.ones(5)), network(jnp.ones(5)))


def test_noise_is_normal_with_mean_zero_and_standard_deviation_sigma():
    sigma, size = 0.3, 100_000
    draws = np.ravel(perturb(KEY, zeros(1000, 100, "a"), sigma, everything)["a"])
    assert abs(draws.mean()) < 4 * sigma / np.sqrt(size)
    assert abs(draws.std() / sigma - 1) < 4 / np.sqrt(2 * size)
    assert stats.kstest(draws / sigma, "norm").pvalue > 0.001


def test_noise_is_independent_between_leaves():
    noise = perturb(KEY, zeros(100, 100), 1.0, everything)
    assert abs(correlation(noise["a"], noise["b"])) < 4 / np.sqrt(10_000)


def test_noise_is_independent_between_environments():
    noise = perturb_each(KEY, zeros(100, 100, "a"), 1.0, 3, everything)["a"]
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert abs(correlation(noise[one], noise[other])) < 4 / np.sqrt(10_000)


def test_the_same_key_draws_the_same_noise_and_another_key_other_noise(network: Network):
    first = perturb(KEY, network, 1.0)
    assert eqx.tree_equal(first, perturb(KEY, network, 1.0))
    assert np.all(first.dense.weight != perturb(jax.random.key(9), network, 1.0).dense.weight)


def test_noise_scales_with_sigma_and_is_added_to_the_parameters():
    policy = {"w": jnp.full((3,), 5.0)}
    one = perturb(KEY, policy, 1.0, everything)["w"] - 5.0
    half = perturb(KEY, policy, 0.5, everything)["w"] - 5.0
    np.testing.assert_allclose(half, 0.5 * one, atol=1e-6)


def test_a_dict_takes_a_predicate_of_path_and_leaf():
    policy = {"dense": {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}, "norm": {"scale": jnp.ones(3)}}
    seen = {}

    def where(path: str, leaf: Array) -> bool:
        seen[path] = leaf.shape
        return path.startswith("dense/")

    perturbed = perturb(KEY, policy, 1.0, where)
    assert seen == {"dense/kernel": (2, 3), "dense/bias": (3,), "norm/scale": (3,)}
    assert np.all(perturbed["dense"]["kernel"] != 1)
    assert np.all(perturbed["dense"]["bias"] != 1)
    np.testing.assert_array_equal(perturbed["norm"]["scale"], 1)


def test_a_leaf_keeps_its_dtype():
    perturbed = perturb(KEY, {"w": jnp.zeros(4, jnp.bfloat16)}, 1.0, everything)
    assert perturbed["w"].dtype == jnp.bfloat16
    assert np.all(perturbed["w"] != 0)


def test_choosing_nothing_is_an_error_that_names_the_leaves():
    policy = {"dense": {"kernel": jnp.ones(2)}, "scale": jnp.ones(2)}
    with pytest.raises(ValueError, match=r"dense/kernel, scale.*where="):
        perturb(KEY, policy, 1.0)
    with pytest.raises(ValueError, match="no leaf"):
        perturb(KEY, policy, 1.0, lambda path, leaf: False)


@pytest.mark.parametrize("leaf", [jnp.arange(3), jax.nn.relu])
def test_choosing_a_leaf_that_is_no_float_array_is_an_error_that_names_it(leaf: object):
    with pytest.raises(ValueError, match="counter was chosen"):
        perturb(KEY, {"counter": leaf, "w": jnp.ones(2)}, 1.0, everything)


def test_selected_marks_the_linear_layers(network: Network):
    mask = selected(network)
    assert (mask.dense.weight, mask.dense.bias, mask.out.weight, mask.out.bias) == (True,) * 4
    assert not any(jax.tree.leaves((mask.conv, mask.norm, mask.activation)))


def test_perturb_works_under_jit_with_a_traced_sigma(network: Network):
    compiled = eqx.filter_jit(perturb)(KEY, network, jnp.float32(0.5))
    for one, other in zip(arrays(compiled), arrays(perturb(KEY, network, 0.5)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_perturb_under_vmap_draws_what_it_draws_for_each_key():
    keys = jax.random.split(KEY, 3)
    policy = eqx.nn.Linear(3, 2, key=KEY)
    batch = jax.vmap(lambda key: perturb(key, policy, 1.0))(keys)
    np.testing.assert_allclose(batch.weight[2], perturb(keys[2], policy, 1.0).weight, rtol=1e-6)


def test_each_environment_has_a_policy_of_its_own(network: Network):
    policies = perturb_each(KEY, network, 1.0, 4)
    assert all(
        stacked.shape == (4, *leaf.shape) for stacked, leaf in zip(arrays(policies), arrays(network), strict=True)
    )
    outputs = eqx.filter_vmap(lambda policy: policy(jnp.ones(5)))(policies)
    assert len(np.unique(np.asarray(outputs), axis=0)) == 4


def test_leaves_without_noise_are_copied_for_each_environment(network: Network):
    policies = perturb_each(KEY, network, 1.0, 4)
    np.testing.assert_array_equal(policies.norm.weight, np.ones((4, 4)))
    np.testing.assert_array_equal(policies.conv.weight, np.stack([network.conv.weight] * 4))


def test_resampling_one_environment_leaves_the_others_alone(network: Network):
    policies = perturb_each(KEY, network, 1.0, 3)
    resampled = resample(jax.random.key(2), policies, network, 1.0, jnp.array([False, True, False]))
    for old, new in zip(arrays(policies), arrays(resampled), strict=True):
        np.testing.assert_array_equal(old[[0, 2]], new[[0, 2]])
    assert np.all(policies.dense.weight[1] != resampled.dense.weight[1])
    assert resampled.activation is network.activation


def test_a_resampled_policy_follows_the_clean_policy_of_now(network: Network):
    policies = perturb_each(KEY, network, 1.0, 2)
    learned = jax.tree.map(lambda leaf: leaf + 7.0 if eqx.is_array(leaf) else leaf, network)
    resampled = resample(jax.random.key(2), policies, learned, 1e-3, jnp.array([True, False]))
    np.testing.assert_array_equal(resampled.norm.weight, [[8.0] * 4, [1.0] * 4])
    np.testing.assert_array_equal(resampled.conv.weight[0], learned.conv.weight)
    np.testing.assert_allclose(resampled.dense.weight[0], learned.dense.weight, atol=0.01)


def test_resampling_where_no_episode_starts_changes_nothing(network: Network):
    policies = perturb_each(KEY, network, 1.0, 2)
    assert eqx.tree_equal(resample(KEY, policies, network, 5.0, jnp.zeros(2, bool)), policies)


@pytest.mark.parametrize("fraction", [0.0, 0.02, 0.5, 1.0])
def test_among_many_environments_those_that_start_get_the_draws_that_all_would_get(fraction: float):
    """From `MANY` environments on policies are drawn in chunks, of all seeds together; no draw may depend on that."""
    seeds, num_envs = 2, MANY + 7
    keys, starts = jax.random.split(KEY, seeds), jax.random.uniform(KEY, (seeds, num_envs)) < fraction
    clean = {"w": jnp.arange(seeds * 3.0).reshape(seeds, 3)}
    acting = {"w": jnp.full((seeds, num_envs, 3), 9.0)}
    sigmas = jnp.array([0.5, 2.0])

    @jax.jit
    @jax.vmap
    def both(key: Array, acting: dict, clean: dict, sigma: Array, starts: Array) -> tuple[dict, dict]:
        every = perturb_each(key, clean, sigma, num_envs, everything)
        return resample(key, acting, clean, sigma, starts, everything), every

    some, every = both(keys, acting, clean, sigmas, starts)
    np.testing.assert_array_equal(some["w"], np.where(starts[..., None], every["w"], 9.0))


def test_among_many_environments_some_may_share_their_draw():
    starts = jnp.arange(MANY) % 3 == 0
    some = resample(KEY, {"w": jnp.zeros((MANY, 2))}, {"w": jnp.zeros(2)}, 1.0, starts, everything, distinct=4)["w"]
    every = perturb_each(KEY, {"w": jnp.zeros(2)}, 1.0, MANY, everything, distinct=4)["w"]
    np.testing.assert_array_equal(some, np.where(starts[:, None], every, 0.0))


@pytest.mark.parametrize("chosen", [[], [3], [0, 1, 127, 128, 299], range(300)])
def test_places_are_those_of_the_chosen_in_order_and_then_none(chosen: list[int]):
    places = np.asarray(places_of(jnp.zeros(300, bool).at[jnp.array(list(chosen), int)].set(True)))
    assert places[: len(chosen)].tolist() == list(chosen)
    assert (places[len(chosen) :] == 300).all()


def test_the_program_that_counts_does_not_grow_with_the_square_of_what_it_counts():
    few, many = (len(jax.jit(places_of).lower(jax.ShapeDtypeStruct((n,), bool)).as_text()) for n in (2**10, 2**17))
    assert many < 1.1 * few


def test_one_chunk_is_drawn_at_a_fixed_cost_and_the_others_are_left():
    starts, policies, clean = jnp.arange(MANY) % 2 == 0, {"w": jnp.zeros((MANY, 2))}, {"w": jnp.zeros(2)}
    some, left = redraw_first(KEY, policies, clean, 1.0, starts, everything)
    assert int(left.sum()) == MANY // 2 - chunk_of(MANY)
    every = perturb_each(KEY, clean, 1.0, MANY, everything)["w"]
    np.testing.assert_array_equal(some["w"], np.where((starts & ~left)[:, None], every, 0.0))
    again = resample(KEY, some, clean, 1.0, left, everything)["w"]
    np.testing.assert_array_equal(again, np.where(starts[:, None], every, 0.0))
