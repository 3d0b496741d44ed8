"""PPO and A2C: each sample is acted with, and learned from, under its own perturbation."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from models import weights
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import SimpleMultiObsEnv
from stable_baselines3.common.torch_layers import CombinedExtractor

from paramnoise import sb3
from paramnoise.sb3 import scale
from paramnoise.validation import UsageError

pytestmark = pytest.mark.sb3

PLAIN = {sb3.PPO: stable_baselines3.PPO, sb3.A2C: stable_baselines3.A2C}
ENVS = ("CartPole-v1", "Pendulum-v1")


def make(algorithm: type, env: str = "CartPole-v1", num_envs: int = 1, **settings: Any) -> Any:
    steps = (
        {"n_steps": 64 // num_envs, "batch_size": 16, "n_epochs": 2}
        if issubclass(algorithm, stable_baselines3.PPO)
        else {}
    )
    own = {"seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [16, 16]}, **steps}
    return algorithm(sb3.LayerNormActorCriticPolicy, make_vec_env(env, num_envs, seed=0), **{**own, **settings})


def clean_policy(model: Any) -> Any:
    """A plain policy with the same weights, to which no noise can be added."""
    policy = type(model.policy)(**model.policy._get_constructor_parameters())
    policy.load_state_dict(model.policy.state_dict())
    return policy


def perturbed_policy(model: Any, flat: torch.Tensor) -> Any:
    """A plain policy whose weights have a perturbation in them."""
    policy, begin = clean_policy(model), 0
    for layer in (*policy.mlp_extractor.policy_net, policy.action_net):
        if isinstance(layer, torch.nn.Linear):
            for tensor in layer.parameters():
                tensor.data += flat[begin : begin + tensor.numel()].view_as(tensor)
                begin += tensor.numel()
    assert begin == len(flat)
    return policy


def collect(model: Any) -> RolloutBuffer:
    """One rollout, as `learn` does it, without learning from it."""
    _, callback = model._setup_learn(1_000, None, False)
    assert model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    return model.rollout_buffer


@pytest.mark.parametrize("num_envs", [1, 8])
@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("algorithm", PLAIN)
def test_with_sigma_0_all_that_is_learned_is_that_of_plain_stable_baselines3_to_the_bit(
    algorithm: type, env: str, num_envs: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scale, "BOUNDS", (0.0, 1.0))  # else the first adaptation raises 0 to the least sigma there is
    plain = make(PLAIN[algorithm], env, num_envs).learn(2_000)
    noisy = make(algorithm, env, num_envs, sigma=0.0).learn(2_000)
    assert noisy.parameter_noise.adaptations > 0
    assert noisy.parameter_noise.sigma == 0
    for key, value in weights(plain).items():
        np.testing.assert_array_equal(value, weights(noisy)[key], err_msg=key)


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("num_envs", [1, 4])
def test_log_probabilities_are_those_of_the_policy_with_the_samples_own_perturbation(env: str, num_envs: int):
    model = make(sb3.PPO, env, num_envs, sigma=0.5, n_steps=64, batch_size=16)
    buffer = collect(model)
    clean_log_prob = []
    for step in (0, 20, 63):
        for env_number in range(num_envs):
            policy = perturbed_policy(model, buffer.drawn[buffer.numbers[step, env_number]])
            obs = torch.from_numpy(buffer.observations[step, [env_number]])
            action = torch.from_numpy(buffer.actions[step, [env_number]].astype(np.float32))
            _, log_prob, _ = policy.evaluate_actions(obs, action[:, 0] if env == "CartPole-v1" else action)
            assert log_prob.item() == pytest.approx(buffer.log_probs[step, env_number], abs=1e-5)
            _, clean, _ = model.policy.evaluate_actions(obs, action[:, 0] if env == "CartPole-v1" else action)
            clean_log_prob.append(abs(clean.item() - log_prob.item()))
    assert max(clean_log_prob) > 0.01


@pytest.mark.parametrize("env", ENVS)
def test_before_the_first_update_every_ratio_is_1(env: str):
    model = make(sb3.PPO, env, 4, sigma=0.5)
    collect(model)
    for samples in model.rollout_buffer.get(16):
        actions = samples.actions.long().flatten() if env == "CartPole-v1" else samples.actions
        _, log_prob, _ = model.policy.evaluate_actions(samples.observations, actions)
        torch.testing.assert_close(log_prob, samples.old_log_prob, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch_size", [None, 16, 24])
@pytest.mark.parametrize("env", ENVS)
def test_minibatches_are_those_of_stable_baselines3(env: str, batch_size: int | None):
    model = make(sb3.PPO, env, 4, sigma=0.5)
    for _ in range(2):  # a second rollout has numbers of its own
        buffer = collect(model)
        for seed in range(2):
            ours, theirs = (minibatches(of, buffer, batch_size, seed) for of in (type(buffer), RolloutBuffer))
            assert_same(ours, theirs)


def test_minibatches_of_dict_observations_are_those_of_stable_baselines3():
    settings = {"n_steps": 16, "batch_size": 8, "policy_kwargs": {"features_extractor_class": CombinedExtractor}}
    envs = make_vec_env(SimpleMultiObsEnv, 2, seed=0)
    model = sb3.PPO(sb3.LayerNormActorCriticPolicy, envs, seed=0, device="cpu", **settings)
    buffer = collect(model)
    ours, theirs = (minibatches(of, buffer, 8, 0) for of in (type(buffer), DictRolloutBuffer))
    assert len(ours) == 4
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.observations.keys() == other.observations.keys() == {"vec", "img"}
        assert_same([mine.observations.values(), mine[1:]], [other.observations.values(), other[1:]])


def minibatches(buffer_class: Any, buffer: RolloutBuffer, batch_size: int | None, seed: int) -> list[Any]:
    """An epoch of a buffer, as this class puts it in order."""
    np.random.seed(seed)  # noqa: NPY002 - that of Stable-Baselines3
    return list(buffer_class.get(buffer, batch_size))


def assert_same(ours: Iterable[Iterable[torch.Tensor]], theirs: Iterable[Iterable[torch.Tensor]]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        for values, expected in zip(mine, other, strict=True):
            assert (values.dtype, values.shape) == (expected.dtype, expected.shape)
            assert values.is_contiguous()
            assert torch.equal(values, expected)


def test_the_policy_is_clean_again_when_minibatches_were_looked_at():
    model = make(sb3.PPO, num_envs=4, sigma=1.0)
    buffer, obs = collect(model), np.ones(4, np.float32)
    clean = clean_policy(model).predict(obs, deterministic=True)[0]
    for number, _ in enumerate(buffer.get(16)):  # all of them, and as where target_kl ends an epoch
        assert number < 4
    assert model.predict(obs, deterministic=True)[0] == clean
    for _ in buffer.get(16):
        break
    assert model.predict(obs, deterministic=True)[0] == clean


def test_the_gradient_goes_to_the_clean_weights_through_the_perturbed_ones():
    model = make(sb3.PPO, num_envs=2, sigma=0.5)
    collect(model)
    batches = model.rollout_buffer.get(2)  # the layers are perturbed for as long as it is there
    samples = next(batches)
    numbers = [perturbation_of(model, samples, row) for row in range(2)]
    _, log_prob, _ = model.policy.evaluate_actions(samples.observations, samples.actions.long().flatten())
    model.policy.zero_grad()
    log_prob.sum().backward()
    ours = [tensor.grad for tensor in model.policy.mlp_extractor.policy_net.parameters()]
    explicit = [torch.zeros_like(tensor) for tensor in ours]
    for row, number in enumerate(numbers):
        policy = perturbed_policy(model, model.rollout_buffer.drawn[number])
        policy.zero_grad()
        policy.evaluate_actions(samples.observations[[row]], samples.actions.long().flatten()[[row]])[
            1
        ].sum().backward()
        explicit = [
            total + tensor.grad
            for total, tensor in zip(explicit, policy.mlp_extractor.policy_net.parameters(), strict=True)
        ]
    for mine, theirs in zip(ours, explicit, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def perturbation_of(model: Any, samples: Any, row: int) -> int:
    """The number of a sample's perturbation, found by its observation in the buffer."""
    buffer = model.rollout_buffer
    same = (buffer.observations == samples.observations[row].numpy()).all(1)
    return int(buffer.swap_and_flatten(buffer.numbers)[same, 0][0])


