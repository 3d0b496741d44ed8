import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from paramnoise import noise
from paramnoise.networks import MLP
from paramnoise.networks.policies import CategoricalPolicy, GaussianPolicy
from paramnoise.noise.natural import backtrack, boundary_scale, conjugate_gradient, fisher_product

KEY = jax.random.key(0)
natural_noise = eqx.filter_jit(noise.natural_noise)
OBS = jax.random.normal(jax.random.key(1), (5, 2))


def gaussian(key=KEY, actions=1, hidden=3):
    return GaussianPolicy(
        MLP((2, hidden, actions), key=key, layer_norm=False, activation=jnp.tanh), jnp.full(actions, -0.3)
    )


def categorical(key=KEY):
    return CategoricalPolicy(MLP((2, 3, 4), key=key, layer_norm=False, activation=jnp.tanh))


def explicit_fisher(policy, obs, actions, weights):
    """The mean over states of sum_a w(a) score score'; `weights` are the probabilities of `actions` in each state."""
    flat, unflatten = ravel_pytree(policy)
    score = jax.grad(lambda p, o, a: policy.log_probability(unflatten(p)(o), a))
    scores = jax.jit(jax.vmap(jax.vmap(score, (None, None, 0)), (None, 0, 0)))(flat, obs, actions)
    return np.einsum("sa,sai,saj->ij", weights, scores, scores) / len(obs)


def products(policy, obs):
    """The matrix that `fisher_product` is, column by column."""
    flat, unflatten = ravel_pytree(policy)
    mean_kl = lambda p, q: jnp.mean(policy.divergence(p, q))  # noqa: E731
    column = lambda v: fisher_product(lambda p: jax.vmap(unflatten(p))(obs), mean_kl, flat, v)  # noqa: E731
    return jax.jit(jax.vmap(column))(jnp.eye(flat.size))


def test_a_fisher_product_is_that_of_the_explicit_matrix_of_a_softmax_policy():
    policy = categorical()
    probabilities = jax.nn.softmax(jax.vmap(policy)(OBS))
    expected = explicit_fisher(policy, OBS, jnp.tile(jnp.arange(4), (5, 1)), probabilities)
    np.testing.assert_allclose(products(policy, OBS), expected, atol=1e-6)
    assert np.abs(expected).max() > 0.01


def test_a_fisher_product_is_that_of_the_explicit_matrix_of_a_gaussian_policy():
    policy = gaussian()
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)  # exact for the score's outer product, of degree 4
    values = jax.vmap(policy)(OBS)
    actions = values[:, :1] + jnp.exp(values[:, 1:]) * jnp.asarray(nodes, jnp.float32)[:, None]
    expected = explicit_fisher(policy, OBS, actions, np.tile(weights / weights.sum(), (5, 1)))
    np.testing.assert_allclose(products(policy, OBS), expected, atol=1e-5)
    np.testing.assert_allclose(expected[-1, -1], 2.0, rtol=1e-5)  # of the log std


def test_conjugate_gradient_agrees_with_a_dense_solve():
    root = np.random.default_rng(0).normal(size=(8, 8))
    matrix, target = root @ root.T + np.eye(8), np.arange(1.0, 9.0)
    x = conjugate_gradient(lambda v: jnp.asarray(matrix, jnp.float32) @ v, jnp.asarray(target, jnp.float32), steps=20)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, target), rtol=1e-3)


def test_conjugate_gradient_takes_as_many_steps_as_it_may_and_none_for_nothing():
    matrix = jnp.diag(jnp.array([1.0, 10.0]))
    one = conjugate_gradient(lambda v: matrix @ v, jnp.array([1.0, 1.0]), steps=1)
    np.testing.assert_allclose(one, [2 / 11, 2 / 11], rtol=1e-6)  # steepest descent: r'r / r'Ar
    np.testing.assert_array_equal(conjugate_gradient(lambda v: matrix @ v, jnp.zeros(2)), [0.0, 0.0])


def test_conjugate_gradient_ends_at_an_absolute_squared_residual_however_small_the_target():
    matrix = jnp.diag(jnp.array([1.0, 2.0, 5.0]))
    solve = lambda size: conjugate_gradient(lambda v: matrix @ v, size * jnp.ones(3), steps=10)  # noqa: E731
    np.testing.assert_array_equal(solve(5e-6), [0.0, 0.0, 0.0])  # 3 * 5e-6^2 is below 1e-10
    np.testing.assert_allclose(solve(1e-3), [1e-3, 5e-4, 2e-4], atol=1e-5)


@pytest.mark.parametrize(
    ("first_good", "most", "fraction", "backtracks", "found"),
    [(0, 5, 1.0, 0, True), (2, 5, 0.25, 2, True), (4, 5, 0.0625, 4, True), (5, 5, 0.0, 5, False)],
)
def test_a_search_takes_the_longest_acceptable_step_or_none(first_good, most, fraction, backtracks, found):
    acceptable = lambda f: (f <= 0.5**first_good, 10 * f)  # noqa: E731
    search = backtrack(acceptable, jnp.float32(-1), 0.5, most)
    assert (search.fraction, search.backtracks, search.found) == (fraction, backtracks, found)
    assert search.measured == (10 * fraction if found else -1)


