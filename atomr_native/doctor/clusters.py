"""A check of Ray, which clusters need: its version, and how a program here would reach it."""

from __future__ import annotations

import os
import shutil

from .._support.ray_version import OLDEST_RAY, is_too_old
from .model import Check
from .subprocesses import ProbeError, run_probe

__all__ = ["ray_check"]

_MEMORY = "/dev/shm"  # noqa: S108  (where Ray's object store is; only looked at)


def ray_check() -> Check:
    """Look for Ray in a separate process, which imports it and starts nothing."""
    name, title = "ray", "Ray, for clusters"
    try:
        found = run_probe("ray_version")
    except ProbeError as error:
        return Check(name, title, "failed", str(error))
    version = found["version"]
    if version is None:
        return Check(name, title, "info", f"not installed; {found['install']}")
    oldest = ".".join(map(str, OLDEST_RAY))
    if is_too_old(version):
        return Check(name, title, "failed", f"Ray {version} is too old; allowed: {oldest} and later")
    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("ray://"):
        return Check(
            name, title, "failed",
            f"RAY_ADDRESS is {address}, and Ray Client is not supported: run programs on a machine of the Ray cluster",
        )  # fmt: skip
    try:
        free = f"{shutil.disk_usage(_MEMORY).free / (1 << 30):.1f} GiB are free in {_MEMORY} for its object store"
    except OSError as error:
        free = f"{_MEMORY}, for its object store, cannot be read: {error.strerror}"
    where = f"RAY_ADDRESS is {address}" if address else "RAY_ADDRESS is not set"
    return Check(name, title, "ok", f"{version}; {where}; {free}")
