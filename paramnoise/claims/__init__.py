"""The claims of the paper and of this package as data, and what runs say of each."""

from paramnoise.claims.base import Claim, Outcome, Verdict, judge
from paramnoise.claims.paper import CLAIMS

__all__ = ["CLAIMS", "Claim", "Outcome", "Verdict", "judge"]
