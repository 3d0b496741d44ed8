import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.agents import Spaces, dqn
from paramnoise.experience.replay import Transition
from paramnoise.networks import PixelQNetwork, QNetwork
from paramnoise.noise.perturbation import selected
from paramnoise.validation import UsageError

# Without hidden layers Q(s) = W s + b, so that every number below can be checked by hand.
WEIGHTS = jnp.array([[1.0, 0.0], [0.0, 2.0]])
TARGET_WEIGHTS = jnp.array([[3.0, 0.0], [0.0, 1.0]])


def spaces(*observation, actions=2):
    return Spaces(observation, actions, is_discrete=True)


def linear_network(weights, *, policy_weights=None):
    network = QNetwork((2, 2), key=jax.random.key(0), policy_head=policy_weights is not None)
    place = lambda net: [net.q.layers[0].weight, net.q.layers[0].bias]  # noqa: E731
    network = eqx.tree_at(place, network, [weights, jnp.zeros(2)])
    if policy_weights is None:
        return network
    place = lambda net: [net.policy.layers[0].weight, net.policy.layers[0].bias]  # noqa: E731
    return eqx.tree_at(place, network, [policy_weights, jnp.zeros(2)])


def transition(*, action=0, reward=0.5, terminated=False):
    return Transition(
        obs=jnp.array([1.0, 1.0]),
        action=jnp.int32(action),
        reward=jnp.float32(reward),
        next_obs=jnp.array([1.0, 2.0]),
        terminated=jnp.bool_(terminated),
    )


def losses(config, network, target, one):
    """The loss terms of a single transition."""
    terms = dqn.losses(config, network, target, jax.tree.map(lambda x: x[None], one))
    return {name: term[0] for name, term in terms.items()}


@pytest.mark.parametrize(
    ("action", "terminated", "double_q", "loss"),
    [
        # Q(s) = (1, 2); Q_target(s') = (3, 2), Q(s') = (1, 4); gamma 0.5
        (0, False, False, (0.5 + 0.5 * 3.0 - 1.0) - 0.5),  # error 1: on the border of the quadratic part
        (1, False, False, 0.0),  # target 2 equals Q
        (0, True, False, 0.5 * 0.5**2),  # target 0.5, error -0.5
        (1, True, False, 1.5 - 0.5),  # target 0.5, error -1.5: linear part
        (0, False, True, 0.5 * (0.5 + 0.5 * 2.0 - 1.0) ** 2),  # the online network chooses action 1
    ],
)
def test_the_q_loss_is_the_huber_loss_of_the_td_error(action, terminated, double_q, loss):
    config = dqn.DQNConfig(gamma=0.5, double_q=double_q)
    networks = linear_network(WEIGHTS), linear_network(TARGET_WEIGHTS)
    terms = losses(config, *networks, transition(action=action, terminated=terminated))
    np.testing.assert_allclose(terms["q_loss"], loss, rtol=1e-6)
    assert set(terms) == {"q_loss"}


def test_the_policy_head_is_trained_by_cross_entropy_to_the_greedy_action():
    network = linear_network(WEIGHTS, policy_weights=jnp.array([[0.0, 0.0], [1.0, 0.0]]))
    terms = losses(dqn.DQNConfig(), network, network, transition())
    # Q(s) = (1, 2), so action 1 is greedy; its logit is 1, the other's 0.
    np.testing.assert_allclose(terms["policy_loss"], np.log(1 + np.exp(-1.0)), rtol=1e-6)


def test_the_policy_loss_does_not_move_q_and_the_q_loss_does_not_move_the_policy():
    network = linear_network(WEIGHTS, policy_weights=jnp.eye(2))

    def term(name):
        return jax.grad(lambda net: losses(dqn.DQNConfig(), net, network, transition())[name])(network)

    assert all(not leaf.any() for leaf in jax.tree.leaves(term("policy_loss").q))
    assert all(not leaf.any() for leaf in jax.tree.leaves(term("q_loss").policy))
    assert term("policy_loss").policy.layers[0].weight.any()


def test_no_gradient_flows_through_the_bootstrap():
    network = linear_network(WEIGHTS)
    gradient = jax.grad(lambda net: losses(dqn.DQNConfig(gamma=0.5), net, net, transition())["q_loss"])(network)
    # Q(s, 0) = 1, target 0.5 + 0.5 * 4 = 2.5: the error is clipped to -1, and only action 0's row sees s = (1, 1).
    np.testing.assert_allclose(gradient.q.layers[0].weight, [[-1.0, -1.0], [0.0, 0.0]], atol=1e-6)