def test_the_boundary_is_where_the_quadratic_model_of_the_kl_is_delta():
    np.testing.assert_allclose(0.5 * boundary_scale(jnp.float32(8.0), 0.01) ** 2 * 8.0, 0.01, rtol=1e-6)
    assert boundary_scale(jnp.float32(0.0), 0.01) == 0


def test_noise_of_a_linear_policy_is_the_natural_step_on_the_boundary():
    linear = eqx.nn.Linear(2, 1, key=KEY)
    half_square = lambda values, others: 0.5 * jnp.sum(jnp.square(values - others), axis=-1)  # noqa: E731
    drawn = natural_noise(KEY, linear, OBS, half_square, delta=0.02, damping=1e-4, cg_steps=20)
    inputs = np.concatenate([OBS, np.ones((5, 1))], axis=1)
    fisher = inputs.T @ inputs / 5 + 1e-4 * np.eye(3)
    step = np.linalg.solve(fisher, noise.spherical_noise(KEY, linear, 0.01))
    np.testing.assert_allclose(drawn.offset / np.linalg.norm(drawn.offset), step / np.linalg.norm(step), atol=1e-4)
    np.testing.assert_allclose(drawn.offset @ fisher @ drawn.offset / 2, 0.02, rtol=1e-3)
    assert drawn.backtracks == 0


@pytest.mark.parametrize("scaling", ["boundary", "shrink"])
@pytest.mark.parametrize("make", [gaussian, categorical])
def test_noise_stays_within_the_bound_for_random_networks_states_and_draws(make, scaling):
    def case(key):
        keys = jax.random.split(key, 6)
        size = jnp.exp(jax.random.uniform(keys[0], (), minval=-2.0, maxval=2.0))
        policy = jax.tree.map(lambda leaf: size * leaf, make(keys[1]))
        obs = jnp.exp(jax.random.uniform(keys[2], (), minval=-2.0, maxval=2.0)) * jax.random.normal(keys[3], (20, 2))
        delta = jnp.exp(jax.random.uniform(keys[4], (), minval=-9.0, maxval=0.0))
        drawn = natural_noise(keys[5], policy, obs, policy.divergence, delta=delta, scaling=scaling, max_backtracks=60)
        perturbed = noise.displace(policy, drawn.offset)
        kl = jnp.mean(policy.divergence(jax.vmap(perturbed)(obs), jax.vmap(policy)(obs)))
        return kl, delta, drawn, jax.tree.leaves(noise.displace(jax.tree.map(jnp.zeros_like, policy), drawn.offset))

    kl, delta, drawn, leaves = jax.jit(jax.vmap(case))(jax.random.split(jax.random.key(3), 300))
    rounding = 2e-6  # a KL near 0 is a difference of numbers near 1
    assert (kl <= delta * (1 + 1e-3) + rounding).all()
    np.testing.assert_allclose(kl, drawn.kl, rtol=1e-3, atol=rounding)
    assert drawn.found.mean() > 0.95
    assert (drawn.kl > 0.1 * delta)[drawn.found & (delta > 1e-3)].mean() > 0.9  # near the bound, not far inside
    if make is gaussian:
        assert not leaves[-1].any()  # the log std
        assert all(leaf.any() for leaf in leaves[:-1])


def test_a_search_that_fails_leaves_the_policy_without_noise():
    policy = gaussian()
    drawn = natural_noise(KEY, policy, OBS, policy.divergence, scaling="shrink", sigma=10.0, max_backtracks=1)
    assert not drawn.found
    assert not drawn.offset.any()
    assert drawn.kl == 0


def test_sigma_0_is_no_noise():
    policy = gaussian()
    drawn = natural_noise(KEY, policy, OBS, policy.divergence, sigma=0.0)
    assert not drawn.offset.any()
    assert drawn.found


def test_noise_of_a_parameter_dict_goes_to_the_leaves_that_are_chosen():
    params = {"dense": jnp.ones((2, 3)), "scale": jnp.ones(3)}
    outputs = lambda p, obs: obs @ p["dense"] * p["scale"]  # noqa: E731
    half_square = lambda values, others: 0.5 * jnp.sum(jnp.square(values - others), axis=-1)  # noqa: E731
    chosen = {"where": lambda path, leaf: path == "dense", "outputs": outputs}
    drawn = natural_noise(KEY, params, OBS, half_square, delta=0.05, **chosen)
    perturbed = noise.displace(params, drawn.offset)
    np.testing.assert_array_equal(perturbed["scale"], params["scale"])
    assert (perturbed["dense"] != params["dense"]).all()
    np.testing.assert_allclose(half_square(outputs(perturbed, OBS), outputs(params, OBS)).mean(), drawn.kl, rtol=1e-5)


def test_spherical_noise_has_standard_deviation_sigma_on_the_linear_layers_alone():
    policy = gaussian(hidden=500)
    offset = noise.spherical_noise(KEY, policy, 0.2)
    assert offset[-1] == 0  # the log std
    np.testing.assert_allclose(offset[:-1].std(), 0.2, rtol=0.1)


def test_an_unknown_scaling_is_refused():
    with pytest.raises(ValueError, match="boundary, shrink, not 'none'"):
        natural_noise(KEY, gaussian(), OBS, gaussian().divergence, scaling="none")
