"""Perturbed linear layers in PyTorch: theta~ = theta + N(0, sigma^2 I), one for all rows of a batch or one for each.

A perturbation is an offset of the weights that lasts for the time of a call, in one of two ways. One for all rows is
folded into weights that take the place of the clean ones. Those of several rows are added to a layer's output, x (W +
offset)' = x W' + x offset', so that several perturbed policies take one forward pass. In both an offset of 0 gives the
clean result to the bit. The clean weights are never written to.
"""

import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from paramnoise.validation import UsageError

LayerTensors = Sequence[tuple[Tensor, Tensor | None]]
"""Of each layer something for its weights, and something for its biases, if it has any."""


class PerturbedLayers:
    """The linear layers of a network, found by type, which can be perturbed for the time of a call."""

    row_offsets: LayerTensors | None = None
    """What rows are displaced by, as `split` gives it; None: they are not."""

    def __init__(self, network: nn.Module, has_rows: bool):
        """Finds the layers; they are clean at first.

        Args:
            network: any.
            has_rows: whether rows of a batch will have perturbations of their own: hooks see to it, until `remove`.
        """
        self._layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
        if not self._layers:
            raise UsageError(f"{type(network).__name__} has no torch.nn.Linear layer, so there is nothing to perturb")
        self._clean = [(layer.weight, layer.bias) for layer in self._layers]
        self._sizes = [
            size for weight, bias in self._clean for size in (weight.numel(), 0 if bias is None else len(bias))
        ]
        self._hooks = [
            layer.register_forward_hook(functools.partial(self._displace, number))
            for number, layer in enumerate(self._layers)
            if has_rows
        ]

    def none(self, rows: int) -> Tensor:
        """Perturbations of 0, flat, [rows, parameters]."""
        return torch.zeros(rows, sum(self._sizes), device=self._clean[0][0].device)

    def draw(self, sigma: float, rng: np.random.Generator) -> Tensor:
        """One perturbation N(0, sigma^2 I) of all layers, flat, [parameters]."""
        # NumPy's generator can be pickled, and it gives the same noise on every device.
        normal = torch.from_numpy(rng.standard_normal(sum(self._sizes), dtype=np.float32))
        return sigma * normal.to(self._clean[0][0].device)

    def split(self, flat: Tensor) -> LayerTensors:
        """Views of flat perturbations, [..., parameters]: of weights, [..., in, out], and of biases, [..., out].

        PyTorch keeps weights as [out, in], but multiplies rows with as many [in, out] several times faster.
        """
        parts, lead = iter(flat.split(self._sizes, -1)), flat.shape[:-1]
        views = [(next(parts).view(*lead, *weight.T.shape), next(parts)) for weight, _ in self._clean]
        return [
            (weight, None if bias is None else offset)
            for (weight, offset), (_, bias) in zip(views, self._clean, strict=True)
        ]

    def fold(self, flat: Tensor) -> LayerTensors:
        """The weights and biases of now with one perturbation, [parameters], in them."""
        with torch.no_grad():
            return [
                (weight + offset.T, None if bias is None else bias + bias_offset)
                for (weight, bias), (offset, bias_offset) in zip(self._clean, self.split(flat), strict=True)
            ]

    def use(self, folded: LayerTensors) -> None:
        """Puts perturbed weights in the place of the clean ones, until `restore`."""
        # A layer reads its weights there; to assign them as attributes would take ten times as long.
        for layer, (weight, bias) in zip(self._layers, folded, strict=True):
            layer._parameters["weight"], layer._parameters["bias"] = weight, bias

    def restore(self) -> None:
        """Makes the layers clean."""
        self.row_offsets = None
        self.use(self._clean)

    def remove(self) -> None:
        """Leaves the layers as they were found."""
        self.restore()
        for hook in self._hooks:
            hook.remove()

    def _displace(self, number: int, layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor | None:
        """What PyTorch calls after a layer: the output of each row, displaced; None: as it is."""
        if self.row_offsets is None:
            return None
        weight, bias = self.row_offsets[number]
        displaced = torch.baddbmm(output.unsqueeze(1), inputs[0].unsqueeze(1), weight).squeeze(1)
        return displaced if bias is None else displaced + bias


def has_layer_norm(network: nn.Module) -> bool:
    """Whether a network has a layer norm anywhere."""
    return any(isinstance(layer, nn.LayerNorm) for layer in network.modules())
