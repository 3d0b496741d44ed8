"""The callback: what it changes while learning, and that it leaves nothing behind."""

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch
from models import ALGORITHMS, acting_network, make, weights
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import KVWriter, Logger

from paramnoise.sb3 import ParameterNoise, callback, scale
from paramnoise.validation import UsageError

pytestmark = pytest.mark.sb3


class Watcher(BaseCallback):
    """Calls a function after every step."""

    def __init__(self, look: Any):
        super().__init__()
        self.look = look

    def _on_step(self) -> bool:
        self.look(self.model)
        return True


def is_plain(model: Any) -> bool:
    """Whether nothing of the callback is left: no class and no method."""
    plain = type(model) in {algorithm for algorithm, *_ in ALGORITHMS.values()}
    names = {"_sample_action", "collect_rollouts", "train", "predict", "forward"}
    return plain and not any(names & {*vars(each)} for each in (model, *model.policy.modules()))


@pytest.mark.parametrize("num_envs", [1, 8])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_with_sigma_0_all_that_is_learned_is_that_of_plain_stable_baselines3_to_the_bit(
    name: str, num_envs: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scale, "BOUNDS", (0.0, 1.0))  # else the first adaptation raises 0 to the least sigma there is
    plain = make(name, num_envs).learn(2_000)
    noisy = make(name, num_envs)
    noisy.learn(2_000, callback=ParameterNoise(sigma=0.0, epsilon=None))
    assert noisy.parameter_noise.adaptations == 2_000 // num_envs // 50
    assert (noisy.parameter_noise.sigma, noisy.parameter_noise.distance) == (0.0, 0.0)
    assert plain._n_updates == noisy._n_updates > 0
    for key, value in weights(plain).items():
        np.testing.assert_array_equal(value, weights(noisy)[key], err_msg=key)
    np.testing.assert_array_equal(plain.replay_buffer.actions, noisy.replay_buffer.actions)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_noise_changes_what_is_done_and_leaves_nothing_behind(name: str):
    plain, noisy = make(name).learn(300), make(name)
    noisy.learn(300, callback=ParameterNoise(sigma=0.5, epsilon=None))
    warmup = 64
    assert np.array_equal(plain.replay_buffer.actions[:warmup], noisy.replay_buffer.actions[:warmup])
    assert not np.array_equal(plain.replay_buffer.actions[warmup:300], noisy.replay_buffer.actions[warmup:300])
    assert is_plain(noisy)


def actions_on(model: Any, obs: np.ndarray, steps: int, noise: ParameterNoise) -> np.ndarray:
    """The actions that a learning model chooses for the same observations, step after step, [steps, envs]."""
    taken = []

    def look(model: Any) -> None:
        last, model._last_obs = model._last_obs, obs
        taken.append(model._sample_action(0, None, model.n_envs)[0].reshape(-1))
        model._last_obs = last

    model.learn(steps * model.n_envs, callback=[noise, Watcher(look)])
    return np.array(taken)


def test_every_environment_has_a_perturbation_of_its_own_for_a_whole_episode():
    model = make("TD3", 3, learning_starts=10_000)  # so that what acts changes by the noise alone
    taken = actions_on(model, np.tile(np.float32([[1.0, 0.0, 0.5]]), (3, 1)), 402, ParameterNoise(sigma=0.3))
    first, second = taken[:199], taken[199:399]  # episodes of 200 steps; at the 200th the next one has begun
    for episode in (first, second):
        assert (episode == episode[0]).all()
        assert len(set(episode[0])) == 3
    assert not np.isin(first[0], second[0]).any()


def test_predictions_evaluations_and_checkpoints_have_the_clean_policy(tmp_path: Path):
    model, seen = make("TD3"), []
    obs = np.float32([[1.0, 0.0, 0.5]])

    def look(model: Any) -> None:
        with torch.no_grad():
            clean = acting_clean(model, obs)
        for deterministic in (True, False):
            seen.append(abs(model.predict(obs, deterministic=deterministic)[0] / 2 - clean).max())  # actions within 2

    def acting_clean(model: Any, obs: np.ndarray) -> np.ndarray:
        actor = model.policy.actor
        return actor.mu(torch.from_numpy(obs)).numpy()

    best = EvalCallback(make_vec_env("Pendulum-v1"), n_eval_episodes=1, eval_freq=90, verbose=0, deterministic=False)
    saved = CheckpointCallback(150, str(tmp_path))
    before = weights(model)
    model.learn(150, callback=[ParameterNoise(sigma=1.0), Watcher(look), best, saved])
    assert max(seen) < 1e-6
    loaded = stable_baselines3.TD3.load(tmp_path / "rl_model_150_steps")
    assert is_plain(loaded)
    # Saved within the last step, before its update: one update of 1e-3 away at the most, where noise has 1.0.
    differences = [abs(value - weights(model)[key]).max() for key, value in weights(loaded).items()]
    assert max(differences) < 0.01
    assert before.keys() == weights(loaded).keys()


