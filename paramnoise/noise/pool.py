"""A pool of perturbed policies that many environments share, for networks of which each cannot have a copy.

Neighbouring environments form a group, and each group has two policies. An episode that begins takes the newer of them
and keeps it to its end. Once no episode acts with the older one any more, the next episode that begins has it drawn
anew, and it is then the newer one.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from paramnoise.noise.perturbation import Where, perturb_each, redraw, redraw_first


class Pool(NamedTuple):
    """The policies of all groups, and who acts with which."""

    policies: Any
    """The two of each group: leading axes [groups, 2] on every array."""
    newer: Array
    """Which of the two an episode takes that begins, [groups]."""
    taken: Array
    """Which of the two of its group each environment's episode acts with, [num_envs]."""


def init_pool(policy: Any, size: int, num_envs: int) -> Pool:
    """A pool of so many policies before the first episodes begin, which draw those that they take.

    Args:
        policy: any pytree of parameters.
        size: how many policies: twice the number of groups.
        num_envs: environments, a multiple of the number of groups.
    """
    groups = size // 2
    policies = _map(
        lambda leaf: leaf.reshape(groups, 2, *leaf.shape[1:]), perturb_each(jax.random.key(0), policy, 0.0, size)
    )
    return Pool(policies, jnp.zeros(groups, jnp.int32), jnp.zeros(num_envs, jnp.int32))


def begin_in_pool(
    key: Array, pool: Pool, policy: Any, sigma: ArrayLike, starts: Array, where: Where | None = None
) -> Pool:
    """Gives a policy of the pool to the environments where an episode starts, a new one where it can be drawn.

    Args:
        key: a random key, used once.
        pool: the pool of before.
        policy: the clean policy of now.
        sigma: the standard deviation of the noise of now.
        starts: bool[num_envs], true where an episode starts.
        where: chooses the leaves that get noise, as for `perturb`.

    Returns:
        The pool. The policies with which episodes under way act are those of before.
    """
    renewed = _renewed(pool, starts)
    drawn = redraw(key, _flat(pool), policy, sigma, _older(pool, renewed), where, repeat=2)
    return _after(pool, drawn, renewed, starts)


def begin_first_in_pool(
    key: Array, pool: Pool, policy: Any, sigma: ArrayLike, starts: Array, where: Where | None = None
) -> tuple[Pool, Array]:
    """As `begin_in_pool`, at a cost that is always the same: with it where the start of an episode has to wait."""
    groups, renewed = pool.newer.shape[0], _renewed(pool, starts)
    drawn, left = redraw_first(key, _flat(pool), policy, sigma, _older(pool, renewed), where, repeat=2)
    left = jnp.any(left.reshape(groups, 2), axis=1)
    waits = (starts.reshape(groups, -1) & left[:, None]).reshape(-1)
    return _after(pool, drawn, renewed & ~left, starts & ~waits), waits


def _renewed(pool: Pool, starts: Array) -> Array:
    """The groups in which an episode begins and none under way acts with the older policy, bool[groups]."""
    begins, taken = (each.reshape(pool.newer.shape[0], -1) for each in (starts, pool.taken))
    older_acts = jnp.any(~begins & (taken != pool.newer[:, None]), axis=1)
    return jnp.any(begins, axis=1) & ~older_acts


def _older(pool: Pool, groups: Array) -> Array:
    """The older policies of some groups, as places of the flat pool: bool[2 * groups]."""
    return (groups[:, None] & (jnp.arange(2) != pool.newer[:, None])).reshape(-1)


def _after(pool: Pool, drawn: Any, renewed: Array, starts: Array) -> Pool:
    """The pool once the older policies of some groups are drawn anew, and episodes that start take the newer ones."""
    groups = renewed.shape[0]
    newer = jnp.where(renewed, 1 - pool.newer, pool.newer)
    taken = jnp.where(starts.reshape(groups, -1), newer[:, None], pool.taken.reshape(groups, -1)).reshape(-1)
    return Pool(_map(lambda leaf: leaf.reshape(groups, 2, *leaf.shape[1:]), drawn), newer, taken)


def _flat(pool: Pool) -> Any:
    """The policies of all groups with one leading axis."""
    return _map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), pool.policies)


def act_in_pool(pool: Pool, obs: Array) -> Array:
    """What the policy of each environment makes of its observation, [num_envs, ...].

    Both policies of a group see the observations of the whole group: the products of matrices are then as large as the
    group, and each policy is read once, where a copy for each environment would be read as often as there are any.
    """
    groups = pool.newer.shape[0]
    of_both = eqx.filter_vmap(lambda policy, seen: jax.vmap(policy)(seen), in_axes=(eqx.if_array(0), None))
    values = eqx.filter_vmap(of_both)(pool.policies, obs.reshape(groups, -1, *obs.shape[1:]))  # [groups, 2, own, ...]
    values = jnp.moveaxis(values, 1, 2).reshape(obs.shape[0], 2, *values.shape[3:])
    return jnp.where((pool.taken == 0).reshape((-1,) + (1,) * (values.ndim - 2)), values[:, 0], values[:, 1])


def policies_in_pool(pool: Pool) -> Any:
    """The policy of each environment: a copy, with a leading axis of environments on every array."""
    num_envs, groups = pool.taken.shape[0], pool.newer.shape[0]
    group = np.arange(num_envs) // (num_envs // groups)
    return _map(lambda leaf: leaf[group, pool.taken], pool.policies)


def _map(change: Any, policies: Any) -> Any:
    """The policies with each array changed."""
    return jax.tree.map(lambda leaf: change(leaf) if eqx.is_array(leaf) else leaf, policies)
