"""The option of requests whose plans are chosen by measurements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InvalidRequest

__all__ = ["tuning_of"]


def tuning_of(request: Any) -> str:
    """Check whether a request's plan is tuned; return it as specifications have it."""
    given = request.tune
    if not isinstance(given, bool | np.bool) and not (isinstance(given, str) and given == "known"):
        raise InvalidRequest(f"tune={given!r}; allowed: False, True, 'known'")
    return "known" if isinstance(given, str) else "measure" if given else ""
