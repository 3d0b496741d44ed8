"""The comparison of our learners with their peers: its runs, its scores and its ratio."""

import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "experiments"))

import learners
import learners_networks
import learners_results as results
import learners_runs
from learners_runs import OURS, PeerRun
from learners_settings import AGENTS, TASKS

from paramnoise.agents import PPOConfig
from paramnoise.envs.base import ENVS
from paramnoise.figures.curve_results import Point
from paramnoise.validation import UsageError

HIGH = {env: ENVS[env].bounds.high for env in TASKS}
LOW = {env: ENVS[env].bounds.low for env in TASKS}
END = AGENTS["td3"].steps


def curve(env, side, seed, score, end=END):
    """A run whose last five evaluations have a mean score, between the task's bounds, and whose first was far off."""
    value = LOW[env] + score * (HIGH[env] - LOW[env])
    own = (env, "td3", side, seed)
    last = [Point(*own, end - 4 + place, value + off) for place, off in enumerate((-2, 2, 0, 1, -1))]
    return [Point(*own, 0, -1e9), *last]


def both_sides(seeds, ours=0.9, theirs=0.6):
    """Runs of both sides on all tasks."""
    sides = {OURS: ours, "sbx": theirs}
    return [
        p
        for side, score in sides.items()
        for env in TASKS
        for seed in results.decided("td3", side)[:seeds]
        for p in curve(env, side, seed, score)
    ]


def test_a_run_of_ours_is_beside_its_peer_s_and_has_the_settings_that_are_compared(tmp_path):
    runs = learners_runs.all_runs(tmp_path, AGENTS, 2, None)
    assert len(runs) == 2 * 3 * len(TASKS) * 2
    ours, theirs = runs[:2]
    assert ours.directory.path == tmp_path / "learners/HalfCheetah-v4/td3-ours/seed-20"
    assert theirs.path == tmp_path / "learners/HalfCheetah-v4/td3-sbx/seed-0/curve.csv"
    assert ours.steps == theirs.steps == 300_000
    assert len({each.name for each in runs}) == len(runs)  # a sweep counts them by their names
    for name in ("td3", "sac"):
        compared = AGENTS[name]
        config = learners_runs.our_run(tmp_path, name, TASKS[0], 0, 1_000).config.agent
        same = ("batch_size", "buffer_size", "gamma", "learning_starts")
        assert {field: getattr(config, field) for field in same} == {field: compared.peer[field] for field in same}
        assert config.random_steps == config.learning_starts
        assert config.actor_learning_rate == config.critic_learning_rate == compared.peer["learning_rate"]
        assert list(config.hidden_sizes) == compared.peer["policy_kwargs"]["net_arch"]
        assert (config.train_every, config.train_steps) == (compared.peer["train_freq"], 1)
        assert (config.layer_norm, config.normalise_observations) == (False, False)


def test_first_weights_are_drawn_as_flax_draws_them_in_every_layer():
    key = jax.random.key(0)
    actor, critic = learners_networks.flax_network((400,), 300, key), learners_networks.flax_critic((17,), 6, key)
    assert [layer.weight.shape for layer in actor.layers] == [(64, 400), (64, 64), (300, 64)]
    assert [layer.weight.shape for layer in critic.mlp.layers] == [(64, 23), (64, 64), (1, 64)]
    for layer in actor.layers:
        unit = np.asarray(layer.weight) * np.sqrt(layer.weight.shape[1])
        np.testing.assert_allclose([unit.mean(), unit.std()], [0, 1], atol=0.03)
        assert 2.2 < np.abs(unit).max() < 2.28  # a normal distribution cut at two deviations of its own
    assert not any(np.asarray(layer.bias).any() for layer in (*actor.layers, *critic.mlp.layers))
    assert critic(jnp.ones(17), jnp.ones(6)).shape == (1,)
    assert not np.array_equal(actor.layers[0].weight[:, :64], actor.layers[1].weight)


def test_each_agent_has_the_seeds_that_were_decided_on_before_the_runs(tmp_path):
    runs = learners_runs.all_runs(tmp_path, AGENTS, None, None)
    assert len(runs) == sum(2 * len(TASKS) * compared.seeds for compared in AGENTS.values())
    assert min(compared.seeds for compared in AGENTS.values()) == 10
    last = [learners_runs.agent_of(each) for each in runs[-2 * len(TASKS) :]]
    assert set(last) == {"ppo"}  # which has most


