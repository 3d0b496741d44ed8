"""Perturbed linear layers for minibatches to learn from, in which any row has any of several perturbations.

What a row's own offset does is added to a layer's output, x (W + offset)' = x W' + x offset', and to the gradient of
its input. Bags of embeddings compute both without a copy of a matrix for each row, which products of a batch of
matrices would need. With offsets of 0 outputs and gradients are those of the clean layer, to the bit.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paramnoise.sb3.perturbation import PerturbedLayers


class RowPerturbations:
    """Several perturbations of a network's layers, of which each row of a batch has one."""

    def __init__(self, layers: PerturbedLayers, flats: Sequence[Tensor]):
        """Takes the perturbations, [parameters] each; the first of them has number 0."""
        self._layers, self._batch = layers, Batch()
        self._forwards = layers.by_unit(
            functools.partial(_forward, LayerOffsets(layer, weights, biases), self._batch)
            for layer, weights, biases in layers.split(torch.stack([*flats]))
        )

    def use(self, numbers: Tensor) -> None:
        """From now on each row of a batch has the perturbation of its number, [rows], until the layers are restored."""
        self._batch.rows = Rows(numbers)
        self._layers.use(self._forwards)


class Batch:
    """The batch at hand, which all layers look at."""

    rows: "Rows"


class LayerOffsets:
    """The offsets of one layer in several perturbations, by number."""

    def __init__(self, layer: nn.Linear, weights: Tensor, biases: Tensor):
        """Takes the layer's part of flat perturbations, [count, parameters]."""
        matrices = weights.view(-1, *layer.weight.shape)
        self.layer, self.biases = layer, biases.contiguous()
        self.weights = Table(matrices.transpose(1, 2))
        self.transposed = Table(matrices)


class Table:
    """Matrices one below the other."""

    def __init__(self, matrices: Tensor):
        """Takes the matrices, [count, size, other]."""
        count, self.size, other = matrices.shape
        self.lines = matrices.reshape(-1, other)
        self.places = torch.arange(count * self.size, device=matrices.device).view(count, self.size)
        """Where the lines of each matrix are."""


class Rows:
    """The number of the matrix that each row of a batch has."""

    def __init__(self, numbers: Tensor):
        """Takes the numbers, [rows]."""
        self.numbers = numbers
        self._places: dict[int, tuple[Tensor, Tensor]] = {}

    def multiply(self, x: Tensor, table: Table) -> Tensor:
        """Multiplies each row, [rows, size], with the matrix of its number: [rows, other].

        A bag of embeddings is a weighted sum of a table's lines: a row times a matrix.
        """
        found = self._places.get(table.size)
        if found is None:
            found = self._places[table.size] = self._find(table)
        places, begins = found
        return torch.embedding_bag(table.lines, places, begins, per_sample_weights=x.reshape(-1), mode=0)[0]

    def _find(self, table: Table) -> tuple[Tensor, Tensor]:
        """The places of the lines of all rows' matrices, one row after the other, and where each row's begin."""
        places = table.places.index_select(0, self.numbers).view(-1)
        return places, _begins(len(self.numbers), table.size, places.device)


@functools.lru_cache(maxsize=64)
def _begins(rows: int, size: int, device: torch.device) -> Tensor:
    """Where the lines of each row of a batch begin, [rows]; batches need the same few again and again."""
    return torch.arange(0, rows * size, size, device=device)


def _forward(offsets: LayerOffsets, batch: Batch, x: Tensor) -> Tensor:
    """A layer on [rows, in]; its weights are always those of now."""
    rows = batch.rows  # gradients are taken with these, whatever batch is next
    weight, bias = offsets.layer.weight, offsets.layer.bias  # a parametrization makes them anew
    outputs = F.linear(x, weight, bias)
    displaced = outputs.detach()  # the same memory: what is added is no part of the graph, which takes less time
    displaced += rows.multiply(x.detach(), offsets.weights)
    if bias is not None:
        displaced += offsets.biases.index_select(0, rows.numbers)
    if x.requires_grad and outputs.requires_grad:  # without gradients the outputs have none
        _add_to_gradient(x, outputs, lambda gradient: rows.multiply(gradient, offsets.transposed))
    return outputs


def _add_to_gradient(x: Tensor, outputs: Tensor, part: Callable[[Tensor], Tensor]) -> None:
    """Lets the gradient of x have another part, which is made from that of the outputs.

    Two hooks take less time than a torch.autograd.Function. Outputs that nothing is learned from have no gradient.
    """
    arrived: list[Tensor] = []
    outputs.grad_fn.register_prehook(arrived.extend)  # after all hooks of the outputs themselves
    x.register_hook(lambda gradient: gradient + part(arrived.pop()) if arrived else gradient)
