"""Evolution strategies on frames: members, workers, resume, the API and the command line."""

import pickle

import gymnasium as gym
import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from probes import Halves

import paramnoise as pn
from paramnoise.agents import es
from paramnoise.agents.base import Spaces
from paramnoise.agents.es import ESConfig
from paramnoise.cli import main
from paramnoise.envs import env_source
from paramnoise.experience.returns import Broadcast, num_parameters
from paramnoise.loops.fast.member_networks import PixelNetworks
from paramnoise.loops.members import MemberEvaluator, Setting
from paramnoise.runs.checkpoint import named_leaves
from paramnoise.runs.config import make_config
from paramnoise.runs.directory import WALL_CLOCK_COLUMNS, RunDirectory
from paramnoise.runs.loop import make_loop
from paramnoise.runs.run import run
from paramnoise.validation import UsageError

ID, CONTINUOUS = "paramnoise-test/Halves-v0", "paramnoise-test/ContinuousHalves-v0"
NETWORK = {"convolutions": ((4, 4, 2), (4, 3, 1)), "hidden_sizes": (8,), "layer_norm": True, "table_size": 10_000}
AGENT = {**NETWORK, "pairs": 4, "sigma": 0.1, "learning_rate": 0.05, "episodes_per_member": 2}
STACKS = np.random.default_rng(0).integers(0, 255, (3, 4, 12, 12), np.uint8)


class ContinuousHalves(Halves):
    """The same with continuous actions."""

    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


@pytest.fixture(scope="module", autouse=True)
def registered():
    gym.register(ID, entry_point=Halves)
    gym.register(CONTINUOUS, entry_point=ContinuousHalves)
    yield
    gym.registry.pop(ID)
    gym.registry.pop(CONTINUOUS)


def config(**agent):
    return make_config("es", ID, agent={**AGENT, **agent}, num_envs=3, steps=150, eval_every=50, eval_episodes=2)


def learner_of(hidden=(8,), is_discrete=True):
    return es.make(ESConfig(**{**NETWORK, "hidden_sizes": hidden}), Spaces((4, 12, 12), 2, is_discrete))


def test_a_policy_learns_the_bright_half():
    agent = pn.ES(Halves, seed=1, num_envs=8, **{**AGENT, "pairs": 8, "episodes_per_member": 4})
    before = agent.evaluate(50).mean
    agent.learn(4_000, eval_every=10_000, eval_episodes=1, progress=False)
    assert before < 6.0  # 12 if every action is right, 2.8 by chance
    assert agent.evaluate(50).mean > 10.0


def test_each_environment_has_the_outputs_of_its_own_parameters_wherever_it_is():
    learner = learner_of()
    networks = [jax.jit(learner.init)(jax.random.key(i)).network for i in range(3)]
    flat = [np.asarray(ravel_pytree(network)[0]) for network in networks]
    outputs = []
    for order in ([0, 1, 2], [2, 0, 1]):
        members = PixelNetworks(learner, 3)
        for place, which in enumerate(order):
            members.load(place, flat[which])
        outputs.append(members.outputs(STACKS[order])[np.argsort(order)])
    np.testing.assert_array_equal(*outputs)
    call = jax.jit(lambda network, stack: network(stack))
    expected = [call(network, stack) for network, stack in zip(networks, STACKS, strict=True)]
    np.testing.assert_allclose(outputs[0], expected, atol=1e-6)
    assert len({float(x) for x in outputs[0].ravel()}) == 6


def evaluated(hidden):
    made_of = Setting(learner_of(hidden), env_source(Halves).make_env, 0, 2, 30)
    made_of = pickle.loads(pickle.dumps(made_of))
    state = jax.jit(made_of.learner.init)(jax.random.key(0))
    given = Broadcast(0, np.asarray(ravel_pytree(state.network)[0]), jax.device_get(state.statistics))
    return given, [e for ended in MemberEvaluator(made_of).evaluate(given, range(4)) for e in ended]


def test_what_comes_back_of_an_episode_grows_with_neither_parameters_nor_frames():
    (small, few), (large, many) = evaluated((2,)), evaluated((64,))
    assert large.parameters.size > 2 * small.parameters.size
    assert len(pickle.dumps(many)) - len(pickle.dumps(few)) <= 20  # a length may need another byte
    assert len(pickle.dumps(many)) < 4 * 300