def test_a_perturbation_is_kept_for_a_whole_episode_also_over_rollouts():
    model = make(sb3.PPO, num_envs=3, sigma=0.5, n_steps=16, batch_size=48)
    kept: list[np.ndarray] = []
    starts: list[np.ndarray] = []
    for _ in range(4):
        buffer = collect(model)
        starts.extend(buffer.episode_starts.astype(bool))
        kept.extend(np.array([[buffer.drawn[number][:3].numpy() for number in row] for row in buffer.numbers]))
    assert np.array(starts)[16::16].any() or np.array(starts).sum() > 6
    for before, now, start in zip(kept[:-1], kept[1:], starts[1:], strict=True):
        assert np.array_equal((before != now).all(-1), start)
        assert np.array_equal((before != now).any(-1), start)


class Watcher(BaseCallback):
    """Takes down how far predictions are from those of the clean network."""

    def _on_training_start(self) -> None:
        self.seen: list[float] = []

    def _on_step(self) -> bool:
        obs = np.float32([[0.01, -0.02, 0.03, 0.04]])
        policies = clean_policy(self.model), self.model.policy
        with torch.no_grad():
            clean, ours = (policy.get_distribution(torch.from_numpy(obs)).distribution.logits for policy in policies)
        self.seen.append((clean - ours).abs().max().item())
        return True


