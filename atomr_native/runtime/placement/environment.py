"""The command line and the environment of a worker process.

The worker must find the same package that runs here: in an editable install, a plain checkout, a notebook, under
``python -c``, and after the program changed ``sys.path`` or the working directory.  It must not find more: its start
directory stays out of its path.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ...errors import InvalidRequest, Unsupported

__all__ = ["PREFIX_VARIABLE", "WORKER_MODULE", "worker_command", "worker_environment"]

#: The module that a worker process runs.
WORKER_MODULE: Final = "atomr_native.worker"
#: A command put in front of the worker's command: ``gdb -args``, ``nsys profile``, ``compute-sanitizer``.
PREFIX_VARIABLE: Final = "ATOMR_NATIVE_WORKER_PREFIX"

_NEEDED: Final = ("ml_dtypes", "numpy")


def worker_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for workers, taken once when a System is made.

    Parameters
    ----------
    base
        The base environment; by default this process's current one.
    """
    environment = dict(os.environ if base is None else base)
    given = environment.pop("PYTHONPATH", "")
    if sys.flags.ignore_environment:  # python -E or -I: variables that this process ignores, its worker ignores, too
        given = ""
        environment.pop("PYTHONHOME", None)
    # An empty entry would mean the worker's start directory; a relative one means the current directory.
    path = [os.path.abspath(entry) for entry in given.split(os.pathsep) if entry]
    path = _with_ours(path)
    if path:
        environment["PYTHONPATH"] = os.pathsep.join(path)
    environment["PYTHONFAULTHANDLER"] = "1"
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def _with_ours(path: list[str]) -> list[str]:
    """Put directories in front of `path` until a fresh interpreter finds the modules of this one."""
    installed = _site_directories()
    for name in _NEEDED:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if file is not None:
            path = _in_front(path, installed, name, str(Path(file).resolve().parents[1]))
    ours = str(Path(__file__).resolve().parents[3])
    return _in_front(path, installed, "atomr_native", ours)


def _in_front(path: list[str], installed: list[str], name: str, wanted: str) -> list[str]:
    for entry in [*path, *installed]:
        if os.path.isdir(os.path.join(entry, name)) or os.path.isfile(os.path.join(entry, f"{name}.py")):
            if os.path.realpath(entry) == wanted:
                return path
            break
    return [wanted, *(entry for entry in path if os.path.realpath(entry) != wanted)]


def _site_directories() -> list[str]:
    directories: list[str] = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        directories.append(site.getusersitepackages())
    return directories


def worker_command(
    environment: Mapping[str, str], options: Iterable[str], *, module: str = WORKER_MODULE
) -> tuple[list[str], bool]:
    """Return the command of a worker process, and whether it has a prefix.

    Raises
    ------
    Unsupported
        If this process is not an ordinary Python interpreter that can start another one.
    InvalidRequest
        If the prefix variable cannot be split into words.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        raise Unsupported(
            f"isolation='process' needs a Python interpreter to start, and this program has none "
            f"(sys.executable is {sys.executable!r}); use isolation='thread'"
        )
    try:
        prefix = shlex.split(environment.get(PREFIX_VARIABLE, ""))
    except ValueError as error:
        raise InvalidRequest(f"{PREFIX_VARIABLE}={environment[PREFIX_VARIABLE]!r}: {error}") from None
    flags = ["-P"]
    if sys.flags.no_user_site:
        flags.append("-s")
    if sys.flags.dont_write_bytecode:
        flags.append("-B")
    return [*prefix, sys.executable, *flags, "-m", module, *options], bool(prefix)
