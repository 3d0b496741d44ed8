import copy

import numpy as np
import pytest
import torch
from torch import nn

from paramnoise.sb3.perturbation import PerturbedLayers
from paramnoise.validation import UsageError

pytestmark = pytest.mark.sb3


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 8, bias=False), nn.Linear(8, 2))


OBS = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32))


def explicit(network: nn.Sequential, flat: torch.Tensor) -> nn.Sequential:
    """A copy whose weights have the perturbation in them."""
    copied, begin = copy.deepcopy(network), 0
    for layer in copied:
        if isinstance(layer, nn.Linear):
            for tensor in layer.parameters():
                own = flat[begin : begin + tensor.numel()].view(tensor.shape[::-1])
                tensor.data += own.T if tensor.ndim == 2 else own
                begin += tensor.numel()
    assert begin == len(flat)
    return copied


def test_a_row_of_a_batch_has_the_output_of_the_network_with_its_own_perturbed_weights(network: nn.Sequential):
    layers, rng = PerturbedLayers(network), np.random.default_rng(1)
    drawn = [layers.draw(0.5, rng) for _ in range(3)]
    layers.use_rows(layers.rows(torch.stack(drawn)))
    together = network(OBS)
    layers.restore()
    for row, flat in enumerate(drawn):
        torch.testing.assert_close(together[row], explicit(network, flat)(OBS[row]), rtol=1e-5, atol=1e-6)
    assert not torch.equal(together[0], network(OBS)[0])


def test_one_perturbation_is_for_all_rows(network: nn.Sequential):
    layers, clean, parameters = PerturbedLayers(network), network(OBS), [*network.parameters()]
    flat = layers.draw(0.5, np.random.default_rng(1))
    expected = explicit(network, flat)(OBS)
    layers.use(layers.fold(flat))
    torch.testing.assert_close(network(OBS), expected, rtol=1e-5, atol=1e-6)
    layers.restore()
    assert torch.equal(network(OBS), clean)
    assert all(ours is theirs for ours, theirs in zip(parameters, network.parameters(), strict=True))


@pytest.mark.parametrize("rows", [1, 3])
def test_no_perturbation_at_all_leaves_every_bit_and_every_gradient(network: nn.Sequential, rows: int):
    obs = OBS[:rows]
    network(obs).square().sum().backward()
    plain, gradients = network(obs), [tensor.grad.clone() for tensor in network.parameters()]
    network.zero_grad()
    layers = PerturbedLayers(network)
    layers.use_rows(layers.rows(layers.none(rows)))
    displaced = network(obs)
    displaced.square().sum().backward()
    assert torch.equal(plain, displaced)
    assert all(map(torch.equal, gradients, (tensor.grad for tensor in network.parameters())))
    layers.restore()
    layers.use(layers.fold(layers.none(1)[0]))
    assert torch.equal(plain, network(obs))


def test_noise_is_normal_with_the_standard_deviation_asked_for():
    flat = PerturbedLayers(nn.Linear(300, 300)).draw(0.3, np.random.default_rng(2))
    assert flat.mean().item() == pytest.approx(0, abs=0.003)
    assert flat.std().item() == pytest.approx(0.3, rel=0.01)


def test_a_network_without_linear_layers_is_refused():
    with pytest.raises(UsageError, match=r"no torch\.nn\.Linear"):
        PerturbedLayers(nn.Conv2d(1, 1, 1))


class Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def test_a_linear_layer_with_a_forward_of_its_own_is_refused_and_not_bypassed():
    with pytest.raises(UsageError, match="Doubled"):
        PerturbedLayers(nn.Sequential(nn.Linear(2, 2), Doubled(2, 2)))
