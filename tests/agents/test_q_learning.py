import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise import UsageError
from paramnoise.agents.dqn import DQNConfig
from paramnoise.agents.q_learning import apply_gradient, init_state, td_target


@pytest.mark.parametrize(("terminated", "target"), [(False, 1.0 + 0.9 * 5.0), (True, 1.0)])
def test_only_termination_cuts_the_bootstrap(terminated, target):
    found = td_target(jnp.float32(1.0), jnp.bool_(terminated), jnp.float32(5.0), 0.9)
    np.testing.assert_allclose(found, target, rtol=1e-6)


def test_a_terminated_target_ignores_even_an_infinite_next_value():
    assert td_target(jnp.float32(1.0), jnp.bool_(True), jnp.float32(jnp.inf), 0.9) == 1.0


def test_the_target_network_is_copied_every_target_period_and_not_between():
    config = DQNConfig(train_every=2, target_every=6)
    state = init_state(config, jnp.zeros(1))
    for update in range(1, 7):
        state = apply_gradient(config, state, jnp.ones(1))
        lag = 0 if update % 3 == 0 else update % 3
        steps_behind = (state.target - state.network) / config.learning_rate
        np.testing.assert_allclose(steps_behind, [lag], atol=1e-3)  # Adam moves by its rate under a constant gradient


def test_the_optimizer_is_adam_by_hand():
    config = DQNConfig(learning_rate=0.1, adam_epsilon=1e-2)
    gradients = np.array([0.5, -2.0, 0.1])
    state = init_state(config, jnp.float32(1.0))
    m = v = 0.0
    expected = 1.0
    for t, gradient in enumerate(gradients, start=1):
        state = apply_gradient(config, state, jnp.float32(gradient))
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        expected -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-2)
    np.testing.assert_allclose(state.network, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"gamma": 1.5}, "gamma"),
        ({"batch_size": 0}, "batch_size"),
        ({"buffer_size": 4, "batch_size": 8}, "buffer_size"),
        ({"train_every": 4, "target_every": 10}, "target_every"),
        ({"hidden_sizes": (8, 0)}, "hidden_sizes"),
    ],
)
def test_a_setting_out_of_range_is_named(settings, field):
    with pytest.raises(UsageError, match=field):
        DQNConfig(**settings)


def test_a_fresh_state_has_a_target_equal_to_its_network():
    network = {"w": jax.random.normal(jax.random.key(0), (3,))}
    state = init_state(DQNConfig(), network)
    np.testing.assert_array_equal(state.target["w"], network["w"])
    assert state.updates == 0
