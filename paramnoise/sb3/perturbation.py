"""Perturbed linear layers in PyTorch: theta~ = theta + N(0, sigma^2 I), one for all rows of a batch or one for each.

A perturbation is an offset of the weights that lasts for the time of a call, in one of two ways. One for all rows is
folded into weights that take the place of the clean ones. Those of several rows are added to a layer's output, x (W +
offset)' = x W' + x offset', so that several perturbed policies take one forward pass. In both an offset of 0 gives the
clean result to the bit, and its gradient. The clean weights are never written to.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paramnoise.validation import UsageError

LayerTensors = Sequence[tuple[Tensor, Tensor | None]]
"""Of each layer something for its weights, and something for its biases, if it has any."""


class PerturbedLayers:
    """The linear layers of a network, found by type, which can be perturbed for the time of a call."""

    def __init__(self, network: nn.Module):
        """Finds the layers, which stay clean until `use` or `use_rows`."""
        self._layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
        if not self._layers:
            raise UsageError(f"{type(network).__name__} has no torch.nn.Linear layer, so there is nothing to perturb")
        own = [type(layer).__name__ for layer in self._layers if type(layer).forward is not nn.Linear.forward]
        if own:
            raise UsageError(
                f"{own[0]} is a torch.nn.Linear with a forward of its own, which would be bypassed: not taken"
            )
        self._clean = [(layer.weight, layer.bias) for layer in self._layers]
        self._sizes = [
            size for weight, bias in self._clean for size in (weight.numel(), 0 if bias is None else len(bias))
        ]
        self._rows: LayerTensors = ()
        self._forwards = [functools.partial(self._forward_rows, number) for number in range(len(self._layers))]

    def none(self, rows: int) -> Tensor:
        """Perturbations of 0, flat, [rows, parameters]."""
        return torch.zeros(rows, sum(self._sizes), device=self._clean[0][0].device)

    def draw(self, sigma: float, rng: np.random.Generator) -> Tensor:
        """One perturbation N(0, sigma^2 I) of all layers, flat, [parameters]."""
        # NumPy's generator can be pickled, and it gives the same noise on every device.
        normal = torch.from_numpy(rng.standard_normal(sum(self._sizes), dtype=np.float32))
        return sigma * normal.to(self._clean[0][0].device)

    def fold(self, flat: Tensor) -> LayerTensors:
        """For `use`: the weights and biases of now with one perturbation, [parameters], in them."""
        with torch.no_grad():
            return [
                (weight + offset.T, None if bias is None else bias + bias_offset)
                for (weight, bias), (offset, bias_offset) in zip(self._clean, self._split(flat), strict=True)
            ]

    def use(self, folded: LayerTensors) -> None:
        """From now on the layers have these weights and biases, until `restore`."""
        # A layer reads its weights there; to assign them as attributes would take ten times as long.
        for layer, (weight, bias) in zip(self._layers, folded, strict=True):
            layer._parameters["weight"], layer._parameters["bias"] = weight, bias

    def rows(self, flat: Tensor) -> LayerTensors:
        """For `use_rows`, from [rows, parameters]: offsets of weights, and the biases of now with theirs in them."""
        return [
            (offset, None if bias is None else bias + bias_offset)
            for (_, bias), (offset, bias_offset) in zip(self._clean, self._split(flat), strict=True)
        ]

    def use_rows(self, rows: LayerTensors) -> None:
        """From now on each row of a batch has its own perturbation, until `restore`."""
        self._rows = rows
        for layer, forward in zip(self._layers, self._forwards, strict=True):
            vars(layer)["forward"] = forward

    def restore(self) -> None:
        """From now on the layers are clean."""
        self.use(self._clean)
        for layer in self._layers:
            vars(layer).pop("forward", None)

    def _split(self, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Views of flat perturbations, [..., parameters]: for weights, [..., in, out], and for biases, [..., out].

        PyTorch keeps weights as [out, in], but multiplies rows with as many [in, out] several times faster.
        """
        parts, lead = iter(flat.split(self._sizes, -1)), flat.shape[:-1]
        return ((next(parts).view(*lead, *weight.T.shape), next(parts)) for weight, _ in self._clean)

    def _forward_rows(self, number: int, x: Tensor) -> Tensor:
        """A layer on [rows, in], each row with its own perturbation."""
        (weight, _), (offset, bias) = self._clean[number], self._rows[number]
        plain = F.linear(x, weight) if bias is None else torch.addmm(bias, x, weight.t())
        return torch.baddbmm(plain.unsqueeze(1), x.unsqueeze(1), offset).squeeze(1)


def has_layer_norm(network: nn.Module) -> bool:
    """Whether a network has a layer norm anywhere."""
    return any(isinstance(layer, nn.LayerNorm) for layer in network.modules())
