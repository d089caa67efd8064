"""Libraries that are used where they are installed."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import Unsupported

__all__ = ["need"]


def need(module: str, package: str, what: str) -> Any:
    """Import a module, or raise `Unsupported` with how to install it.

    Parameters
    ----------
    module, package : str
        Its name, and that of what pip installs.
    what : str
        What needs it, for the error.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        why = str(error)
    raise Unsupported(f"{what} needs {module} ({why}): pip install {package}, or pip install 'atomr-native[observe]'")
