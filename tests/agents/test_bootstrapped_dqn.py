import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise import UsageError
from paramnoise.agents import Spaces, bootstrapped_dqn
from paramnoise.agents.bootstrapped_dqn import BootstrappedDQNConfig
from paramnoise.experience.replay import Transition
from paramnoise.networks import BootstrappedQNetwork

SPACES = Spaces(observation=(2,), actions=2, is_discrete=True)
CONFIG = BootstrappedDQNConfig(hidden_sizes=(4,), num_heads=3, gamma=0.5)


def network_with_head_biases(biases):
    """Heads that ignore their input, so that head k's Q values are its biases."""
    network = BootstrappedQNetwork((2, 4, 2), num_heads=3, key=jax.random.key(0))
    place = lambda net: [net.heads.weight, net.heads.bias]  # noqa: E731
    return eqx.tree_at(place, network, [jnp.zeros((3, 2, 4)), jnp.array(biases)])


def transition(mask, *, terminated=False):
    return Transition(jnp.ones(2), jnp.int32(0), jnp.float32(1.0), jnp.zeros(2), jnp.bool_(terminated), jnp.array(mask))


NETWORK = network_with_head_biases([[1.0, 0.0], [0.0, 0.0], [2.0, 9.0]])
TARGET = network_with_head_biases([[0.0, 1.0], [2.0, 0.0], [0.5, 0.0]])


@pytest.mark.parametrize(
    ("mask", "terminated", "loss"),
    [
        # Q(s, 0) of the heads: 1, 0, 2. Each head's own max of the target: 1, 2, 0.5. Targets: 1.5, 2, 1.25.
        ([1, 1, 1], False, (0.5 * 0.5**2 + (2.0 - 0.5) + 0.5 * 0.75**2) / 3),
        ([1, 0, 0], False, 0.5 * 0.5**2 / 3),
        ([0, 1, 0], False, (2.0 - 0.5) / 3),
        ([0, 0, 0], False, 0.0),
        ([1, 1, 1], True, (0.0 + 0.5 * 1.0**2 + 0.5 * 1.0**2) / 3),  # targets are the reward, 1
    ],
)
def test_each_head_learns_from_its_mask_and_its_own_target(mask, terminated, loss):
    found = bootstrapped_dqn.masked_loss(CONFIG, NETWORK, TARGET, transition(mask, terminated=terminated))
    np.testing.assert_allclose(found, loss, rtol=1e-6)


def test_a_masked_head_gets_no_gradient():
    gradient = jax.grad(bootstrapped_dqn.masked_loss, argnums=1)(CONFIG, NETWORK, TARGET, transition([1, 0, 1]))
    moved = np.abs(gradient.heads.bias).sum(axis=1) > 0
    assert moved.tolist() == [True, False, True]


def test_masks_are_drawn_per_environment_and_head_with_the_given_probability():
    learner = bootstrapped_dqn.make(BootstrappedDQNConfig(num_heads=20, mask_probability=0.3), SPACES)
    masks = learner.annotate(jax.random.key(0), 500)
    assert masks.shape == (500, 20)
    assert abs(masks.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / masks.size)
    assert len(np.unique(np.asarray(masks[:, :10]), axis=0)) > 50


def test_an_update_moves_the_shared_torso_and_every_unmasked_head():
    learner = bootstrapped_dqn.make(CONFIG, SPACES)
    before = learner.init(jax.random.key(1))
    batch = jax.tree.map(lambda x: x[None], transition([1, 0, 1]))
    after, terms = learner.update(before, batch)
    change = jax.tree.map(lambda new, old: np.abs(new - old).max(), after.network, before.network)
    assert change.torso.layers[0].weight > 0
    heads = np.abs(after.network.heads.bias - before.network.heads.bias).max(axis=1)
    assert (heads > 0).tolist() == [True, False, True]
    assert terms["q_loss"] > 0


@pytest.mark.parametrize("settings", [{"num_heads": 0}, {"mask_probability": 0.0}, {"learning_rate": -1.0}])
def test_a_setting_out_of_range_is_named(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        BootstrappedDQNConfig(**settings)
