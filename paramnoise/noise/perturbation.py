"""Perturbed policies: theta~ = theta + N(0, sigma^2 I) on chosen leaves (sec. 3), one or one per environment."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from paramnoise.noise.many import MANY, replace_first, replace_some

Policy = TypeVar("Policy")
"""Any pytree of parameters: an Equinox module, a dict of arrays, ..."""

Where = Callable[[str, Array], bool]
"""Chooses the leaves that get noise, from a leaf's path ("dense/kernel") and the leaf itself."""


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
    numbers = jnp.arange(num_envs) if distinct is None else jnp.arange(num_envs) % distinct
    return eqx.filter_vmap(lambda number: perturb(numbered(key, number), policy, sigma, where))(numbers)


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
    if num_envs >= MANY:
        return redraw(key, policies, policy, sigma, starts, where, distinct=distinct)
    fresh = perturb_each(key, policy, sigma, num_envs, where, distinct)

    def choose(new: Any, old: Any) -> Any:
        if not eqx.is_array(new):
            return old
        return jnp.where(starts.reshape((-1,) + (1,) * (new.ndim - 1)), new.astype(old.dtype), old)

    return jax.tree.map(choose, fresh, policies)


def redraw(
    key: Array,
    policies: Policy,
    policy: Policy,
    sigma: ArrayLike,
    chosen: Array,
    where: Where | None = None,
    *,
    repeat: int = 1,
    distinct: int | None = None,
) -> Policy:
    """Draws the chosen ones of several perturbed policies anew and leaves the others alone.

    What it costs is in proportion to how many are chosen, rounded up to a chunk.

    Args:
        key: a random key, used once.
        policies: arrays with a leading axis of policies.
        policy: the clean policy of now.
        sigma: the standard deviation of the noise of now.
        chosen: bool[policies].
        where: chooses the leaves, as for `perturb`.
        repeat: how many neighbouring policies share a draw.
        distinct: how many draws differ; None: all do.

    Returns:
        The policies, replaced where `chosen` is true.
    """
    draw, source, (acting, still) = _drawing(key, policies, policy, sigma, where, repeat, distinct)
    return eqx.combine(replace_some(draw, acting, source, chosen), still)


def redraw_first(
    key: Array,
    policies: Policy,
    policy: Policy,
    sigma: ArrayLike,
    chosen: Array,
    where: Where | None = None,
    *,
    repeat: int = 1,
    distinct: int | None = None,
) -> tuple[Policy, Array]:
    """As `redraw`, of one chunk of the chosen, at a cost that is always the same; with it which of them are left."""
    draw, source, (acting, still) = _drawing(key, policies, policy, sigma, where, repeat, distinct)
    after, left = replace_first(draw, acting, source, chosen)
    return eqx.combine(after, still), left


def _drawing(
    key: Array,
    policies: Policy,
    policy: Policy,
    sigma: ArrayLike,
    where: Where | None,
    repeat: int,
    distinct: int | None,
) -> tuple[Callable[[Array, Any], Any], Any, tuple[Any, Any]]:
    """How a policy of a place is drawn, from which arrays, and the policies as arrays and the rest."""
    clean, rest = eqx.partition(policy, eqx.is_array)

    def draw(place: Array, source: tuple[Array, Any, Array]) -> Any:
        key, clean, sigma = source
        number = place // repeat if distinct is None else place // repeat % distinct
        return eqx.filter(perturb(numbered(key, number), eqx.combine(clean, rest), sigma, where), eqx.is_array)

    return draw, (key, clean, jnp.asarray(sigma, jnp.float32)), eqx.partition(policies, eqx.is_array)


def numbered(key: Array, number: ArrayLike) -> Array:
    """The key of one of several draws; only those that are needed are made."""
    return jax.random.fold_in(key, number)


def _is_linear(node: Any) -> bool:
    return isinstance(node, eqx.nn.Linear)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
