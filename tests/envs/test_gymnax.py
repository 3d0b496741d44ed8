"""Environments of gymnax by name: its ends told apart, vectors and actions in [-1, 1]."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.envs import env_source
from paramnoise.envs.gymnax import MinAtarNetwork, gymnax_env
from paramnoise.loops.inside import Inside
from paramnoise.networks.own import make_network
from paramnoise.runs.checkpoint import named_leaves
from paramnoise.validation import UsageError

gymnax = pytest.importorskip("gymnax")
pytestmark = pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")


def ends(name: str, steps: int, **env_kwargs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of one endless episode under random actions: gymnax's `done`, our `terminated`, our `truncated`, by the step."""
    ours = gymnax_env(name, env_kwargs)
    theirs, params = gymnax.make(name)
    params = params.replace(**env_kwargs)
    key, space = jax.random.PRNGKey(0), theirs.action_space(params)

    def step(states, key):
        if hasattr(space, "n"):
            own = action = jax.random.randint(key, (), 0, space.n)
        else:
            own = jax.random.uniform(key, space.shape, minval=-1.0)
            action = space.low + (own + 1) / 2 * (space.high - space.low)
        obs, state, reward, done, _ = theirs.step_env(key, states[0], action, params)
        after = ours.step(key, states[1], own)
        same = jnp.allclose(obs.reshape(-1), after.obs, atol=1e-4) & jnp.allclose(reward, after.reward, atol=1e-4)
        again = jax.tree.map(
            lambda a, b: jnp.where(done, jnp.asarray(a, b.dtype), b),
            (theirs.reset_env(key, params)[1], ours.reset(key)[1]),
            (state, after.state),
        )
        return again, (done, after.terminated, after.truncated, same)

    start = jax.tree.map(
        lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype),
        (theirs.reset_env(key, params)[1], ours.reset(key)[1]),
    )
    _, (done, terminated, truncated, same) = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(key, steps)))(
        start
    )
    assert same.all()
    return np.asarray(done), np.asarray(terminated), np.asarray(truncated)


@pytest.mark.parametrize(
    ("name", "limit", "has_both"),
    [
        ("CartPole-v1", 15, True),
        ("Pendulum-v1", 20, False),
        ("Breakout-MinAtar", 12, True),
        ("DeepSea-bsuite", 100, False),
    ],
)
def test_the_two_ends_of_an_episode_are_told_apart_and_are_together_gymnaxs_one(name, limit, has_both):
    done, terminated, truncated = ends(name, 300, max_steps_in_episode=limit)
    np.testing.assert_array_equal(done, terminated | truncated)
    assert not (terminated & truncated).any()
    assert done.any()
    if has_both:
        assert terminated.any()
        assert truncated.any()


def test_observations_are_vectors_and_actions_those_of_agents():
    board, pendulum = env_source("gymnax/Breakout-MinAtar"), env_source("gymnax/Pendulum-v1")
    assert board.observation_space.shape == (400,)
    assert board.action_space.n == 3
    assert board.make_env().reset(seed=0)[0].shape == (400,)
    assert pendulum.action_space.high.tolist() == [2.0]
    network = make_network("minatar", (400,), 3, jax.random.PRNGKey(0))
    assert network(jnp.zeros(400)).shape == (3,)


def test_the_filters_of_the_network_for_boards_are_a_convolution():
    network, board = MinAtarNetwork(4, 3, jax.random.PRNGKey(0)), jax.random.normal(jax.random.PRNGKey(1), (4, 10, 10))
    expected = jnp.moveaxis(network.filters(board), 0, -1)
    found = network._filtered(jnp.moveaxis(board, 0, -1).reshape(10, -1))
    np.testing.assert_allclose(found, expected.reshape(8, -1), rtol=1e-4, atol=1e-5)


def test_an_agent_from_before_features_were_by_row_does_not_fit():
    names = named_leaves(MinAtarNetwork(4, 3, jax.random.PRNGKey(0)))
    assert "hidden/weight" in names
    assert "dense/weight" not in names  # its name then, with the same shape


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: env_source("gymnax/Nothing"), "unknown environment 'gymnax/Nothing': choose from"),
        (lambda: env_source("gymnax/DeepSea-bsuite", {"depth": 3}), "cannot make environment 'gymnax/DeepSea-bsuite'"),
        (lambda: make_network("minatar", (7,), 3, jax.random.PRNGKey(0)), "boards of 10 x 10, not 7 numbers"),
    ],
)
def test_bad_names_are_one_line(make, says):
    with pytest.raises(UsageError, match=says) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "name"), [("ddpg", "MountainCarContinuous-v0"), ("sac", "Pendulum-v1")])
def test_agents_of_continuous_actions_train_in_one_program(agent, name):
    settings = {"hidden_sizes": (4, 4), "batch_size": 16, "buffer_size": 64, "learning_starts": 4}
    made = pn.agent_class(agent)(
        f"gymnax/{name}",
        env_kwargs={"max_steps_in_episode": 8},
        exploration="parameter",
        num_envs=2,
        **settings,
        train_every=8,
        train_steps=1,
    )
    assert isinstance(made._loop.collector, Inside)
    made.learn(64, eval_every=64, eval_episodes=1, progress=False)
    assert made.history[-1]["episodes"] == 8
    assert np.isfinite(made.history[-1]["critic_loss"])


def test_an_agent_takes_a_name_and_keywords():
    agent = pn.DQN("gymnax/DeepSea-bsuite", env_kwargs={"size": 4}, num_envs=2, hidden_sizes=(8,), batch_size=8)
    agent.learn(16, eval_every=16, eval_episodes=1, progress=False)
    assert agent.history[-1]["episodes"] == 4
