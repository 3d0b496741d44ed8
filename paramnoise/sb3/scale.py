"""The adaptive scale of the noise for Stable-Baselines3: its settings, and all of it that changes (sec. 3, app. C)."""

import dataclasses
import math

import numpy as np

from paramnoise.noise.scale import BOUNDS
from paramnoise.validation import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaling:
    """How sigma follows the distance; None stands for what suits the algorithm."""

    delta: float | None = None
    """The distance in action space to keep."""
    sigma: float | None = None
    """The standard deviation of the noise before the first adaptation."""
    alpha: float = 1.01
    """The factor by which one adaptation changes sigma; with 1 sigma is fixed, and the distance is measured alone."""
    adapt_every: int = 50
    """Calls of env.step, each a step of every environment, between adaptations."""

    def __post_init__(self) -> None:
        require(self.delta is None or self.delta > 0, "delta", self.delta, "above 0")
        require(self.sigma is None or self.sigma >= 0, "sigma", self.sigma, "at least 0")
        require(self.alpha >= 1, "alpha", self.alpha, "at least 1")
        require(self.adapt_every >= 1, "adapt_every", self.adapt_every, "at least 1")


@dataclasses.dataclass
class NoiseState:
    """All of the noise that is saved with a model, which keeps it as `model.parameter_noise`."""

    sigma: float
    """The standard deviation now."""
    rng: np.random.Generator
    """Where all noise comes from: neither PyTorch's nor NumPy's own generator is touched. NumPy's can be pickled, and
    it gives the same noise on every device."""
    adaptations: int = 0
    """How often sigma was adapted."""
    distance: float = math.nan
    """The last measured distance between clean and perturbed policy; NaN before the first."""
    delta: float = math.nan
    """The threshold that it was compared with."""

    def adapt(self, distance: float, delta: float, alpha: float) -> None:
        """Takes in a measured distance, and moves sigma by it."""
        self.sigma = adapted(self.sigma, distance, delta, alpha)
        self.adaptations += 1
        self.distance, self.delta = distance, delta

    def report(self) -> dict[str, float]:
        """What is logged, by key."""
        values = {"sigma": self.sigma, "distance": self.distance, "delta": self.delta}
        return {f"rollout/param_noise_{name}": value for name, value in values.items()}


def adapted(sigma: float, distance: float, delta: float, alpha: float) -> float:
    """Sigma after one adaptation: more while the distance is at most delta, less otherwise (eq. 1 and 8)."""
    lowest, highest = BOUNDS
    return min(max(sigma * (alpha if distance <= delta else 1 / alpha), lowest), highest)
