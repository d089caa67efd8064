"""The namespace that array-api-tests imports, of a device that lives as long as the tests; see suite.py."""

from __future__ import annotations

import os
from typing import Any

import hypothesis

import atomr_native as an


def _profile(name: str, *parents: Any, **options: Any) -> None:
    """Register a profile without a search for smaller examples, which takes minutes for each failure that is known."""
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    _REGISTER(name, *parents, phases=phases, **options)


_REGISTER = hypothesis.settings.register_profile
type.__setattr__(hypothesis.settings, "register_profile", staticmethod(_profile))

system = an.System(isolation=os.environ.get("ISOLATION", "process"))
xp = system.device(os.environ.get("DEVICE", "host")).empty(0).__array_namespace__()
