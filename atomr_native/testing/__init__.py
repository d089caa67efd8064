"""Tools for tests of programs that use this library: probes, a manual clock, deterministic schedules.

See docs/actors.md.
"""

from __future__ import annotations

from .._support.options import named_members
from .clock import FakeClock
from .deterministic import Deterministic
from .device import FaultyDevice
from .probe import Probe

__all__ = ["Deterministic", "FakeClock", "FaultyDevice", "Probe"]

named_members(globals(), __all__)
