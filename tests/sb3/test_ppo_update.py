"""An update of PPO is Stable-Baselines3's: from the same weights, on the same rollout, to rounding."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from paramnoise.agents import PPOConfig, Spaces, baseline, ppo
from paramnoise.experience.rollout import Rollout

pytestmark = pytest.mark.sb3

STEPS, EPOCHS = 512, 5
SETTINGS = {"learning_rate": 1e-3, "clip_range": 0.2, "ent_coef": 0.01, "seed": 0, "device": "cpu"}
OURS = {"learning_rate": 1e-3, "clip": 0.2, "entropy_coefficient": 0.01, "epochs": EPOCHS}


def collected(env, uses_gsde):
    """A model of Stable-Baselines3 that has a rollout and has not learned from it."""
    import stable_baselines3

    # One minibatch an epoch: then the order of the samples does not matter.
    own = {"use_sde": True, "policy_kwargs": {"log_std_init": -2.0}} if uses_gsde else {}
    sizes = {"n_steps": STEPS, "batch_size": STEPS, "n_epochs": EPOCHS}
    model = stable_baselines3.PPO("MlpPolicy", env, **sizes, **SETTINGS, **own)
    _, callback = model._setup_learn(STEPS)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=STEPS)
    return model


def networks_of(model, like):
    """The model's networks as ours."""
    theirs = model.policy

    def copied(network, hidden, last):
        layers = (hidden[0], hidden[2], last)
        arrays = [each.detach().numpy().copy() for layer in layers for each in (layer.weight, layer.bias)]
        return eqx.tree_at(lambda n: [x for layer in n.layers for x in (layer.weight, layer.bias)], network, arrays)

    policy = copied(like.policy.network, theirs.mlp_extractor.policy_net, theirs.action_net)
    policy = eqx.tree_at(lambda p: p.network, like.policy, policy)
    if hasattr(theirs, "log_std"):
        policy = eqx.tree_at(lambda p: p.log_std, policy, theirs.log_std.detach().numpy().copy())
    return ppo.Networks(policy, copied(like.values, theirs.mlp_extractor.value_net, theirs.value_net))


def rollout_of(model, is_discrete, parameters):
    """The model's rollout as ours. Its rewards hold the values after time limits, which then count as terminations."""
    held = model.rollout_buffer
    ends = np.append(held.episode_starts[1:, 0], model._last_episode_starts).astype(bool)
    return Rollout(
        obs=held.observations[None, :, 0],
        action=held.actions[None, :, 0, 0].astype(np.int32) if is_discrete else held.actions[None, :, 0],
        reward=held.rewards[None, :, 0],
        next_obs=np.concatenate([held.observations[1:, 0], model._last_obs])[None],
        terminated=ends[None],
        truncated=np.zeros((1, STEPS), bool),
        time=np.zeros((1, STEPS), np.int32),
        segment=np.zeros((1, STEPS), np.int32),
        offsets=np.zeros((1, parameters), np.float32),
    )


def test_the_defaults_are_those_of_stable_baselines3():
    import stable_baselines3

    theirs = {name: each.default for name, each in inspect.signature(stable_baselines3.PPO).parameters.items()}
    names = {
        "learning_rate": "learning_rate",
        "batch_size": "n_steps",
        "minibatch_size": "batch_size",
        "epochs": "n_epochs",
        "gamma": "gamma",
        "gae_lambda": "gae_lambda",
        "clip": "clip_range",
        "value_coefficient": "vf_coef",
        "entropy_coefficient": "ent_coef",
        "max_grad_norm": "max_grad_norm",
    }
    ours = PPOConfig()
    assert {name: getattr(ours, name) for name in names} == {name: theirs[other] for name, other in names.items()}
    assert (theirs["clip_range_vf"], theirs["target_kl"], theirs["normalize_advantage"]) == (None, None, True)


@pytest.mark.parametrize(
    ("env", "spaces", "uses_gsde"),
    [
        ("CartPole-v1", Spaces((4,), 2, True), False),
        ("Pendulum-v1", Spaces((3,), 1, False), False),
        ("Pendulum-v1", Spaces((3,), 1, False), True),
    ],
)
def test_an_update_is_that_of_stable_baselines3(monkeypatch, env, spaces, uses_gsde):
    def standardised(values):
        return (values - jnp.mean(values)) / (jnp.std(values, ddof=1) + 1e-8)  # theirs is divided by n - 1

    monkeypatch.setattr(baseline, "standardise", standardised)
    config = PPOConfig(batch_size=STEPS, minibatch_size=STEPS, std_from_features=uses_gsde, **OURS)
    agent = ppo.make(config, spaces)
    state, model = agent.init(jax.random.PRNGKey(0)), collected(env, uses_gsde)
    before = networks_of(model, state.networks)
    rollout = rollout_of(model, spaces.is_discrete, ravel_pytree(before.policy)[0].size)
    assert rollout.terminated.sum() >= 2
    after, report = jax.jit(agent.update)(state._replace(networks=before), rollout)
    model.train()
    ours, theirs = (ravel_pytree(n)[0] for n in (after.networks, networks_of(model, state.networks)))
    assert jnp.abs(theirs - ravel_pytree(before)[0]).mean() > 1e-3
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
    logged = model.logger.name_to_value
    names = {"value_loss": "value_loss", "clipped": "clip_fraction", "kl": "approx_kl"}
    for name, their_name in names.items():
        np.testing.assert_allclose(report[name], logged[f"train/{their_name}"], rtol=1e-3, atol=1e-6)
