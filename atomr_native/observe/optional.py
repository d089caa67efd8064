"""Optional libraries."""

from __future__ import annotations

import importlib
from typing import Any

from .._support.extras import how_to_install
from ..errors import Unsupported

__all__ = ["need"]


def need(module: str, package: str, what: str) -> Any:
    """Import a module, or raise `Unsupported` with how to install it.

    Parameters
    ----------
    module, package : str
        Name of the module, and of its pip package.
    what : str
        The feature that needs it, for the error.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        why = str(error)
    raise Unsupported(f"{what} needs {module} ({why}): pip install {package}, or {how_to_install('observe')}")
