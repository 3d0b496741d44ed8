import copy
import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from paramnoise.sb3.perturbation import ActingPerturbations, PerturbedLayers
from paramnoise.sb3.rows import RowPerturbations
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
                tensor.data += flat[begin : begin + tensor.numel()].view_as(tensor)
                begin += tensor.numel()
    assert begin == len(flat)
    return copied


def test_a_row_of_a_batch_has_the_output_of_the_network_with_its_own_perturbed_weights(network: nn.Sequential):
    layers, rng, numbers = PerturbedLayers(network), np.random.default_rng(1), [1, 0, 1]
    drawn = [layers.draw(0.5, rng) for _ in range(2)]
    RowPerturbations(layers, drawn).use(torch.tensor(numbers))
    together = network(OBS)
    layers.restore()
    for row, number in enumerate(numbers):
        torch.testing.assert_close(together[row], explicit(network, drawn[number])(OBS[row]), rtol=1e-5, atol=1e-6)
    assert not torch.equal(together[0], network(OBS)[0])


def test_gradients_by_row_are_those_of_the_networks_with_perturbed_weights(network: nn.Sequential):
    layers, rng = PerturbedLayers(network), np.random.default_rng(1)
    drawn, obs = [layers.draw(0.5, rng) for _ in range(3)], OBS.clone().requires_grad_()
    RowPerturbations(layers, drawn).use(torch.arange(3))
    network(obs).square().sum().backward()
    layers.restore()
    copies, other = [explicit(network, flat) for flat in drawn], OBS.clone().requires_grad_()
    torch.stack([copied(row) for copied, row in zip(copies, other, strict=True)]).square().sum().backward()
    torch.testing.assert_close(obs.grad, other.grad, rtol=1e-4, atol=1e-5)
    for ours, *theirs in zip(network.parameters(), *(copied.parameters() for copied in copies), strict=True):
        torch.testing.assert_close(ours.grad, sum(each.grad for each in theirs), rtol=1e-4, atol=1e-5)


def test_inputs_have_their_gradient_where_nothing_is_learned_from_the_perturbed_outputs(network: nn.Sequential):
    layers, obs = PerturbedLayers(network), OBS.clone().requires_grad_()
    RowPerturbations(layers, [layers.none()] * 3).use(torch.arange(3))
    network(obs)
    layers.restore()
    obs.square().sum().backward()
    assert torch.equal(obs.grad, 2 * OBS)


def test_without_gradients_inputs_may_still_be_ones_that_have_them(network: nn.Sequential):
    layers = PerturbedLayers(network)
    RowPerturbations(layers, [layers.draw(0.5, np.random.default_rng(1))] * 2).use(torch.tensor([0, 1, 0]))
    learned = network(OBS.clone().requires_grad_())
    with torch.no_grad():
        assert torch.equal(network(OBS.clone().requires_grad_()), learned)
    layers.restore()


def test_weights_that_a_parametrization_makes_are_those_of_each_minibatch(network: nn.Sequential):
    nn.utils.parametrizations.spectral_norm(network[0])
    layers = PerturbedLayers(network)
    perturbations = RowPerturbations(layers, [layers.draw(0.5, np.random.default_rng(1))] * 2)
    made_from = network[0].parametrizations.weight.original
    for _ in range(2):  # a graph is gone after its gradients
        made_from.grad = None
        perturbations.use(torch.tensor([0, 1, 0]))
        network(OBS).sum().backward()
        assert made_from.grad.isfinite().all()
        assert made_from.grad.any()
    layers.restore()


def test_two_minibatches_may_be_evaluated_before_gradients_are_taken(network: nn.Sequential):
    layers, rng = PerturbedLayers(network), np.random.default_rng(1)
    by_row, gradients = RowPerturbations(layers, [layers.draw(0.5, rng) for _ in range(3)]), []
    batches = torch.tensor([0, 1, 2]), torch.tensor([2, 2, 0])

    def loss(numbers: torch.Tensor) -> torch.Tensor:
        by_row.use(numbers)
        return network(OBS).square().sum()

    for losses in ([loss(batches[0]) + loss(batches[1])], map(loss, batches)):
        network.zero_grad()
        for each in losses:
            each.backward()
        gradients.append([tensor.grad for tensor in network.parameters()])
    layers.restore()
    for together, in_turn in zip(*gradients, strict=True):
        torch.testing.assert_close(together, in_turn, rtol=1e-4, atol=1e-5)


def test_one_perturbation_is_for_all_rows(network: nn.Sequential):
    layers, clean, parameters = PerturbedLayers(network), network(OBS), [*network.parameters()]
    flat = layers.draw(0.5, np.random.default_rng(1))
    expected = explicit(network, flat)(OBS)
    layers.use(layers.folded(flat))
    torch.testing.assert_close(network(OBS), expected, rtol=1e-5, atol=1e-6)
    assert all(ours is theirs for ours, theirs in zip(parameters, network.parameters(), strict=True))
    layers.restore()
    assert torch.equal(network(OBS), clean)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_an_environment_acts_with_the_perturbation_of_its_episode_on_the_weights_of_now(
    network: nn.Sequential, num_envs: int
):
    layers, rng = PerturbedLayers(network), np.random.default_rng(1)
    acting, obs = ActingPerturbations(layers, num_envs), OBS[:num_envs]
    drawn = [layers.draw(0.5, rng) for _ in range(num_envs)]

    def check() -> None:
        acting.use()
        together = network(obs)
        layers.restore()
        for row, flat in enumerate(drawn):
            torch.testing.assert_close(together[row], explicit(network, flat)(obs[row]), rtol=1e-5, atol=1e-6)

    for env, flat in enumerate(drawn):
        acting.begin_episode(env, flat)
    check()
    with torch.no_grad():
        network[0].weight += 1.0
    acting.weights_changed()
    check()
    drawn[-1] = layers.draw(0.5, rng)
    acting.begin_episode(num_envs - 1, drawn[-1])
    check()


@pytest.mark.parametrize("rows", [1, 3])
def test_no_perturbation_at_all_leaves_every_bit_and_every_gradient(network: nn.Sequential, rows: int):
    obs = OBS[:rows]
    network(obs).square().sum().backward()
    plain, gradients = network(obs), [tensor.grad.clone() for tensor in network.parameters()]
    layers = PerturbedLayers(network)
    by_row = RowPerturbations(layers, [layers.none()] * rows)
    for use in (lambda: by_row.use(torch.arange(rows)), lambda: layers.use(layers.folded(layers.none()))):
        network.zero_grad()
        use()
        displaced = network(obs)
        displaced.square().sum().backward()
        assert torch.equal(plain, displaced)
        assert all(map(torch.equal, gradients, (tensor.grad for tensor in network.parameters())))


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


def test_perturbations_that_are_no_longer_needed_free_their_memory_at_once(network: nn.Sequential):
    layers = PerturbedLayers(network)
    by_row = RowPerturbations(layers, [layers.none()] * 3)
    by_row.use(torch.arange(3))
    network(OBS).sum().backward()
    layers.restore()
    held = weakref.ref(by_row)
    gc.disable()  # a cycle of references would be found too late: a rollout's perturbations may take gigabytes
    try:
        del by_row
        assert held() is None
    finally:
        gc.enable()
