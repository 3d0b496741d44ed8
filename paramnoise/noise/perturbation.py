"""Perturbed policies: theta~ = theta + N(0, sigma^2 I) on chosen leaves (sec. 3), one or one per environment."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

Policy = TypeVar("Policy")
"""Any pytree of parameters: an Equinox module, a dict of arrays, ..."""

Where = Callable[[str, Array], bool]
"""Chooses the leaves that get noise, from a leaf's path ("dense/kernel") and the leaf itself."""

MANY = 64
"""Environments from which on only the policies that are needed are drawn: of few it costs less to draw all."""
PARTS = 32
"""Of so many environments, those of one part are drawn together: where fewer than that start, the rest is wasted."""


def selected(policy: Policy, where: Where | None = None) -> Policy:
    """Marks the leaves that get noise.

    Args:
        policy: any pytree of parameters.
        where: chooses the leaves by path and value. None takes the weights and biases of every `eqx.nn.Linear`, found
            by type: names change and a name filter then misses layers in silence.

    Returns:
        The policy's structure with a bool in the place of each leaf.

    Raises:
        ValueError: if no leaf, or a leaf that is not a floating-point array, was chosen.
    """
    if where is None:
        mask = jax.tree.map(lambda node: jax.tree.map(lambda _: _is_linear(node), node), policy, is_leaf=_is_linear)
    else:
        mask = jax.tree_util.tree_map_with_path(lambda path, leaf: bool(where(_name(path), leaf)), policy)
    leaves = jax.tree_util.tree_leaves_with_path(policy)
    chosen = [(path, leaf) for (path, leaf), take in zip(leaves, jax.tree.leaves(mask), strict=True) if take]
    if not chosen:
        names = ", ".join(_name(path) for path, _ in leaves[:8])
        raise ValueError(
            f"no leaf of the policy was chosen for noise (leaves: {names}): pass where=, a predicate of path and leaf; "
            "the default finds eqx.nn.Linear layers"
        )
    for path, leaf in chosen:
        if not (eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating)):
            raise ValueError(f"{_name(path)} was chosen for noise but is not a floating-point array; narrow where=")
    return mask


def perturb(key: Array, policy: Policy, sigma: ArrayLike, where: Where | None = None) -> Policy:
    """Adds spherical Gaussian noise to the chosen leaves: theta~ = theta + N(0, sigma^2 I).

    Args:
        key: a random key, used once.
        policy: any pytree of parameters; it is not changed.
        sigma: the standard deviation of the noise.
        where: chooses the leaves; by default the weights and biases of every `eqx.nn.Linear`.

    Returns:
        A policy of the same type, ready to call; the other leaves are the same arrays.
    """
    leaves, structure = jax.tree.flatten(policy)
    flags = jax.tree.leaves(selected(policy, where))
    sizes = [leaf.size if flag else 0 for leaf, flag in zip(leaves, flags, strict=True)]
    # One draw for all leaves: a draw per leaf is the same noise and several times the program.
    draws = jnp.split(jax.random.normal(key, (sum(sizes),)), np.cumsum(sizes)[:-1])
    noisy = [
        leaf + (sigma * draw).astype(leaf.dtype).reshape(leaf.shape) if flag else leaf
        for leaf, flag, draw in zip(leaves, flags, draws, strict=True)
    ]
    return jax.tree.unflatten(structure, noisy)


def perturb_each(
    key: Array,
    policy: Policy,
    sigma: ArrayLike,
    num_envs: int,
    where: Where | None = None,
    distinct: int | None = None,
) -> Policy:
    """Perturbs a policy independently for each of several environments, or for groups of them.

    Args:
        key: a random key, used once.
        policy: any pytree of parameters.
        sigma: the standard deviation of the noise.
        num_envs: how many perturbed policies.
        where: chooses the leaves, as for `perturb`.
        distinct: how many of them differ: environment i has the perturbation i mod `distinct`. None: all do.

    Returns:
        One policy whose arrays have a leading axis of `num_envs`, to be called under `vmap`. Leaves without noise are
        copied too, so that a policy stays as sampled for its whole episode while the learner goes on.
    """
    return eqx.filter_vmap(lambda k: perturb(k, policy, sigma, where))(_keys_of(key, num_envs, distinct))