def test_an_update_trains_on_the_mean_over_the_batch():
    config = dqn.DQNConfig(gamma=0.5, hidden_sizes=(), batch_size=2)
    learner = dqn.make(config, spaces(2))
    state = learner.init(jax.random.key(0))
    state = state._replace(network=linear_network(WEIGHTS), target=linear_network(TARGET_WEIGHTS))
    batch = jax.tree.map(lambda *x: jnp.stack(x), transition(action=0), transition(action=1, terminated=True))
    state, terms = learner.update(state, batch)
    np.testing.assert_allclose(terms["q_loss"], (0.5 + 1.0) / 2, rtol=1e-6)
    assert state.updates == 1


@pytest.mark.parametrize("policy_head", [False, True])
def test_the_policy_is_the_head_that_acts(policy_head):
    learner = dqn.make(dqn.DQNConfig(hidden_sizes=(8,), policy_head=policy_head), spaces(3, actions=4))
    state = learner.init(jax.random.key(0))
    acting = state.network.policy if policy_head else state.network.q
    obs = jnp.arange(3.0)
    np.testing.assert_array_equal(learner.policy(state)(obs), acting(obs))


@pytest.mark.parametrize(
    ("reward", "target"),
    [(0.5, 0.5), (7.0, 1.0), (-3.0, -1.0)],
)
def test_rewards_are_clipped_for_learning_on_request(reward, target):
    ended = transition(action=0, reward=reward, terminated=True)  # Q(s, 0) = 1, and nothing follows

    def q_loss(**settings):
        return losses(dqn.DQNConfig(**settings), linear_network(WEIGHTS), linear_network(WEIGHTS), ended)["q_loss"]

    huber = lambda error: 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5  # noqa: E731
    np.testing.assert_allclose(q_loss(clip_rewards=True), huber(1.0 - target), rtol=1e-6)
    np.testing.assert_allclose(q_loss(), huber(1.0 - reward), rtol=1e-6)


