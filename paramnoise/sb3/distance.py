"""The distances of `paramnoise.noise` in PyTorch, and that of Gaussian policies (app. C).

Stable-Baselines3's users have PyTorch at work: to measure in JAX would start a second framework on their device. The
tests hold every function here to its twin in JAX, on the same numbers.
"""

import math

import torch
from torch import Tensor


def kl_distance(logits: Tensor, perturbed_logits: Tensor) -> Tensor:
    """The mean of KL(softmax(logits) || softmax(perturbed_logits)) over states (app. C.1, eq. 9), for Q values."""
    log_p, log_q = torch.log_softmax(logits, -1), torch.log_softmax(perturbed_logits, -1)
    divergence = torch.sum(log_p.exp() * (log_p - log_q), -1)
    return divergence.clamp(min=0).mean()  # rounding may fall below 0


def rms_distance(actions: Tensor, perturbed_actions: Tensor) -> Tensor:
    """The root mean square difference over states and action dimensions (app. C.2, eq. 10), for deterministic policies.

    Against actions with N(0, sigma^2) added it is sigma, so delta = sigma matches `NormalActionNoise`, which
    Stable-Baselines3 adds to actions between -1 and 1, too.
    """
    return (actions - perturbed_actions).square().mean().sqrt()


def categorical_distance(logits: Tensor, perturbed_logits: Tensor) -> Tensor:
    """The mean KL(perturbed || clean), in that order (app. C.3), for policies that draw from a softmax."""
    return kl_distance(perturbed_logits, logits)


def gaussian_distance(values: Tensor, perturbed_values: Tensor) -> Tensor:
    """The mean KL(perturbed || clean), in that order (app. C.3), for independent Gaussians.

    A tanh over both, as SAC and TQC have it, changes no KL.

    Args:
        values: the clean policy's means and log standard deviations, [states, 2, dimensions].
        perturbed_values: the perturbed policy's, the same shape.
    """
    (mean, log_std), (other_mean, other_log_std) = perturbed_values.unbind(-2), values.unbind(-2)
    log_ratio = other_log_std - log_std
    squares = (-2 * log_ratio).exp() + ((mean - other_mean) * (-other_log_std).exp()).square()
    return torch.sum(log_ratio + 0.5 * (squares - 1), -1).clamp(min=0).mean()


def delta_from_epsilon(epsilon: float, num_actions: int) -> float:
    """The KL between a greedy and an epsilon-greedy policy: -log(1 - epsilon + epsilon / n) (app. C.1)."""
    return -math.log1p(epsilon / num_actions - epsilon)
