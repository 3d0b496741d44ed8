"""Networks and optimizers of the user's: how agents take them, and the names under which they can be saved and loaded.

A network is given by a factory, `factory(observation_shape, outputs, key)`, that returns a module: a pytree whose call
maps one observation to an array of `outputs` numbers. Equinox modules fit as they are.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise.validation import UsageError, lookup

Factory = TypeVar("Factory", bound=Callable[..., Any])

if TYPE_CHECKING:
    NetworkSetting: TypeAlias = str | Callable[..., Any] | None
    OptimizerSetting: TypeAlias = str | optax.GradientTransformation | None
else:  # what a config read from text can hold: registered names; objects are let through by `OWN_PARTS`
    NetworkSetting = str | None
    OptimizerSetting = str | None

OWN_PARTS = ("network", "critic_network", "optimizer")
"""The fields of agents' configs that take an object of the user's, or the name under which it is registered."""
NETWORKS: dict[str, Callable[..., Any]] = {}
OPTIMIZERS: dict[str, optax.GradientTransformation] = {}


def register_network(name: str) -> Callable[[Factory], Factory]:
    """Makes a factory of networks known by name, so that agents with it can be saved, loaded, and made by `train`."""

    def register(factory: Factory) -> Factory:
        NETWORKS[name] = factory
        return factory

    return register


def register_optimizer(name: str, optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Makes an optimizer known by name, as `register_network` does a network."""
    OPTIMIZERS[name] = optimizer
    return optimizer


def find_network(setting: "NetworkSetting") -> Callable[..., Any]:
    """The factory that a setting stands for."""
    factory = lookup("network", setting, NETWORKS) if isinstance(setting, str) else setting
    if not callable(factory):
        raise UsageError(f"network must be a function of (observation_shape, outputs, key), not {setting!r}")
    return factory


def find_optimizer(
    setting: "OptimizerSetting", default: optax.GradientTransformation, max_grad_norm: float | None
) -> optax.GradientTransformation:
    """The optimizer that a setting stands for, or the agent's own, on gradients of at most a norm."""
    chosen: Any = default
    if setting is not None:
        chosen = lookup("optimizer", setting, OPTIMIZERS) if isinstance(setting, str) else setting
    if not isinstance(chosen, optax.GradientTransformation):
        raise UsageError(f"optimizer must be a transformation of optax, such as optax.adamw(1e-3), not {setting!r}")
    return chosen if max_grad_norm is None else optax.chain(optax.clip_by_global_norm(max_grad_norm), chosen)


def part_name(part: Any) -> str | None:
    """The name under which a network or an optimizer is registered."""
    known: Iterator[tuple[str, Any]] = (pair for parts in (NETWORKS, OPTIMIZERS) for pair in parts.items())
    return next((name for name, other in known if other is part), None)


class _Constant(eqx.Module):
    """A leaf of a user's module that is no array, such as an activation, as a node without leaves."""

    value: Any = eqx.field(static=True)


class OwnNetwork(eqx.Module):
    """A user's module whose leaves are all arrays; its other leaves are constants."""

    module: Any

    def __init__(self, module: Any):
        """Takes a module apart."""
        held = [leaf for leaf in jax.tree.leaves(module) if eqx.is_array(leaf) and not eqx.is_inexact_array(leaf)]
        if held:
            raise UsageError(f"a network's arrays must be of floating point, and {held[0].dtype} is not")
        self.module = jax.tree.map(lambda leaf: leaf if eqx.is_array(leaf) else _Constant(leaf), module)

    def __call__(self, *inputs: Array) -> Array:
        is_constant = lambda node: isinstance(node, _Constant)  # noqa: E731
        whole = jax.tree.map(lambda n: n.value if is_constant(n) else n, self.module, is_leaf=is_constant)
        return whole(*inputs)


class OwnQNetwork(eqx.Module):
    """A user's module of Q values, as DQN takes networks."""

    q: OwnNetwork

    def values(self, obs: Array) -> Array:
        """The Q values of a batch."""
        return jax.vmap(self.q)(obs)

    def heads(self, obs: Array) -> tuple[Array, None]:
        """The Q values of a batch; there is no policy head."""
        return self.values(obs), None

    @property
    def behaviour(self) -> OwnNetwork:
        """The network whose greedy action is the policy."""
        return self.q