def resample(
    key: Array,
    policies: Policy,
    policy: Policy,
    sigma: ArrayLike,
    starts: Array,
    where: Where | None = None,
    distinct: int | None = None,
) -> Policy:
    """Draws new perturbations where an episode starts and leaves every other environment's policy alone.

    Args:
        key: a random key, used once.
        policies: what `perturb_each` returned.
        policy: the clean policy of now.
        sigma: the standard deviation of the noise of now.
        starts: bool[num_envs], true where an episode starts.
        where: chooses the leaves, as for `perturb`.
        distinct: how many of the new perturbations differ, as for `perturb_each`.

    Returns:
        The policies, replaced where `starts` is true.
    """
    num_envs = starts.shape[0]
    if num_envs < MANY:
        fresh = perturb_each(key, policy, sigma, num_envs, where, distinct)

        def choose(new: Any, old: Any) -> Any:
            if not eqx.is_array(new):
                return old
            return jnp.where(starts.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)

        return jax.tree.map(choose, fresh, policies)
    keys = _keys_of(key, num_envs, distinct)
    acting, still = eqx.partition(policies, eqx.is_array)
    clean, rest = eqx.partition(policy, eqx.is_array)

    @jax.custom_batching.custom_vmap
    def one_seed(keys: Array, acting: Any, clean: Any, sigma: Array, starts: Array) -> Any:
        seeds = jax.tree.map(lambda leaf: leaf[None], (keys, acting, clean, sigma, starts))
        return jax.tree.map(lambda leaf: leaf[0], several_seeds(*seeds))

    @one_seed.def_vmap
    def _(axis_size: int, in_batched: Any, *parts: Any) -> tuple[Any, Any]:
        with_axis = jax.tree.map(
            lambda leaf, has: leaf if has else jnp.broadcast_to(leaf, (axis_size, *jnp.shape(leaf))),
            parts,
            tuple(in_batched),
        )
        return several_seeds(*with_axis), jax.tree.map(lambda _: True, acting)

    def several_seeds(keys: Array, acting: Any, clean: Any, sigma: Array, starts: Array) -> Any:
        """Of arrays with leading axes of seeds and environments, `clean` and `sigma` of seeds alone."""
        flat_keys, flat_acting, flat_starts = jax.tree.map(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (keys, acting, starts)
        )
        chunk = -(-starts.size // PARTS)
        after = _replace_some(perturb_one, flat_keys, flat_acting, flat_starts, (clean, sigma), chunk)
        return jax.tree.map(lambda leaf, as_before: leaf.reshape(as_before.shape), after, acting)

    def perturb_one(key: Array, clean_and_sigma: tuple[Any, Array]) -> Any:
        clean, sigma = clean_and_sigma
        return eqx.filter(perturb(key, eqx.combine(clean, rest), sigma, where), eqx.is_array)

    return eqx.combine(one_seed(keys, acting, clean, jnp.asarray(sigma, jnp.float32), starts), still)


def _keys_of(key: Array, num_envs: int, distinct: int | None) -> Array:
    """A key for each environment's draw; environments i and i + `distinct` share one."""
    keys = jax.random.split(key, num_envs if distinct is None else distinct)
    return keys if distinct is None else keys[jnp.arange(num_envs) % distinct]


def _replace_some(
    perturb_one: Callable[[Array, Any], Any], keys: Array, acting: Any, starts: Array, sources: Any, chunk: int
) -> Any:
    """Replaces the policies where an episode starts, a chunk of them at a time, as many chunks as are needed.

    Args:
        perturb_one: draws a policy from a key and a source.
        keys: a key for each environment, [environments].
        acting: the policies, [environments, ...].
        starts: bool[environments].
        sources: what perturbed policies are made of, [seeds, ...]; environments of one seed are neighbours.
        chunk: how many are drawn together.

    Returns:
        The policies, replaced where `starts` is true.
    """
    num_envs = starts.shape[0]
    per_seed = num_envs // jax.tree.leaves(sources)[0].shape[0]
    started = jnp.nonzero(starts, size=-(-num_envs // chunk) * chunk, fill_value=num_envs)[0]

    def replace(i: Array, acting: Any) -> Any:
        places = jax.lax.dynamic_slice(started, (i * chunk,), (chunk,))
        here = jnp.minimum(places, num_envs - 1)
        fresh = jax.vmap(perturb_one)(keys[here], jax.tree.map(lambda leaf: leaf[here // per_seed], sources))
        return jax.tree.map(lambda old, new: old.at[places].set(new, mode="drop"), acting, fresh)

    chunks = (jnp.sum(starts, dtype=jnp.int32) + chunk - 1) // chunk
    return jax.lax.fori_loop(0, chunks, replace, acting)


def _is_linear(node: Any) -> bool:
    return isinstance(node, eqx.nn.Linear)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
