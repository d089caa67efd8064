"""Communicators of two to four devices: host devices, fake GPUs, and GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import fake_cuda
import pytest
from placements import GPU

import atomr_native as an

__all__ = ["KINDS", "made_of", "names", "using"]

#: Kinds of devices of a module's System; "thread": host devices in threads.  A fake driver in the tests' own process
#: has the devices that the first module asked for.
KINDS = ("host", "thread", "fake", *GPU)


@contextlib.contextmanager
def using(request: pytest.FixtureRequest, kind: str) -> Iterator[None]:
    """Have the Systems that are made meanwhile find four fake GPUs, if that is the kind."""
    if kind != "fake":
        yield
        return
    with fake_cuda.using({**request.getfixturevalue("fake_environment"), "FAKE_CUDA_DEVICES": "4"}):
        yield


def names(kind: str, *ranks: int) -> list[str]:
    """Return the names of devices of a kind."""
    return [f"{'host' if kind in ('host', 'thread') else 'cuda'}:{rank}" for rank in ranks]


def made_of(system: an.System, kind: str, *ranks: int, **options: Any) -> an.Communicator:
    """Return a communicator; skips the test where there are fewer GPUs."""
    wanted = names(kind, *ranks)
    if kind == "gpu" and not {device.name for device in system.devices()}.issuperset(wanted):
        pytest.skip(f"this machine does not have {', '.join(wanted)}")
    return system.communicator(wanted, **options)