def rows_of(**agent):
    made_from = config(**agent)
    loop = make_loop([made_from], Halves)  # other processes know the class, but not the id that was registered here
    rows = list(loop.run(made_from.steps, eval_every=50, eval_episodes=2))
    loop.close()
    return rows, loop.state()


def test_workers_change_no_result():
    (rows, state), (other_rows, other_state) = rows_of(), rows_of(workers=2)
    assert len(rows) == 3
    assert rows == other_rows
    jax.tree.map(np.testing.assert_array_equal, named_leaves(state), named_leaves(other_state))


class StopAt:
    """Asks a run to stop at a step."""

    signal = None

    def __init__(self, step):
        self._at, self._now = step, 0

    def on_step(self, step):
        self._now = step

    def on_row(self, row):
        pass

    def should_stop(self):
        return self._now >= self._at


def progress(path):
    return [{k: v for k, v in row.items() if k not in WALL_CLOCK_COLUMNS} for row in RunDirectory(path).rows()]


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    run(config(), tmp_path / "whole", watcher=StopAt(10**9))
    for stop in (10, 80):  # within the first generation, and within a later one
        summary = run(config(), tmp_path / "parts", resume=stop > 10, watcher=StopAt(stop))
        assert summary["status"] == "interrupted"
    run(config(), tmp_path / "parts", resume=True, watcher=StopAt(10**9))
    assert progress(tmp_path / "parts") == progress(tmp_path / "whole")
    whole, parts = (pn.load(tmp_path / name) for name in ("whole", "parts"))
    jax.tree.map(np.testing.assert_array_equal, named_leaves(whole._loop.state()), named_leaves(parts._loop.state()))


def test_predict_takes_a_stack_or_a_batch_save_and_load_keep_it_and_a_film_shows_what_it_sees(tmp_path):
    agent = pn.ES(Halves, num_envs=3, **AGENT).learn(20, eval_every=10_000, eval_episodes=1, progress=False)
    actions, _ = agent.predict(STACKS)
    assert actions.shape == (3,)
    assert agent.predict(STACKS[1])[0] == actions[1]
    with pytest.raises(UsageError, match="expected"):
        agent.predict(STACKS[:, :2])
    agent.save(tmp_path / "saved")
    loaded = pn.load(tmp_path / "saved", env=Halves)
    np.testing.assert_array_equal(loaded.predict(STACKS)[0], actions)
    assert loaded.record(tmp_path / "film.gif", episodes=2, seed=4).returns == agent.evaluate(2, seed=4).returns
    assert (tmp_path / "film.gif").stat().st_size > 0


def test_the_command_line_trains_and_evaluates(tmp_path, capsys):
    words = ["train", "es", "--env", ID, "--convolutions", "4", "4", "2", "4", "3", "1", "--hidden-sizes", "8"]
    words += ["--pairs", "2", "--table-size", "1000", "--eval-episodes", "1", "--run-dir", str(tmp_path / "run")]
    assert main([*words, "--steps", "20"]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert f"es on {ID} after" in capsys.readouterr().out


def test_continuous_actions_are_refused_in_one_line(capsys):
    words = ["train", "es", "--env", CONTINUOUS, "--convolutions", "4", "4", "2"]
    assert main(words) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith("es needs discrete actions on pixels, not continuous ones: wrap the environment")
    )


def test_frames_too_small_for_the_convolutions_are_refused():
    with pytest.raises(UsageError, match=r"frames of \(12, 12\) are too small for convolutions"):
        pn.ES(Halves)


def test_units_and_filters_start_with_weights_of_norm_1_and_outputs_near_0():
    network = jax.jit(learner_of().init)(jax.random.key(0)).network
    *hidden, output = (*network.convolutions.layers, *network.head.layers)
    for layer in hidden:
        np.testing.assert_allclose(np.linalg.norm(layer.weight, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(output.weight, axis=1), es.OUTPUT_SCALE, rtol=1e-5)
    assert not any(np.any(layer.bias) for layer in (*hidden, output))


def test_the_preset_of_a_game_is_the_paper_s_network():
    made = make_config("es", "Pong")
    assert (made.agent.hidden_sizes, made.agent.layer_norm, made.agent.sigma) == ((512,), True, 0.02)
    assert made.agent.convolutions == ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    assert num_parameters(es.make(made.agent, Spaces((4, 84, 84), 6, True)).init) == 1_688_230
