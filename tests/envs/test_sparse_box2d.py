"""The three Box2D tasks: their rules at constructed states, their physics by hand, and episodes that replay."""

import copy
import importlib
import math
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from paramnoise.envs.box2d import BodyState, read_state
from paramnoise.envs.sparse_box2d import SparseCartpoleSwingupEnv, SparseDoublePendulumEnv, SparseMountainCarEnv
from paramnoise.validation import UsageError

TASKS = [SparseCartpoleSwingupEnv, SparseDoublePendulumEnv, SparseMountainCarEnv]
every_task = pytest.mark.parametrize("task", TASKS)


def outcome(env, start) -> tuple[float, bool]:
    """The reward and the end of one step from a start."""
    env.start_from(start)
    return env.step(np.zeros(1, np.float32))[1:3]


def play(env, seed: int, actions) -> np.ndarray:
    """All that an episode shows, as numbers, up to its end or that of the actions."""
    obs, _ = env.reset(seed=seed)
    seen = [[*obs, 0.0, 0.0]]
    for action in actions:
        obs, reward, terminated, _, _ = env.step(action)
        seen.append([*obs, reward, terminated])
        if terminated:
            break
    return np.array(seen)


def some_actions(task, seed: int, steps: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-task.limit, task.limit, (steps, 1)).astype(np.float32)


def starts(task) -> np.ndarray:
    env = task()
    return np.array([env.reset(seed=seed)[0] for seed in range(300)])


def drive(policy, start_velocity: float) -> list[float]:
    """The car's positions until the goal or the horizon."""
    env = SparseMountainCarEnv()
    obs = env.start_from(BodyState(0.0, env.REST_HEIGHT, x_velocity=start_velocity))
    positions, terminated = [], False
    while not terminated and len(positions) < 500:
        obs, _, terminated, _, _ = env.step(np.array([policy(obs)], np.float32))
        positions.append(float(obs[0]))
    return positions


@every_task
@pytest.mark.filterwarnings("ignore:.*(infinity|normalized space|not having a spec)")
def test_gymnasium_s_checker_accepts_each_task(task):
    check_env(task(render_mode="rgb_array"))


@pytest.mark.parametrize(("task", "size", "limit"), [*zip(TASKS, (4, 6, 2), (10, 50, 1), strict=True)])
def test_spaces_have_the_sizes_of_the_paper(task, size, limit):
    env = task()
    assert env.reset(seed=0)[0].shape == env.observation_space.shape == (size,)
    assert env.reset(seed=0)[0].dtype == np.float32
    assert (env.action_space.low.tolist(), env.action_space.high.tolist()) == ([-limit], [limit])


def test_the_horizon_truncates_and_does_not_terminate():
    env = gym.wrappers.TimeLimit(SparseDoublePendulumEnv(), 500)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(500)]
    assert ends == [(False, False)] * 499 + [(False, True)]


def test_cartpole_starts_uniformly_around_hanging():
    scaled = (starts(SparseCartpoleSwingupEnv) - (0, 0, math.pi, 0)) / (1, 2, 1, 3)
    assert (abs(scaled) <= 1 + 1e-6).all()
    assert (abs(scaled.mean(0)) < 0.15).all()
    np.testing.assert_allclose(scaled.std(0), 1 / math.sqrt(3), rtol=0.15)


def test_double_pendulum_starts_normally_around_hanging():
    seen = starts(SparseDoublePendulumEnv)
    assert (seen[:, [1, 4]] > 0.9).all()
    scaled = seen[:, [0, 3, 2, 5]] / (0.1, 0.1, 0.01, 0.01)
    assert (abs(scaled.mean(0)) < 0.2).all()
    np.testing.assert_allclose(scaled.std(0), 1, rtol=0.15)


def test_mountain_car_starts_in_the_middle_with_some_velocity():
    position, velocity = starts(SparseMountainCarEnv).T
    assert (position == 0).all()
    assert (abs(velocity) <= 1).all()
    assert velocity.std() == pytest.approx(1 / math.sqrt(3), rel=0.15)