def one_pixel_network():
    """Two features of a stack of single pixels: the third frame and the last; linear heads."""
    network = PixelQNetwork((4, 1, 1), ((2, 1, 1),), (), 2, key=jax.random.key(0), policy_head=True)
    places = lambda net: [  # noqa: E731
        part
        for layer in (net.convolutions.layers[0], net.q.layers[0], net.policy.layers[0])
        for part in (layer.weight, layer.bias)
    ]
    convolution = jnp.array([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    policy_weights = jnp.array([[0.0, 0.0], [1.0, 0.0]])
    nothing = jnp.zeros(2)
    return eqx.tree_at(places, network, [convolution, nothing, WEIGHTS, nothing, policy_weights, nothing])


def test_the_losses_on_pixels_are_those_by_hand():
    stack = lambda *pixels: jnp.array(pixels, jnp.uint8)[:, None, None]  # noqa: E731
    seen = transition()._replace(obs=stack(9, 9, 51, 255), next_obs=stack(9, 51, 255, 102))
    network = one_pixel_network()
    terms = losses(dqn.DQNConfig(gamma=0.5), network, network, seen)
    # Features (0.2, 1), then (1, 0.4): Q(s) = (0.2, 2), so action 1 is greedy; Q(s') = (1, 0.8).
    np.testing.assert_allclose(terms["q_loss"], 0.5 * (0.5 + 0.5 * 1.0 - 0.2) ** 2, rtol=1e-5)
    np.testing.assert_allclose(terms["policy_loss"], np.log(1 + np.exp(-0.2)), rtol=1e-5)


@pytest.mark.parametrize("convolutions", [(), ((32, 8, 3),), ((0, 8, 4),), ((32, 8, 4), (64, 4)), ((32, 2, 4),)])
def test_convolutions_that_make_no_sense_are_refused(convolutions):
    with pytest.raises(UsageError, match="convolutions must be"):
        dqn.DQNConfig(convolutions=convolutions)


def test_an_unknown_precision_is_refused():
    with pytest.raises(
        UsageError, match="unknown precision 'float16': did you mean bfloat16\\? choose from auto, float32, bfloat16"
    ):
        dqn.DQNConfig(precision="float16")


def test_frames_too_small_for_the_convolutions_are_refused():
    with pytest.raises(UsageError, match=r"frames of \(35, 84\) are too small"):
        dqn.make(dqn.DQNConfig(), spaces(4, 35, 84))
    assert dqn.make(dqn.DQNConfig(), spaces(4, 36, 36))


def test_dueling_values_are_the_state_s_value_and_advantages_less_their_mean():
    network = QNetwork((2, 3), key=jax.random.key(0), dueling=True)
    places = lambda net: [  # noqa: E731
        part for stream in (net.q.value, net.q.advantage) for part in (stream.layers[0].weight, stream.layers[0].bias)
    ]
    advantage = jnp.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    network = eqx.tree_at(places, network, [jnp.array([[1.0, 1.0]]), jnp.array([5.0]), advantage, jnp.zeros(3)])
    # s = (1, 2): V = 8, A = (1, 4, 3), whose mean is 8/3.
    values, logits = network.heads(jnp.array([[1.0, 2.0]]))
    np.testing.assert_allclose(values[0], 8 + np.array([1, 4, 3]) - 8 / 3, rtol=1e-6)
    assert logits is None


@pytest.mark.parametrize(
    ("sizes", "shared", "stream"),
    [((3, 8, 6, 4), [(8, 3)], [(6, 8), (4, 6)]), ((3, 8, 4), [], [(8, 3), (4, 8)]), ((3, 4), [], [(4, 3)])],
)
def test_the_streams_of_a_dueling_network_share_all_hidden_layers_but_the_last(sizes, shared, stream):
    network = jax.eval_shape(lambda: QNetwork(sizes, key=jax.random.key(0), dueling=True)).q
    assert [layer.weight.shape for layer in network.torso.layers] == shared
    assert len(network.torso.norms) == len(shared)
    assert [layer.weight.shape for layer in network.advantage.layers] == stream
    assert [layer.weight.shape for layer in network.value.layers] == [*stream[:-1], (1, stream[-1][1])]


def test_parameter_noise_perturbs_both_streams_and_what_they_share():
    network = jax.jit(lambda key: QNetwork((3, 8, 6, 4), key=key, dueling=True))(jax.random.key(0)).behaviour
    chosen = selected(network)
    linear = [*network.torso.layers, *network.value.layers, *network.advantage.layers]
    assert sum(jax.tree.leaves(chosen)) == 2 * len(linear) == 10


def n_step_transition(*rewards, num_steps, **fields):
    one = transition(**fields)
    return one._replace(reward=jnp.array(rewards, jnp.float32), num_steps=jnp.int32(num_steps))


@pytest.mark.parametrize(
    ("rewards", "num_steps", "terminated", "settings", "target"),
    [
        # Q(s) = (1, 2); Q_target(s') = (3, 2), Q(s') = (1, 4)
        ((0.5, 0.25, 1.0), 3, False, {}, 0.5 + 0.125 + 0.25 + 0.125 * 3.0),
        ((0.5, 0.25, 0.0), 2, False, {}, 0.5 + 0.125 + 0.25 * 3.0),  # cut after two steps: bootstrapped there
        ((0.5, 0.25, 0.0), 2, True, {}, 0.5 + 0.125),
        ((0.5, 0.25, 1.0), 3, False, {"double_q": True}, 0.5 + 0.125 + 0.25 + 0.125 * 2.0),
        ((3.0, -7.0, 1.0), 3, True, {"clip_rewards": True}, 1.0 - 0.5 + 0.25),  # each reward, not their sum
    ],
)
def test_the_target_of_several_steps_is_that_by_hand(rewards, num_steps, terminated, settings, target):
    config = dqn.DQNConfig(gamma=0.5, n_step=3, **settings)
    networks = linear_network(WEIGHTS), linear_network(TARGET_WEIGHTS)
    seen = n_step_transition(*rewards, num_steps=num_steps, terminated=terminated)
    seen = seen._replace(probability=jnp.float32(1.0))  # so that the error is told too
    np.testing.assert_allclose(losses(config, *networks, seen)["td_error"], target - 1.0, atol=1e-6)


def test_the_action_of_double_q_is_the_learned_network_s_and_its_value_the_target_s():
    config = dqn.DQNConfig(gamma=1.0, double_q=True)
    seen = transition(reward=0.0)._replace(probability=jnp.float32(1.0))
    # Q(s') = (1, 4) chooses action 1, whose target value is 2; the target's own choice would be worth 3. Q(s, 0) = 1.
    terms = losses(config, linear_network(WEIGHTS), linear_network(TARGET_WEIGHTS), seen)
    np.testing.assert_allclose(terms["td_error"], 2.0 - 1.0)


def test_importance_weights_undo_the_probabilities_and_are_at_most_one():
    probability = jnp.array([0.1, 0.4, 0.2])
    np.testing.assert_allclose(dqn.importance_weights(probability, 1.0), [1.0, 0.25, 0.5], rtol=1e-6)
    np.testing.assert_allclose(dqn.importance_weights(probability, 0.5), [1.0, 0.5, np.sqrt(0.5)], rtol=1e-6)
    np.testing.assert_allclose(dqn.importance_weights(probability, 0.0), 1.0)


def test_with_priorities_losses_are_weighted_and_errors_are_not():
    config = dqn.DQNConfig(gamma=0.5, hidden_sizes=(), batch_size=2, prioritized=True, priority_beta="linear:0.5:1:4")
    learner = dqn.make(config, spaces(2))
    state = learner.init(jax.random.key(0))
    state = state._replace(network=linear_network(WEIGHTS), target=linear_network(TARGET_WEIGHTS), updates=jnp.int32(2))
    batch = jax.tree.map(lambda *x: jnp.stack(x), transition(action=0), transition(action=1, terminated=True))
    _, terms = learner.update(state, batch._replace(probability=jnp.array([0.04, 0.01])))
    weight = 0.25**0.75  # beta is half-way from 0.5 to 1
    np.testing.assert_allclose(terms["q_loss"], (weight * 0.5 + 1.0) / 2, rtol=1e-5)  # losses 0.5 and 1 as above
    np.testing.assert_allclose(terms["td_error"], [1.0, -1.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_step": 0}, "n_step must be at least 1, not 0"),
        ({"priority_alpha": 1.5}, "priority_alpha must be between 0 and 1, not 1.5"),
        ({"priority_beta": "linear:0:1:5"}, "priority_beta must be above 0"),
        (
            {"dueling": True, "network": lambda shape, outputs, key: None},
            "dueling must be off with a network of one's own",
        ),
    ],
)
def test_settings_of_the_extensions_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        dqn.DQNConfig(**settings)


@pytest.fixture(scope="module")
def noisy():
    """A learner with noisy layers, and its first state."""
    learner = dqn.make(dqn.DQNConfig(hidden_sizes=(), noisy_sigma=0.5, double_q=True, target_every=1), spaces(2))
    return jax.jit(learner.update), learner, learner.init(jax.random.PRNGKey(0))


def test_train_steps_draw_noise_by_their_number_and_learn_its_scale(noisy):
    update, learner, state = noisy
    batch = jax.tree.map(lambda x: x[None], transition())
    after, terms = update(state, batch)
    assert terms["noise_scale"] == pytest.approx(0.5)
    again, _ = update(state, batch)
    assert eqx.tree_equal(after, again)
    _, later = update(state._replace(updates=jnp.int32(1)), batch)
    assert later["q_loss"] != terms["q_loss"]
    before, now = (s.network.q.layers[0] for s in (state, after))
    assert np.any(before.weight_sigma != now.weight_sigma)
    assert np.any(before.bias_sigma != now.bias_sigma)
    obs = jnp.ones(2)
    np.testing.assert_array_equal(learner.policy(after)(obs), now.mean(obs))  # evaluation takes the means


def test_the_learned_network_its_choice_and_the_target_have_noise_of_their_own(noisy):
    update, learner, state = noisy
    batch = jax.tree.map(lambda x: x[None], transition())
    keys = jax.random.split(jax.random.fold_in(state.key, state.updates), 3)
    online, target, chooser = (dqn.draw_noise(key, state.network) for key in keys)
    expected = dqn.losses(learner.config, online, target, batch, chooser)["q_loss"][0]
    assert update(state, batch)[1]["q_loss"] == pytest.approx(float(expected), rel=1e-5)
    values = [network.values(batch.next_obs)[0, 0] for network in (online, target, chooser)]
    assert len({float(value) for value in values}) == 3


def test_without_noisy_layers_a_learner_draws_nothing():
    state = jax.eval_shape(dqn.make(dqn.DQNConfig(hidden_sizes=()), spaces(2)).init, jax.random.PRNGKey(0))
    assert state.key is None
