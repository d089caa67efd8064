"""Compiled modules: `sender` (parent side), `lanes` (worker side) and `dlpack`.

They are built from the repository's ``cython/`` folder when the package is installed.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

_MODULES = ("sender", "lanes", "dlpack")


def _explain() -> str:
    """Say why no compiled module is there, and what to do about it."""
    folder = Path(__file__).resolve().parent
    wanted = f"{sys.implementation.cache_tag} ({sys.version.split()[0]})"
    built = sorted(path.name for path in folder.glob("*.so"))
    if built:
        reason = f"it holds {', '.join(built)}, built for another Python"
        remedy = "Install again with this interpreter: `python -m pip install .` in the source tree."
    elif (folder.parent.parent / "CMakeLists.txt").exists():
        reason = "it is a source tree, in which nothing has been compiled"
        remedy = (
            "Run `python -m pip install -e .` there; or, if the package is installed already, start Python "
            "from another folder or as `python -P`, so that the source tree does not hide the installed package."
        )
    else:
        reason = "the installation is incomplete"
        remedy = "Install again: `python -m pip install --force-reinstall atomr-native`."
    return f"{folder} has none of {', '.join(_MODULES)} compiled for {wanted}: {reason}. {remedy}"


if all(find_spec(f"{__name__}.{_module}") is None for _module in _MODULES):
    raise ImportError(_explain(), name=__name__, path=__file__)