def test_evaluation_during_learning_is_that_of_the_policy_saved_at_that_moment(tmp_path: Path):
    env = make_vec_env("Pendulum-v1", seed=3)
    best = EvalCallback(env, n_eval_episodes=2, eval_freq=150, best_model_save_path=str(tmp_path), verbose=0)
    model = make("TD3")
    env.seed(5)
    model.learn(150, callback=[ParameterNoise(sigma=1.0), best])
    env.seed(5)
    loaded = stable_baselines3.TD3.load(tmp_path / "best_model")
    again, _ = stable_baselines3.common.evaluation.evaluate_policy(loaded, env, n_eval_episodes=2)
    assert again == pytest.approx(best.best_mean_reward)


def test_a_checkpoint_has_one_attribute_more_than_that_of_plain_stable_baselines3():
    files = io.BytesIO(), io.BytesIO()
    for file, noise in zip(files, (None, ParameterNoise()), strict=True):
        model = make("TD3")
        save = Watcher(lambda model, file=file: (file.seek(0), model.save(file)))
        model.learn(70, callback=[save] if noise is None else [noise, save])
    plain, noisy = (stable_baselines3.common.save_util.load_from_zip_file(file) for file in files)
    assert noisy[0].keys() - plain[0].keys() == {"parameter_noise"}
    assert plain[1]["policy"].keys() == noisy[1]["policy"].keys()
    assert zipfile.ZipFile(files[0]).namelist() == zipfile.ZipFile(files[1]).namelist()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_saved_model_goes_on_with_its_sigma_and_its_generator(name: str, tmp_path: Path):
    model = make(name)
    model.learn(200, callback=ParameterNoise(delta=1e6, sigma=0.05))  # which no noise reaches: sigma grows
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=model.get_env())
    ours, theirs = model.parameter_noise, loaded.parameter_noise
    assert (ours.sigma, ours.adaptations) == (theirs.sigma, theirs.adaptations) == (ours.sigma, 4)
    assert ours.sigma == pytest.approx(0.05 * 1.01**4)
    assert ours.rng.bit_generator.state == theirs.rng.bit_generator.state
    loaded.learn(100, callback=ParameterNoise(sigma=0.7), reset_num_timesteps=False)
    assert loaded.parameter_noise.adaptations == 6
    assert ours.sigma / 1.03 < loaded.parameter_noise.sigma < ours.sigma * 1.03
    loaded.learn(50, callback=ParameterNoise(sigma=0.7))  # steps are counted anew: so is the noise
    assert loaded.parameter_noise.adaptations == 1


@pytest.mark.parametrize("name", ["DQN", "TD3", "SAC"])
def test_the_scale_keeps_the_distance_at_delta(name: str):
    model = make(name, learning_starts=10_000)
    model.learn(1_500, callback=ParameterNoise(delta=0.05, alpha=1.1, adapt_every=5))
    state, noise = model.parameter_noise, ParameterNoise(delta=0.05, alpha=1.0, adapt_every=1)
    measured: list[float] = []
    look = Watcher(lambda model: measured.append(model.parameter_noise.distance))
    model.learn(200, callback=[noise, look], reset_num_timesteps=False)
    assert model.parameter_noise is state
    assert 0.01 < np.mean(measured) < 0.2


class Rows(KVWriter):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        self.rows.append(dict(key_values))

    def close(self) -> None:
        """Nothing is open."""


def test_sigma_distance_and_delta_are_in_every_row_of_the_log():
    rows = Rows()
    model = make("DQN")
    model.set_logger(Logger(None, [rows]))
    model.learn(400, callback=ParameterNoise(), log_interval=1)
    assert len(rows.rows) > 5
    for row in rows.rows:
        assert {f"rollout/param_noise_{name}" for name in ("sigma", "distance", "delta")} <= row.keys()
    last = rows.rows[-1]
    assert last["rollout/param_noise_sigma"] == pytest.approx(model.parameter_noise.sigma, rel=0.011)
    assert last["rollout/param_noise_distance"] > 0