class OwnActor(eqx.Module):
    """A user's module with tanh at its output: a deterministic policy."""

    network: OwnNetwork

    def __call__(self, x: Array) -> Array:  # [action_size], in [-1, 1]
        return jnp.tanh(self.network(x))


class OwnCritic(eqx.Module):
    """A user's module of (observation, action): Q(s, a)."""

    network: OwnNetwork

    def __call__(self, obs: Array, action: Array) -> Array:  # []
        return jnp.reshape(self.network(obs, action), ())


def make_network(setting: "NetworkSetting", observation_shape: tuple[int, ...], outputs: int, key: Array) -> OwnNetwork:
    """The network that a user's factory makes, once its output has proved to be of the right shape."""
    network = _made(find_network(setting), observation_shape, outputs, key)
    dtype = jnp.uint8 if len(observation_shape) == 3 else jnp.float32
    found = jax.eval_shape(network, jax.ShapeDtypeStruct(observation_shape, dtype)).shape
    if found != (outputs,):
        raise UsageError(
            f"network maps an observation of shape {observation_shape} to {found}, and not to ({outputs},)"
        )
    return network


def make_critic(
    setting: "NetworkSetting", observation_shape: tuple[int, ...], action_size: int, key: Array
) -> OwnCritic:
    """The critic that a user's factory makes; its module takes an observation and an action."""
    critic = OwnCritic(_made(find_network(setting), observation_shape, action_size, key))
    shapes = observation_shape, (action_size,)
    found = jax.eval_shape(critic.network, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)).shape
    if found not in ((), (1,)):
        raise UsageError(f"critic_network maps an observation and an action to {found}, and not to one number")
    return critic


def _made(factory: Callable[..., Any], observation_shape: tuple[int, ...], outputs: int, key: Array) -> OwnNetwork:
    module = factory(observation_shape, outputs, key)
    if not callable(module):
        raise UsageError(f"network must return a module that can be called, and returned {type(module).__name__}")
    return OwnNetwork(module)


def has_layer_norm(network: Any) -> bool:
    """Whether there is a normalising layer of Equinox in a network."""
    kinds = (eqx.nn.LayerNorm, eqx.nn.RMSNorm, eqx.nn.GroupNorm)
    is_norm = lambda node: isinstance(node, kinds)  # noqa: E731
    return any(is_norm(node) for node in jax.tree.leaves(network, is_leaf=is_norm))


def warn_without_layer_norm(setting: "NetworkSetting", policy: Any) -> None:
    """Says why parameter noise wants layer norm, if a user's network has none."""
    if setting is not None and not has_layer_norm(policy):
        warnings.warn(
            "parameter noise on a network without layer norm: equal noise on all weights disturbs layers with larger "
            "activations more (sec. 3 of the paper); put eqx.nn.LayerNorm before each nonlinearity",
            stacklevel=2,
        )


def described(settings: Mapping[str, Any]) -> dict[str, Any]:
    """An agent's settings with parts of the user's by name, or as {"given": what it was} if it is not registered."""
    return {name: _describe(value) if name in OWN_PARTS else value for name, value in settings.items()}


def _describe(part: Any) -> Any:
    if part is None or isinstance(part, str):
        return part
    name = part_name(part)
    return name if name is not None else {"given": getattr(part, "__qualname__", type(part).__name__)}


def given_again(settings: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """The opposite of `described`: parts that were given as objects are those that the caller gives again.

    Raises:
        UsageError: if one is missing.
    """
    found = dict(settings)
    for name in OWN_PARTS:
        if isinstance(found.get(name), Mapping) and parts.get(name) is None:
            what = found[name].get("given")
            raise UsageError(
                f"the agent was made with {name}={what}, which is not registered: pass {name}= to load, or register it"
            )
        if parts.get(name) is not None:
            if name not in found or found[name] is None:
                raise UsageError(f"{name}= was given, and the agent was made without one")
            found[name] = parts[name]
    return found
