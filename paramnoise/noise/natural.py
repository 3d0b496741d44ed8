"""Noise as a natural step under a KL bound, for stochastic policies (app. C.3), and the tools of natural steps.

A perturbation is an offset here: a flat vector to add to the parameters (`displace`). On-policy learning needs it as
such, because the gradient goes to the clean parameters through the perturbed ones (app. B).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from paramnoise.noise.perturbation import Where, selected

Policy = TypeVar("Policy")
SCALINGS = ("boundary", "shrink")
"""What may happen to a natural step before the search: see `natural_noise`."""


class NaturalNoise(NamedTuple):
    """A perturbation within a KL bound."""

    offset: Array
    """What to add to the flat parameters; 0 if the search found nothing within the bound."""
    kl: Array
    """The mean KL(perturbed || clean) over the states."""
    backtracks: Array
    """How often the search shrank the step."""
    found: Array
    """Whether the search ended within the bound."""


def displace(policy: Policy, offset: Array) -> Policy:
    """The policy with a flat offset added to its parameters, ready to call."""
    flat, unflatten = ravel_pytree(policy)
    return unflatten(flat + offset)


def perturbed_entries(policy: Any, where: Where | None = None) -> Array:
    """1 for each flat parameter that gets noise, 0 for the others; leaves are chosen as for `perturb`."""
    mask = selected(policy, where)
    return ravel_pytree(jax.tree.map(lambda leaf, take: jnp.full(jnp.shape(leaf), float(take)), policy, mask))[0]


def spherical_noise(key: Array, policy: Any, sigma: ArrayLike, where: Where | None = None) -> Array:
    """An offset N(0, sigma^2 I) on the chosen leaves, 0 on the others."""
    entries = perturbed_entries(policy, where)
    return jnp.asarray(sigma) * entries * jax.random.normal(key, entries.shape)


def natural_noise(
    key: Array,
    policy: Any,
    obs: Array,
    divergence: Callable[[Array, Array], Array],
    *,
    sigma: ArrayLike = 0.01,
    delta: ArrayLike = 0.1,
    scaling: str = "boundary",
    where: Where | None = None,
    outputs: Callable[[Any, Array], Array] | None = None,
    damping: float = 1e-5,
    cg_steps: int = 10,
    shrinkage: float = 0.8,
    max_backtracks: int = 15,
) -> NaturalNoise:
    """Turns spherical noise into a natural step H^-1 sigma epsilon and keeps it within a KL bound (app. C.3).

    H is the Fisher matrix of the clean policy on `obs`, restricted to the chosen leaves.

    Args:
        key: a random key, used once.
        policy: any pytree of parameters; it is not changed.
        obs: the states that Fisher matrix and KL are measured on, [states, ...].
        divergence: distribution parameters of two policies -> KL(first || second) of each state, [states].
        sigma: the standard deviation of epsilon; with `boundary` only whether it is 0 matters.
        delta: the bound on the mean KL(perturbed || clean).
        scaling: `boundary` scales the step to x'Hx = 2 delta, as TRPO scales its own; `shrink` takes it as it is.
            Either way the search then shrinks it until it is within the bound.
        where: chooses the leaves that get noise, as for `perturb`.
        outputs: policy, obs -> distribution parameters of each state; None: the policy is called on each.
        damping: added to the diagonal of H.
        cg_steps: conjugate-gradient steps.
        shrinkage: the factor of one backtrack.
        max_backtracks: steps that the search tries, the first one included.

    Returns:
        The offset, its KL, and how the search went.
    """
    if scaling not in SCALINGS:
        raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}, not {scaling!r}")
    flat, unflatten = ravel_pytree(policy)
    entries = perturbed_entries(policy, where)
    call = outputs or (lambda perturbed, states: jax.vmap(perturbed)(states))

    def distribution(parameters: Array) -> Array:
        return call(unflatten(parameters), obs)

    def mean_kl(values: Array, others: Array) -> Array:
        return jnp.mean(divergence(values, others))

    def product(vector: Array) -> Array:
        return entries * fisher_product(distribution, mean_kl, flat, entries * vector) + damping * vector

    clean = distribution(flat)
    step = conjugate_gradient(product, spherical_noise(key, policy, sigma, where), cg_steps)
    if scaling == "boundary":
        step = step * boundary_scale(step @ product(step), delta)

    def within(fraction: Array) -> tuple[Array, Array]:
        kl = mean_kl(distribution(flat + fraction * step), clean)
        return kl <= delta, kl

    search = backtrack(within, jnp.float32(0), shrinkage, max_backtracks)
    offset = jnp.where(search.found, search.fraction * step, 0.0)
    return NaturalNoise(offset, search.measured, search.backtracks, search.found)


def fisher_product(
    distribution: Callable[[Array], Array],
    divergence: Callable[[Array, Array], Array],
    parameters: Array,
    vector: Array,
) -> Array:
    """The Fisher matrix, averaged over states, times a vector.

    The Hessian of the KL at equality, in Gauss-Newton form: J' M J with J the derivative of the distribution's
    parameters and M the Hessian of the KL in these.

    Args:
        distribution: flat parameters -> distribution parameters, [states, ...].
        divergence: two of these -> their mean KL, a scalar.
        parameters: flat, where the matrix is taken.
        vector: of the same shape.
    """
    values, pullback = jax.vjp(distribution, parameters)
    _, tangent = jax.jvp(distribution, (parameters,), (vector,))
    gradient = jax.grad(lambda others: divergence(jax.lax.stop_gradient(values), others))
    return pullback(jax.jvp(gradient, (values,), (tangent,))[1])[0]


def conjugate_gradient(
    product: Callable[[Array], Array], target: Array, steps: int = 10, tolerance: float = 1e-10
) -> Array:
    """Solves A x = target for a positive definite A that is given as x -> A x.

    `jax.scipy.sparse.linalg.cg` gives the same bits, but multiplies by A once more, for its first guess of 0: an
    update of TRPO then takes 7 % longer.

    Args:
        product: x -> A x.
        target: the right side, a vector.
        steps: iterations at the most.
        tolerance: ends once the squared residual is below this.
    """

    def unsolved(carry: Any) -> Array:
        i, _, _, _, squared = carry
        return (i < steps) & (squared >= tolerance)

    def iterate(carry: Any) -> Any:
        i, x, residual, direction, squared = carry
        image = product(direction)
        length = squared / (direction @ image)
        residual = residual - length * image
        squared_after = residual @ residual
        return i + 1, x + length * direction, residual, residual + squared_after / squared * direction, squared_after

    start = (jnp.int32(0), jnp.zeros_like(target), target, target, target @ target)
    return jax.lax.while_loop(unsolved, iterate, start)[1]


def boundary_scale(curvature: Array, delta: ArrayLike) -> Array:
    """The factor that brings a step x with x'Hx = `curvature` to the boundary x'Hx = 2 delta; 0 for no step at all."""
    return jnp.where(curvature > 0, jnp.sqrt(2 * delta / jnp.where(curvature > 0, curvature, 1.0)), 0.0)


class Search(NamedTuple):
    """Where a backtracking search ended."""

    fraction: Array
    """Of the full step; 0 if nothing was acceptable."""
    measured: Any
    """What was measured there."""
    backtracks: Array
    found: Array


def backtrack(
    try_fraction: Callable[[Array], tuple[Array, Any]], measured_at_0: Any, shrinkage: float, most: int
) -> Search:
    """Tries the fractions 1, shrinkage, shrinkage^2, ... of a step until one is acceptable.

    Args:
        try_fraction: fraction -> whether it is acceptable, and what was measured.
        measured_at_0: what is measured without a step, in case nothing is acceptable.
        shrinkage: the factor of one backtrack.
        most: fractions to try.
    """

    def searching(carry: Any) -> Array:
        tried, _, _, found = carry
        return (tried < most) & ~found

    def next_fraction(carry: Any) -> Any:
        tried, fraction, _, _ = carry
        fraction = jnp.where(tried == 0, 1.0, shrinkage * fraction)
        found, measured = try_fraction(fraction)
        return tried + 1, fraction, measured, found

    start = (jnp.int32(0), jnp.float32(1), measured_at_0, jnp.bool_(False))
    tried, fraction, measured, found = jax.lax.while_loop(searching, next_fraction, start)
    measured = jax.tree.map(lambda there, at_0: jnp.where(found, there, at_0), measured, measured_at_0)
    return Search(jnp.where(found, fraction, 0.0), measured, tried - found, found)
