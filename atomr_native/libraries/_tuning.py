"""The option of requests whose plans are chosen by measurements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InvalidRequest

__all__ = ["tuning_of"]


def tuning_of(request: Any, *further: str) -> str:
    """Check whether a request's plan is tuned; return it as specifications have it.

    Names are ``"known"`` and `further` ones.
    """
    given, names = request.tune, ("known", *further)
    if not isinstance(given, bool | np.bool) and not (isinstance(given, str) and given in names):
        raise InvalidRequest(f"tune={given!r}; allowed: False, True, {', '.join(map(repr, names))}")
    return str(given) if isinstance(given, str) else "measure" if given else ""