def test_without_a_delta_dqn_keeps_the_distance_of_its_own_epsilon():
    model = make("DQN", exploration_initial_eps=0.4, exploration_final_eps=0.4)
    model.learn(100, callback=ParameterNoise())
    assert model.parameter_noise.delta == pytest.approx(-np.log(1 - 0.4 + 0.4 / 2))


def test_epsilon_of_the_model_is_replaced_while_acting_alone():
    rates: list[float] = []

    class Noting(ALGORITHMS["DQN"][0]):
        def predict(self, *args: Any, **kwargs: Any) -> Any:
            rates.append(self.exploration_rate)
            return super().predict(*args, **kwargs)

    settings = {"learning_starts": 0, "exploration_initial_eps": 0.7, "exploration_final_eps": 0.7, "verbose": 0}
    for epsilon, expected in ((0.25, 0.25), (None, 0.7)):
        rates.clear()
        model = Noting(ALGORITHMS["DQN"][1], "CartPole-v1", **settings)
        model.learn(20, callback=ParameterNoise(epsilon=epsilon))
        assert set(rates[1:]) == {expected}
        assert model.exploration_rate == 0.7


@pytest.mark.parametrize("place", ["step", "train"])
def test_what_ends_by_an_error_leaves_nothing_behind(place: str, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    model = make("TD3")
    callbacks: list[BaseCallback] = [ParameterNoise()]
    if place == "step":
        callbacks.append(Watcher(interrupt))
    else:
        monkeypatch.setattr(ALGORITHMS["TD3"][0], "train", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.learn(200, callback=callbacks)
    assert is_plain(model)


def test_neither_generator_of_stable_baselines3_is_touched():
    model = make("TD3", learning_starts=10_000)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  # the generator that Stable-Baselines3 draws from
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    model.learn(250, callback=ParameterNoise(adapt_every=1))
    assert model.parameter_noise.adaptations == model.num_timesteps - 1  # nothing is stored yet at the first step
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])  # noqa: NPY002


def test_the_seed_of_the_noise_is_that_of_the_model_or_its_own():
    sigma_and_draw = []
    for seed in (None, 0, 1):
        model = make("TD3")
        model.learn(60, callback=ParameterNoise(seed=seed))
        sigma_and_draw.append(model.parameter_noise.rng.bit_generator.state["state"]["state"])
    assert sigma_and_draw[0] == sigma_and_draw[1] != sigma_and_draw[2]


def test_a_policy_without_layer_norm_is_warned_about():
    model = make("DQN", policy="MlpPolicy")
    with pytest.warns(UserWarning, match="layer norm"):
        model.learn(10, callback=ParameterNoise())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("DQN").learn(10, callback=ParameterNoise())


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (sb3_contrib.TRPO, r"pn\.TRPO"),
        (stable_baselines3.PPO, r"use PPO of paramnoise\.sb3"),
        (stable_baselines3.A2C, r"use A2C of paramnoise\.sb3"),
        (sb3_contrib.RecurrentPPO, "not for RecurrentPPO"),
        (sb3_contrib.CrossQ, "not for CrossQ"),
    ],
)
def test_an_algorithm_that_it_is_not_for_is_refused_in_one_line(algorithm: Any, words: str):
    policy = "MlpLstmPolicy" if algorithm is sb3_contrib.RecurrentPPO else "MlpPolicy"
    model = algorithm(policy, "Pendulum-v1", device="cpu")
    with pytest.raises(UsageError, match=words) as error:
        model.learn(10, callback=ParameterNoise())
    assert "\n" not in str(error.value)


def test_state_dependent_exploration_and_parameter_noise_together_are_refused():
    model = make("SAC", use_sde=True)
    with pytest.raises(UsageError, match="use_sde"):
        model.learn(10, callback=ParameterNoise())


def test_the_list_of_kinds_is_that_of_the_docstring():
    named = {algorithm.__name__ for algorithm in callback.KINDS} | {"DDPG"}
    assert named == set(ALGORITHMS)
    assert all(name in ParameterNoise.__doc__ for name in named)
    assert acting_network(make("DDPG")) is not None
