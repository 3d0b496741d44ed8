"""Perturbed linear layers in PyTorch: theta~ = theta + N(0, sigma^2 I), one for all rows of a batch or one for each.

A perturbation is an offset of the weights that lasts for the time of a call, in one of two ways. One for all rows is
folded into weights that take the place of the clean ones. Those of several rows are added to a layer's output, x (W +
offset)' = x W' + x offset', so that several perturbed policies take one forward pass. In both an offset of 0 gives the
clean result to the bit. The clean weights are never written to.

Here environments act, with a row for each perturbation, and a product of one batch of matrices is fastest. Minibatches
to learn from, with any perturbation in any row, are in `rows`.
"""

import functools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paramnoise.validation import UsageError

Forward = Callable[[Tensor], Tensor]
Forwards = Sequence[Forward]
"""What modules do in place of their own forward, a function for each."""


class OwnOffsets:
    """One layer for a batch with a row for each of several perturbations."""

    def __init__(self, layer: nn.Linear, count: int):
        """Begins with offsets of 0."""
        self._layer = layer
        self._weights = layer.weight.new_zeros(count, layer.in_features, layer.out_features)
        self._bias_offsets = layer.weight.new_zeros(count, layer.out_features)
        self._biases = torch.zeros_like(self._bias_offsets)
        self.update()

    def replace(self, number: int, weight: Tensor, bias: Tensor) -> None:
        """Puts another offset in the place of one; `update` makes the layer have it."""
        self._weights[number] = weight.view_as(self._layer.weight).t()
        if self._layer.bias is not None:
            self._bias_offsets[number] = bias

    def update(self) -> None:
        """Takes the layer's weight and bias of now."""
        self._clean = self._layer.weight.detach().t()
        if self._layer.bias is not None:
            torch.add(self._layer.bias.detach(), self._bias_offsets, out=self._biases)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output without a gradient, [count, in] to [count, out]; row n has offset n."""
        outputs = torch.addmm(self._biases, x, self._clean)
        outputs.unsqueeze(1).baddbmm_(x.unsqueeze(1), self._weights)  # in place: one operation less
        return outputs


class PerturbedLayers:
    """The linear layers of a network, found by type, which can be perturbed for the time of a call."""

    def __init__(self, network: nn.Module, beside: nn.Module | None = None):
        """Finds the layers, which stay clean until `use`.

        Args:
            network: what is perturbed.
            beside: what is called together with it and stays clean; calls of its layers take less time, too.
        """
        self._layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
        if not self._layers:
            raise UsageError(f"{type(network).__name__} has no torch.nn.Linear layer, so there is nothing to perturb")
        own = [type(layer).__name__ for layer in self._layers if type(layer).forward is not nn.Linear.forward]
        if own:
            raise UsageError(
                f"{own[0]} is a torch.nn.Linear with a forward of its own, which would be bypassed: not taken"
            )
        self._sizes = [
            size
            for layer in self._layers
            for size in (layer.weight.numel(), 0 if layer.bias is None else layer.out_features)
        ]
        self._device = self._layers[0].weight.device
        self._units = _units(network) + ([] if beside is None else _units(beside))
        self._attributes = [vars(unit) for unit, _ in self._units]

    def none(self) -> Tensor:
        """A perturbation of 0, flat, [parameters]."""
        return torch.zeros(sum(self._sizes), device=self._device)

    def draw(self, sigma: float, rng: np.random.Generator) -> Tensor:
        """A perturbation N(0, sigma^2 I) of all layers, flat, [parameters]."""
        # NumPy's generator can be pickled, and it gives the same noise on every device.
        normal = torch.from_numpy(rng.standard_normal(sum(self._sizes), dtype=np.float32))
        return sigma * normal.to(self._device)

    def folded(self, flat: Tensor) -> Forwards:
        """For `use`: the weights and biases of now with one perturbation, [parameters], in them."""
        return self.by_unit(
            functools.partial(
                F.linear,
                weight=layer.weight + offset.view_as(layer.weight),
                bias=None if layer.bias is None else layer.bias + bias_offset,
            )
            for layer, offset, bias_offset in self.split(flat)
        )

    def use(self, forwards: Forwards) -> None:
        """From now on the layers do this, until `restore`."""
        # A module that is called looks there first. To assign a parameter would change what `parameters` says.
        for attributes, forward in zip(self._attributes, forwards, strict=True):
            attributes["forward"] = forward

    def restore(self) -> None:
        """From now on the layers are clean."""
        for attributes in self._attributes:
            attributes.pop("forward", None)

    def by_unit(self, of_layers: Iterable[Forward]) -> Forwards:
        """What the units do, where the linear layers in them do this."""
        forwards: dict[nn.Module, Forward] = dict(zip(self._layers, of_layers, strict=True))
        chains = [[forwards.get(layer) or layer.forward for layer in layers] for _, layers in self._units]
        return [chain[0] if len(chain) == 1 else functools.partial(_in_turn, chain) for chain in chains]

    def split(self, flat: Tensor) -> list[tuple[nn.Linear, Tensor, Tensor]]:
        """The layers, each with its part of flat perturbations, [..., parameters]: for weights and for biases."""
        parts = flat.split(self._sizes, -1)
        return list(zip(self._layers, parts[::2], parts[1::2], strict=True))


class ActingPerturbations:
    """The perturbations that environments act with, one for each, for whole episodes."""

    def __init__(self, layers: PerturbedLayers, num_envs: int):
        """Begins with perturbations of 0."""
        self._layers, self._is_one = layers, num_envs == 1
        self._flat = layers.none()
        self._own = [] if self._is_one else [OwnOffsets(layer, num_envs) for layer, *_ in layers.split(self._flat)]
        self._forwards: Forwards = () if self._is_one else layers.by_unit(own.forward for own in self._own)
        self._is_stale = True

    def begin_episode(self, env: int, flat: Tensor) -> None:
        """From now on an environment acts with another perturbation."""
        self._flat, self._is_stale = flat, True
        for own, (_, *offsets) in zip(self._own, self._layers.split(flat), strict=False):  # of one there are none
            own.replace(env, *offsets)

    def weights_changed(self) -> None:
        """After learning: what a perturbation was folded into is out of date."""
        self._is_stale = True

    def use(self) -> None:
        """From now on the layers have a row for each environment, with its perturbation, until they are restored."""
        if self._is_stale:
            self._is_stale = False
            if self._is_one:
                with torch.no_grad():
                    self._forwards = self._layers.folded(self._flat)
            for own in self._own:
                own.update()
        self._layers.use(self._forwards)


def _units(network: nn.Module) -> list[tuple[nn.Module, list[nn.Module]]]:
    """The modules whose forward a perturbation takes the place of, each with the layers that it calls.

    A sequence of layers is one of them, as calls of its layers one by one, which PyTorch makes, take long beside what a
    perturbation adds. A sequence with hooks in it, or with modules of several layers, is left to PyTorch.
    """
    found: list[tuple[nn.Module, list[nn.Module]]] = []
    in_sequences: set[nn.Module] = set()
    for module in network.modules():  # a sequence comes before its layers
        if type(module) is nn.Sequential and all(map(_is_simple, module)):
            in_sequences.update(module)
            if any(isinstance(layer, nn.Linear) for layer in module):
                found.append((module, list(module)))
        elif isinstance(module, nn.Linear) and module not in in_sequences:
            found.append((module, [module]))
    return found


def _is_simple(layer: nn.Module) -> bool:
    """Whether a call of a layer is its forward and nothing else."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return not any(hooks) and not any(True for _ in layer.children())


def _in_turn(forwards: Forwards, x: Tensor) -> Tensor:
    for forward in forwards:
        x = forward(x)
    return x


def has_layer_norm(network: nn.Module) -> bool:
    """Whether a network has a layer norm anywhere."""
    return any(isinstance(layer, nn.LayerNorm) for layer in network.modules())