def test_joints_hold_from_the_first_state_on():
    cartpole, pendulum = SparseCartpoleSwingupEnv(), SparseDoublePendulumEnv()
    cartpole.start_from([0.5, 1.0, 2.0, 3.0])
    pendulum.start_from([0.3, -0.2, 1.0, -1.0])
    on_cart = (cartpole._scene.cart, (0.0, cartpole.CART_HEIGHT / 2), cartpole._scene.pole)
    elbow = (pendulum._scene.links[0], (0.0, -1.0), pendulum._scene.links[1])
    for first, point, second in (on_cart, elbow):
        state = read_state(second)
        assert tuple(first.GetWorldPoint(point)) == pytest.approx(state[:2], abs=1e-6)
        assert tuple(first.GetLinearVelocityFromLocalPoint(point)) == pytest.approx(state[3:5], abs=1e-6)


@pytest.mark.parametrize(("angle", "reward"), [(0, 1), (0.6, 1), (-0.6, 1), (0.68, 0), (math.pi, 0), (2 * math.pi, 1)])
def test_cartpole_pays_for_an_upright_pole(angle, reward):
    assert outcome(SparseCartpoleSwingupEnv(), [0, 0, angle, 0]) == (reward, False)


@pytest.mark.parametrize("side", [-1, 1])
def test_cartpole_ends_unpaid_beyond_the_track(side):
    assert outcome(SparseCartpoleSwingupEnv(), [side * 2.95, side * 2, 0, 0]) == (0, True)
    assert outcome(SparseCartpoleSwingupEnv(), [side * 2.85, side * 2, 0, 0]) == (1, False)


UPRIGHT = [(0, 0), (0, 0.9), (0, -0.9), (-0.5, 0.6)]
ASKEW = [(-math.pi, -math.pi), (0, 1.15), (0, -1.15), (-0.6, -0.6)]


@pytest.mark.parametrize(("upper", "lower", "reward"), [(*to, 1) for to in UPRIGHT] + [(*to, 0) for to in ASKEW])
def test_double_pendulum_pays_for_a_tip_near_the_upright_point(upper, lower, reward):
    assert outcome(SparseDoublePendulumEnv(), [math.pi + upper, math.pi + lower, 0, 0]) == (reward, False)


@pytest.mark.parametrize(
    ("upper", "lower", "true", "vime"),
    [
        (math.pi, math.pi, 1, 1),  # upright
        (math.pi - 0.7, math.pi + 0.7, 1, 0),  # bent back to the middle: the tip is at x 0, or mirrored at 1.3
        (math.pi - 0.7, math.pi - 0.7, 0, 1),  # stretched out to one side: at 1.3, or mirrored at 0
        (0.0, 0.0, 0, 0),  # hanging
    ],
)
def test_vime_s_rule_pays_a_double_pendulum_whose_lower_link_is_mirrored(upper, lower, true, vime):
    paid = [outcome(SparseDoublePendulumEnv(vime_rule=rule), (upper, lower, 0.0, 0.0))[0] for rule in (False, True)]
    assert paid == [true, vime]


@pytest.mark.parametrize("vime_rule", [False, True])
def test_mountain_car_pays_the_goal_and_by_vime_s_rule_the_left_exit(vime_rule):
    env = SparseMountainCarEnv(vime_rule=vime_rule)
    cases = {0.5: (0, False), 0.58: (1, True), -0.58: (0, False), -1.9: (0, False), -1.98: (vime_rule, True)}
    for x, expected in cases.items():
        assert outcome(env, BodyState(x, 3.0, x_velocity=math.copysign(1, x))) == expected


@every_task
def test_actions_beyond_the_bounds_are_clipped_to_them(task):
    actions = np.sign(some_actions(task, 0, steps=20)) * task.limit
    np.testing.assert_array_equal(play(task(), 0, actions), play(task(), 0, 7 * actions))


def test_an_action_that_is_no_number_is_refused():
    with pytest.raises(UsageError, match=r"action must be a number between -10\.0 and 10\.0, not nan"):
        SparseCartpoleSwingupEnv().step(np.array([np.nan], np.float32))


@every_task
def test_an_episode_depends_on_its_seed_and_actions_only(task):
    env, other = task(), task()
    actions = some_actions(task, 1)
    first = play(env, 1, actions)
    for seed in range(2, 12):
        play(env, seed, some_actions(task, seed))
    for again in (env, other):
        np.testing.assert_array_equal(play(again, 1, actions), first)
    assert not np.array_equal(play(env, 2, actions)[:2], first[:2])


