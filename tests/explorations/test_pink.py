"""Coloured noise: its spectrum is that of the package `colorednoise`, and each episode has a sequence of its own."""

import colorednoise
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.explorations import pink
from paramnoise.networks.policies import DeterministicPolicy, SquashedGaussianPolicy

KEY = jax.random.key(0)


def with_draws(monkeypatch, seed, shape):
    """Gives `jax.random.normal` the numbers that colorednoise draws with a seed: of real parts, then of imaginary."""
    rng = np.random.default_rng(seed)
    draws = np.stack([rng.normal(size=shape), rng.normal(size=shape)])
    monkeypatch.setattr(jax.random, "normal", lambda key, wanted: jnp.asarray(draws.reshape(wanted), jnp.float32))


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("steps", [2, 9, 64])
def test_a_sequence_is_that_of_colorednoise_for_the_same_draws(monkeypatch, beta, steps):
    expected = colorednoise.powerlaw_psd_gaussian(beta, (3, steps), random_state=7)
    with_draws(monkeypatch, 7, (3, steps // 2 + 1))
    found = pink.coloured_noise(KEY, beta, steps, (3,))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("beta", [0.0, 1.0, 1.5])
def test_power_falls_with_the_frequency_as_its_exponent_says(beta):
    noise = np.asarray(pink.coloured_noise(KEY, beta, 128, (2_000,)))
    power = np.mean(np.abs(np.fft.rfft(noise)) ** 2, axis=0)[1:-1]
    slope = np.polyfit(np.log(np.fft.rfftfreq(128)[1:-1]), np.log(power), 1)[0]
    assert slope == pytest.approx(-beta, abs=0.02)
    within = np.mean((noise - noise.mean(axis=1, keepdims=True)) ** 2)
    assert within == pytest.approx(1.0, rel=0.05)


def constant(*values):
    """A network with the same outputs whatever it sees."""
    return lambda obs: jnp.array(values) + 0.0 * obs[0]


def test_noise_is_one_sequence_for_an_episode_from_its_first_step_on():
    exploration, policy = pn.ColouredNoise(sigma=0.1, horizon=4), DeterministicPolicy(constant(0.2, -0.3))
    obs, starts = jnp.zeros((2, 1)), jnp.array([True, True])
    state = exploration.begin_episode(KEY, exploration.init(policy, obs), policy, starts, jnp.int32(10))
    state = exploration.begin_episode(jax.random.key(1), state, policy, jnp.array([False, True]), jnp.int32(14))
    for step, places in ((14, (2, 0)), (16, (3, 1)), (18, (0, 2))):  # the first is past its horizon then
        after, actions = exploration.act(KEY, state, policy, obs, jnp.int32(step))
        assert after is state
        expected = [0.1 * np.asarray(state.noise)[env, place] + [0.2, -0.3] for env, place in enumerate(places)]
        np.testing.assert_allclose(actions, expected, rtol=1e-5)
    assert len(np.unique(state.noise)) == state.noise.size  # other numbers for each environment, step and dimension


def test_noise_on_actions_is_clipped():
    exploration, policy = pn.ColouredNoise(sigma=50.0, horizon=4), DeterministicPolicy(constant(0.0))
    obs = jnp.zeros((9, 1))
    state = exploration.begin_episode(KEY, exploration.init(policy, obs), policy, jnp.ones(9, bool), jnp.int32(0))
    assert set(np.abs(exploration.act(KEY, state, policy, obs, jnp.int32(0))[1]).ravel()) == {1.0}


def test_a_squashed_gaussian_is_drawn_from_by_the_sequence_in_place_of_white_noise():
    exploration, policy = pn.ColouredDraws(horizon=4), SquashedGaussianPolicy(constant(0.2, -0.3, -1.0, 0.5))
    obs = jnp.zeros((2, 1))
    state = exploration.begin_episode(KEY, exploration.init(policy, obs), policy, jnp.ones(2, bool), jnp.int32(0))
    _, actions = exploration.act(KEY, state, policy, obs, jnp.int32(2))
    expected = np.tanh([0.2, -0.3] + np.exp([-1.0, 0.5]) * np.asarray(state.noise)[:, 1])
    np.testing.assert_allclose(actions, expected, rtol=1e-5)


@pytest.mark.parametrize("cls", [pn.ColouredNoise, pn.ColouredDraws])
@pytest.mark.parametrize("settings", [{"beta": -0.1}, {"horizon": 1}])
def test_a_setting_out_of_range_is_named(cls, settings):
    with pytest.raises(pn.UsageError, match=next(iter(settings))):
        cls(**settings)