@pytest.mark.parametrize("algorithm", PLAIN)
def test_predictions_and_evaluations_within_a_rollout_have_the_clean_policy(algorithm: type):
    model, watcher = make(algorithm, sigma=1.0), Watcher()
    evaluation = EvalCallback(make_vec_env("CartPole-v1"), n_eval_episodes=1, eval_freq=30, verbose=0)
    model.learn(130, callback=[watcher, evaluation])
    assert max(watcher.seen) == 0
    assert not any("forward" in vars(layer) for layer in model.policy.modules())
    assert not model.policy._forward_hooks
    assert not model.policy._forward_pre_hooks


@pytest.mark.parametrize("algorithm", PLAIN)
def test_a_saved_model_goes_on_with_its_sigma_and_its_generator(algorithm: type, tmp_path: Path):
    model = make(algorithm, delta=0.02, adapt_every=5).learn(200)
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=model.get_env())
    ours, theirs = model.parameter_noise, loaded.parameter_noise
    assert (ours.sigma, ours.adaptations) == (theirs.sigma, theirs.adaptations)
    assert ours.rng.bit_generator.state == theirs.rng.bit_generator.state
    assert loaded.scaling == model.scaling
    loaded.learn(64, reset_num_timesteps=False)
    assert loaded.parameter_noise.adaptations > ours.adaptations
    assert ours.sigma / 1.2 < loaded.parameter_noise.sigma < ours.sigma * 1.2


def test_a_saved_model_has_the_clean_weights_and_its_noise_in_addition_to_plain_stable_baselines3():
    stored = []
    for algorithm in (stable_baselines3.PPO, sb3.PPO):
        model, file = make(algorithm).learn(64), io.BytesIO()
        model.save(file)
        stored.append(stable_baselines3.common.save_util.load_from_zip_file(file))
        for key, value in weights(model).items():
            np.testing.assert_array_equal(stored[-1][1]["policy"][key], value)
    assert stored[1][0].keys() - stored[0][0].keys() == {"parameter_noise", "scaling", "_unadapted"}


@pytest.mark.parametrize("env", ENVS)
def test_the_scale_keeps_the_distance_at_delta(env: str):
    model = make(sb3.PPO, env, delta=0.05, alpha=1.3, adapt_every=2, learning_rate=0.0).learn(800)
    model.scaling = scale.Scaling(delta=0.05, sigma=0.01, alpha=1.0, adapt_every=1)
    measured = []
    for _ in range(4):
        collect(model)
        measured.append(model.parameter_noise.distance)
    assert 0.005 < np.median(measured) < 0.3


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"use_sde": True}, "use_sde"), ({"rollout_buffer_class": RolloutBuffer}, "rollout_buffer_class")],
)
def test_what_does_not_go_together_is_refused_in_one_line(settings: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words) as error:
        make(sb3.PPO, "Pendulum-v1", **settings)
    assert "\n" not in str(error.value)


class Switches(gym.Env[np.ndarray, np.ndarray]):
    """An environment of several switches, which does nothing."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.MultiDiscrete([2, 3])


def test_an_action_space_without_a_distance_is_refused():
    with pytest.raises(UsageError, match="MultiDiscrete"):
        sb3.PPO("MlpPolicy", Switches())


def test_a_policy_without_layer_norm_is_warned_about():
    with pytest.warns(UserWarning, match="LayerNormActorCriticPolicy"):
        sb3.A2C("MlpPolicy", "CartPole-v1", device="cpu")


def test_the_callback_on_a_model_with_the_noise_in_it_is_refused():
    with pytest.raises(UsageError, match="without a callback"):
        make(sb3.A2C).learn(10, callback=sb3.ParameterNoise())