def test_ppo_is_compared_by_its_defaults_and_evaluated_between_whole_batches(tmp_path):
    compared, config = AGENTS["ppo"], learners_runs.our_run(tmp_path, "ppo", TASKS[0], 0, AGENTS["ppo"].steps).config
    assert config.agent == PPOConfig()
    assert config.exploration.kind == "none"
    assert config.num_envs == 1
    assert compared.steps >= 500_000
    assert compared.steps % compared.eval_every == compared.eval_every % config.agent.batch_size == 0
    assert config.eval_every == compared.eval_every
    assert (config.agent.batch_size, config.agent.minibatch_size) == (compared.peer["n_steps"], 64)


def test_a_score_is_the_mean_return_of_the_last_evaluations_of_a_whole_run():
    ours = results.decided("td3", OURS)
    points = [point for env in TASKS for seed in (1, 0) for point in curve(env, OURS, ours[seed], 0.1 + seed)]
    points += curve(TASKS[0], OURS, ours[2], 0.5, end=END - 1)  # on its way
    points += curve(TASKS[0], OURS, ours.stop, 0.5)  # nobody decided on so many
    points += curve(TASKS[0], OURS, ours.start - 1, 0.5)  # looked at before a setting was decided
    found = results.scores(points, "td3", OURS)
    assert list(found) == list(TASKS)
    for env, task in found.items():
        np.testing.assert_allclose(task, [LOW[env] + score * (HIGH[env] - LOW[env]) for score in (0.1, 1.1)], rtol=1e-6)
    assert results.scores(points, "sac", OURS) == {}


def test_the_ratio_is_ours_over_theirs_and_no_verdict_before_all_runs_are_whole():
    some = results.compare(both_sides(3), "td3")
    assert (some.ours, some.theirs) == pytest.approx((0.9, 0.6))
    assert tuple(some.ratio) == pytest.approx((1.5, 1.5, 1.5))
    assert some.on_the_scale == some.ratio
    all_of_them = AGENTS["td3"].seeds
    assert (some.runs, some.of, some.verdict) == (18, 6 * all_of_them, f"{6 * all_of_them - 18} runs missing")
    assert results.compare(both_sides(all_of_them), "td3").verdict == "yes"
    assert results.compare(both_sides(all_of_them, ours=0.4), "td3").verdict == "no"
    assert results.compare([p for p in both_sides(3) if p.env != TASKS[1]], "td3") is None


def test_a_peer_s_run_is_finished_once_its_curve_is_whole(tmp_path):
    run = PeerRun(tmp_path, "td3", TASKS[0], 0, 20)
    assert (run.is_finished(), run.steps_done(), run.curve()) == (False, 0, [])
    rows = [{"step": step, "return": value, "seconds": step / 5} for step, value in ((10, 1.0), (21, 3.5), (30, 9.0))]
    run.path.parent.mkdir(parents=True)
    run._write(rows[:1])
    assert (run.is_finished(), run.steps_done(), run.rate()) == (False, 0, 5.0)
    run._write(rows)  # a peer's batch may end beyond the steps asked for; what follows it was not asked for
    assert (run.is_finished(), run.steps_done(), run.result()) == (True, 20, "return 3.5 after 20 steps")
    assert [point.step for point in run.curve()] == [10, 21]


def test_a_peer_s_run_with_other_settings_is_refused(tmp_path, monkeypatch):
    run = PeerRun(tmp_path, "td3", TASKS[0], 0, 20)
    run.check()  # nothing is there
    monkeypatch.setattr(learners_runs.importlib.metadata, "version", lambda package: "1.0")
    run._write_settings()
    run._write([{"step": 20, "return": 1.0, "seconds": 1.0}])
    run.check()
    other = dataclasses.replace(AGENTS["td3"], peer={**AGENTS["td3"].peer, "tau": 0.005})
    monkeypatch.setitem(AGENTS, "td3", other)
    with pytest.raises(UsageError, match="other settings"):
        run.check()


class Still:
    """A model whose action is always 0, and which counts how often it is asked."""

    asked = 0

    def predict(self, obs, deterministic):
        assert deterministic
        self.asked += 1
        return np.zeros((len(obs), 6)), None


def test_an_evaluation_is_the_mean_of_its_episodes_which_its_seed_decides():
    model = Still()
    first, again, other = (learners_runs.noise_free_return(model, "HalfCheetah-v4", seed) for seed in (1, 1, 100))
    assert first == again != other
    assert model.asked == 3 * 1_000  # all episodes side by side
    env, returns = learners_runs.make_env("HalfCheetah-v4"), []
    for place in range(learners_runs.EVAL_EPISODES):
        env.reset(seed=1 + place)
        returns.append(sum(float(env.step(np.zeros(6))[1]) for _ in range(1_000)))
    assert first == pytest.approx(np.mean(returns))