@every_task
def test_a_copy_taken_inside_an_episode_plays_its_own_episodes(task):
    env = task(render_mode="rgb_array")
    actions = some_actions(task, 0, steps=20)
    expected, before = play(env, 0, actions), env.render()
    np.testing.assert_array_equal(play(copy.deepcopy(env), 0, actions), expected)
    np.testing.assert_array_equal(env.render(), before)


@every_task
def test_pictures_show_the_state(task):
    env = task(render_mode="rgb_array")
    play(env, 0, [])
    before = env.render()
    play(env, 0, some_actions(task, 0, steps=10))
    after = env.render()
    assert before.shape == after.shape == (300, 400, 3)
    assert before.dtype == after.dtype == np.uint8
    assert (before != after).any()


def test_a_force_gives_cart_and_pole_together_its_momentum():
    env = SparseCartpoleSwingupEnv()
    env.start_from([0, 0, math.pi, 0])
    for _ in range(20):
        env.step(np.array([2.0], np.float32))
    _, cart, pole = env._scene
    assert (cart.mass, pole.mass) == pytest.approx((1.0, 0.1))
    assert 1.0 * cart.linearVelocity.x + 0.1 * pole.linearVelocity.x == pytest.approx(2.0 * 20 * 0.05, rel=1e-4)


def test_a_hanging_double_pendulum_gains_no_energy_from_zero_torque():
    def energy(link) -> float:
        inertia = 0.5 * (1 + 0.1**2) / 12  # of a mass of 0.5 around its middle
        moving = 0.5 * link.linearVelocity.lengthSquared + inertia * link.angularVelocity**2
        return 0.5 * moving + 0.5 * 10 * link.worldCenter.y

    env = SparseDoublePendulumEnv()
    env.start_from([1.0, -0.5, 0, 0])
    energies = []
    for _ in range(500):
        energies.append(sum(map(energy, env._scene.links)))
        env.step(np.zeros(1, np.float32))
    assert max(energies) < energies[0] + 0.02
    assert min(energies) > -10 - 1e-3


@pytest.mark.parametrize("torque", [-20.0, 20.0])
def test_a_torque_turns_the_links_against_each_other(torque):
    env = SparseDoublePendulumEnv()
    env.start_from([0, 0, 0, 0])
    obs = env.step(np.array([torque], np.float32))[0]
    inertia = 0.5 * (0.25 + (1 + 0.1**2) / 12)
    masses = [[inertia + 0.5, 0.25], [0.25, inertia]]
    np.testing.assert_allclose(obs[[2, 5]], np.linalg.solve(masses, [-torque, torque]) * 0.02, rtol=0.05)


def test_the_force_acts_along_the_car_s_own_axis():
    env = SparseMountainCarEnv()
    env.start_from(BodyState(0.0, 2.0, angle=math.pi / 2))
    env.step(np.ones(1, np.float32))
    assert env._scene.car.mass == pytest.approx(0.4)
    assert env._scene.car.linearVelocity.y == pytest.approx((1 / 0.4 - 10) * 0.05)


def test_a_car_left_alone_at_rest_stays_in_the_valley():
    assert max(abs(x) for x in drive(lambda obs: 0.0, 0.0)) < 0.01


@pytest.mark.parametrize("velocity", [-1.0, 0.0, 1.0])
def test_full_throttle_alone_does_not_reach_the_goal(velocity):
    assert max(drive(lambda obs: 1.0, velocity)) < 0.4


@pytest.mark.parametrize("velocity", [-1.0, -0.3, 0.0, 0.5, 1.0])
def test_pushing_the_way_the_car_moves_reaches_the_goal(velocity):
    assert drive(lambda obs: np.sign(obs[1]), velocity)[-1] >= 0.6


def test_a_missing_engine_is_named_with_its_remedy(monkeypatch):
    for module in ("paramnoise.envs.box2d", "paramnoise.envs.sparse_box2d"):
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(gym.error.DependencyNotInstalled, match=r"^.*pip install 'paramnoise\[box2d\]'.*$"):
        importlib.import_module("paramnoise.envs.sparse_box2d")
