"""A pool: groups of environments with two policies each, of which an episode keeps the one that it took."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from paramnoise.networks import MLP
from paramnoise.noise import perturb, perturb_each, resample
from paramnoise.noise.pool import (
    Pool,
    act_in_pool,
    begin_first_in_pool,
    begin_in_pool,
    init_pool,
    policies_in_pool,
)

KEY = jax.random.key(0)
CLEAN = {"w": jnp.zeros(2)}
NEVER = jnp.zeros(6, bool)


def everything(path: str, leaf: Array) -> bool:
    return True


@jax.jit
def begin(key: Array, pool: Pool, starts: Array, shift: float = 0.0) -> Pool:
    return begin_in_pool(key, pool, {"w": CLEAN["w"] + shift}, 1.0, starts, everything)


def empty(num_envs: int = 6, groups: int = 2) -> Pool:
    """A pool before the first episodes; a dict has no linear layers, so it is made by hand."""
    return Pool({"w": jnp.zeros((groups, 2, 2))}, jnp.zeros(groups, jnp.int32), jnp.zeros(num_envs, jnp.int32))


def at(*places: int) -> Array:
    return NEVER.at[jnp.array(places, int)].set(True)


def own(pool: Pool) -> np.ndarray:
    """The weights with which each environment acts, [num_envs, 2]."""
    return np.asarray(policies_in_pool(pool)["w"])


def test_the_first_episodes_of_a_group_share_one_perturbed_policy():
    weights = own(begin(KEY, empty(), ~NEVER))
    keys = jax.random.split(KEY, 2)
    for env in range(6):  # environments 0 to 2 are the first group
        np.testing.assert_array_equal(weights[env], perturb(keys[env // 3], CLEAN, 1.0, everything)["w"])


def test_an_episode_keeps_its_policy_while_others_of_its_group_get_new_ones():
    keys = jax.random.split(KEY, 8)
    pool = begin(keys[0], empty(), ~NEVER)
    first = own(pool)
    pool = begin(keys[1], pool, at(0))  # nobody acts with the other policy of the group: it is drawn anew
    second = own(pool)
    assert (second != first).any(axis=1).tolist() == [True, False, False, False, False, False]
    pool = begin(keys[2], pool, at(1))  # 2 acts with the older one still: 1 takes the newer one, as 0 did
    third = own(pool)
    np.testing.assert_array_equal(third[1], second[0])
    assert (third != second).any(axis=1).tolist() == [False, True, False, False, False, False]
    pool = begin(keys[3], pool, at(2))  # the last that acted with the older one: it is drawn anew
    fourth = own(pool)
    assert not (fourth[2] == np.concatenate([first, second, third])).all(axis=1).any()
    np.testing.assert_array_equal(np.delete(fourth, 2, axis=0), np.delete(third, 2, axis=0))
    np.testing.assert_array_equal(fourth[3:], first[3:])


def test_a_group_in_which_no_episode_begins_draws_nothing_though_its_older_policy_is_free():
    pool = begin(KEY, empty(), ~NEVER)
    after = begin(jax.random.key(1), pool, at(4))
    np.testing.assert_array_equal(after.policies["w"][0], pool.policies["w"][0])
    assert after.newer.tolist() == [1, 0]


def test_a_new_policy_is_drawn_around_the_clean_one_of_now():
    pool = begin(jax.random.key(1), begin(KEY, empty(), ~NEVER), at(0), 100.0)
    assert (own(pool)[0] > 90).all()
    assert (own(pool)[1:] < 10).all()


def test_two_policies_for_each_environment_are_as_one_for_each_episode():
    pool, each = empty(groups=6), {"w": jnp.zeros((6, 2))}
    for number in range(6):
        key = jax.random.fold_in(KEY, number)
        starts = jax.random.bernoulli(key, 0.5, (6,)) if number else ~NEVER
        pool, each = begin(key, pool, starts), resample(key, each, CLEAN, 1.0, starts, everything)
        np.testing.assert_array_equal(own(pool), each["w"])


@pytest.mark.parametrize("lengths", [[7] * 64, [3, 5, 8, 13] * 16], ids=["together", "apart"])
def test_no_episode_ever_changes_its_policy_and_policies_are_renewed(lengths: list[int]):
    """Environments with episodes of fixed lengths, in 16 groups; the clean policy is the time, and noise is small."""
    lengths = np.array(lengths)

    @jax.jit
    def rollout() -> Array:
        def step(pool: Pool, time: Array) -> tuple[Pool, Array]:
            clean, starts = {"w": CLEAN["w"] + time}, time % lengths == 0
            pool = begin_in_pool(jax.random.fold_in(KEY, time), pool, clean, 0.01, starts, everything)
            return pool, policies_in_pool(pool)["w"][:, 0]

        return jax.lax.scan(step, empty(64, 16), jnp.arange(60))[1]

    weights = np.asarray(rollout())  # [times, environments]
    for env, length in enumerate(lengths):
        for first in range(0, 60, length):
            assert len(set(weights[first : first + length, env])) == 1
    age = np.arange(60)[:, None] - np.round(weights)
    assert age.max() < 3 * lengths.max()  # taken for two of the longest episodes at most, and then kept for one
    assert len(np.unique(weights)) > 16 * 60 // (2 * lengths.max())


def test_what_acts_is_the_policy_that_the_episode_took():

    @jax.jit
    def acted() -> tuple[Array, Array, Array]:
        policy = MLP([3, 4, 2], key=KEY)
        pool = begin_in_pool(KEY, init_pool(policy, 4, 6), policy, 0.5, ~NEVER)
        pool = begin_in_pool(jax.random.key(1), pool, policy, 0.5, at(0, 4))
        obs = jax.random.normal(KEY, (6, 3))
        each = jax.vmap(lambda one, seen: one(seen))(policies_in_pool(pool), obs)
        return act_in_pool(pool, obs), each, act_in_pool(pool, jnp.ones((6, 3)))

    actions, each, on_the_same = acted()
    np.testing.assert_allclose(actions, each, rtol=1e-5, atol=1e-6)
    assert len(np.unique(np.asarray(on_the_same[:, 0]).round(5))) == 4


def test_episodes_that_wait_begin_as_if_they_had_not():
    starts = jnp.arange(64) % 3 == 0
    pool = begin_in_pool(KEY, empty(64, 16), CLEAN, 1.0, jnp.ones(64, bool), everything)
    at_once = begin_in_pool(jax.random.key(1), pool, CLEAN, 1.0, starts, everything)
    first, waits = begin_first_in_pool(jax.random.key(1), pool, CLEAN, 1.0, starts, everything)
    assert 0 < int(waits.sum()) < int(starts.sum())
    np.testing.assert_array_equal(own(first)[waits], own(pool)[waits])
    last = begin_in_pool(jax.random.key(1), first, CLEAN, 1.0, waits, everything)
    np.testing.assert_array_equal(own(last), own(at_once))


def test_seeds_side_by_side_draw_what_each_would_draw_alone():
    keys, starts = jax.random.split(KEY, 2), jnp.array([[True] * 6, [True, False] * 3])
    pools = jax.tree.map(lambda *leaves: jnp.stack(leaves), empty(), empty())
    together = jax.jit(jax.vmap(lambda key, pool, starts: begin_in_pool(key, pool, CLEAN, 1.0, starts, everything)))(
        keys, pools, starts
    )
    for seed in range(2):
        alone = begin(keys[seed], empty(), starts[seed])
        np.testing.assert_array_equal(together.policies["w"][seed], alone.policies["w"])
        np.testing.assert_array_equal(together.taken[seed], alone.taken)


def test_noise_in_a_pool_is_independent_between_groups():
    policies = begin_in_pool(
        KEY,
        Pool({"w": jnp.zeros((3, 2, 5000))}, jnp.zeros(3, jnp.int32), jnp.zeros(6, jnp.int32)),
        {"w": jnp.zeros(5000)},
        2.0,
        ~NEVER,
        everything,
    ).policies["w"][:, 1]
    assert abs(np.std(policies) / 2.0 - 1) < 4 / np.sqrt(2 * policies.size)
    assert np.abs(np.corrcoef(policies) - np.eye(3)).max() < 4 / np.sqrt(5000)
    np.testing.assert_array_equal(policies[0], perturb_each(KEY, {"w": jnp.zeros(5000)}, 2.0, 3, everything)["w"][0])
