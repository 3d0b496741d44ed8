"""The noise core: parameter space noise for any JAX pytree, independent of our agents.

Perturb a policy (`perturb`, `perturb_each`, `resample`), measure how far the perturbed policy acts from the clean one
(`kl_distance`, `rms_distance`), and keep that distance near a threshold (`adapt`), which may be an epsilon's
(`delta_from_epsilon`, `epsilon_from_delta`). For stochastic policies and on-policy learners: noise as an offset of the
parameters (`displace`), a natural step under a KL bound (`natural_noise`) or spherical (`spherical_noise`).
"""

from paramnoise.noise.distance import delta_from_epsilon, epsilon_from_delta, kl_distance, rms_distance
from paramnoise.noise.natural import NaturalNoise, displace, natural_noise, spherical_noise
from paramnoise.noise.perturbation import perturb, perturb_each, resample, selected
from paramnoise.noise.scale import Scale, adapt, initial_scale

__all__ = [
    "NaturalNoise",
    "Scale",
    "adapt",
    "delta_from_epsilon",
    "displace",
    "epsilon_from_delta",
    "initial_scale",
    "kl_distance",
    "natural_noise",
    "perturb",
    "perturb_each",
    "resample",
    "rms_distance",
    "selected",
    "spherical_noise",
]
