"""The package's extras: how to install a missing one."""

from __future__ import annotations

__all__ = ["CUDA", "command", "how_to_install"]

#: The extras that bring NVIDIA's libraries, the preferred one first.
CUDA = ("cu13", "cu12")


def command(extra: str) -> str:
    """Return the command that installs an extra, for a shell in a clone of the repository."""
    return f"pip install '.[{extra}]'"


def how_to_install(*extras: str) -> str:
    """Return how to install a missing package, for an error.

    Parameters
    ----------
    *extras : str
        The extras that bring the package, each alone; the preferred one first.  For two, the second one is for a driver
        of CUDA 12.
    """
    text = f"{command(extras[0])} in a clone of atomr_native"
    return text + "".join(f", or '.[{other}]' with a driver of CUDA 12" for other in extras[1:])
