"""Actors for serving models: batches, hot swaps, cascades, fair shares, mixtures of experts.

Small components over any actors or functions; see docs/actors.md.
"""

from __future__ import annotations

from .._support.options import named_members
from .batching import Batcher, WrongCount
from .cascade import Cascade, CascadeResult
from .experts import Mixture
from .fair_share import FairShare, ForTenant
from .hot_swap import HotSwap, Swap

__all__ = [
    "Batcher",
    "Cascade",
    "CascadeResult",
    "FairShare",
    "ForTenant",
    "HotSwap",
    "Mixture",
    "Swap",
    "WrongCount",
]

named_members(globals(), __all__)