def test_status_says_what_is_left_in_hours_of_one_core_where_that_is_known(tmp_path, capsys):
    for env in TASKS:
        run = PeerRun(tmp_path / "learners", "td3", env, 0, 7_200)
        run.path.parent.mkdir(parents=True)
        run._write([{"step": 7_200, "return": 1.0, "seconds": 3.6}])
    words = ["status", "--out", str(tmp_path), "--agents", "td3", "--seeds", "2", "--steps", "7200"]
    assert learners.main(words) == 0
    printed = capsys.readouterr().out.splitlines()
    (line,) = [line for line in printed if "sbx" in line]
    assert [cell.strip() for cell in line.split("│")[1:-1]] == ["td3", "sbx", "3 of 6", "21,600", "2,000", "0.0"]
    assert printed[-1] == "0.0 core-hours left, and those of 1 more without an evaluation yet"


def test_the_page_shows_the_results_that_are_kept():
    points = learners.read_results(learners.MEASURED) if learners.MEASURED.exists() else []
    text = learners.PAGE.read_text()
    assert results.page(text, points) == text
    assert all(f"<!-- {mark} -->" in text for mark in ("ratios", "by-task", "curves"))


def test_a_row_of_the_page_has_the_ratio_and_what_is_missing(tmp_path):
    points = both_sides(3)
    td3, sac, ppo = results.ratios_table(points).splitlines()[2:]
    ratio = "1.50 (1.50 to 1.50)"
    assert td3 == f"| TD3 | SBX | 0.900 | 0.600 | {ratio} | {ratio} | 102 runs missing | 18 of 120 |"
    assert sac == "| SAC | SBX | not run yet |  |  |  |  |  |"
    assert ppo == "| PPO | Stable-Baselines3 | not run yet |  |  |  |  |  |"
    some = results.ratios_table([point for point in points if point.env == TASKS[0]])
    assert "| TD3 | SBX | not all tasks run yet |" in some
    hopper = results.tasks_table([p for p in points if (p.env, p.exploration) != ("Hopper-v4", "sbx")]).splitlines()[3]
    assert hopper == "| TD3 | Hopper-v4 | 3209 (3209 to 3209) | none | 3 of 20 | 0 of 20 |"
    results.draw(points, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["td3.png"]
    assert results.pictures(points) == "![TD3: ours and SBX](../results/learners/td3.png)"
    assert results.lines(points)[0].endswith("18 of 120 runs; lower end at least 0.8: 102 runs missing")


def test_an_unknown_agent_is_one_line(tmp_path, capsys):
    assert learners.main(["run", "--out", str(tmp_path), "--agents", "tdd3"]) == 2
    assert "did you mean td3" in capsys.readouterr().err


def test_one_side_alone_is_run_where_the_peers_are_not_installed(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(learners, "run_sweep", lambda sweep, _: asked.update(runs=sweep.runs) or 0)
    monkeypatch.setattr(learners, "require_extra", lambda library, *_: asked.update(needs=library))
    words = ["run", "--out", str(tmp_path), "--agents", "td3", "--seeds", "1", "--sides"]
    assert learners.main([*words, "ours"]) == 0
    assert [learners_runs.side_of(run) for run in asked["runs"]] == ["ours"] * len(TASKS)
    assert "needs" not in asked
    assert learners.main([*words, "peers"]) == 0
    assert [learners_runs.side_of(run) for run in asked["runs"]] == ["sbx"] * len(TASKS)
    assert asked["needs"] == "sbx"


def test_our_seeds_may_train_side_by_side_and_peers_not(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(learners, "run_sweep", lambda sweep, engine: asked.append((sweep, engine)) or 0)
    words = ["run", "--out", str(tmp_path), "--agents", "sac", "--seeds", "2", "--side-by-side"]
    assert learners.main([*words, "--sides", "ours"]) == 0
    ((sweep, engine),) = asked
    assert [piece.name for piece in sweep.todo] == [f"{env}/sac-ours (seeds 0, 1)" for env in TASKS]
    assert engine.whole_machine
    assert learners.main(words) == 2
    assert "--side-by-side is for --sides ours" in capsys.readouterr().err
