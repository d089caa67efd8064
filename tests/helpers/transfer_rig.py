"""Devices to which small arrays are large ones, and a look at what copies leave behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from actions import eventually

import atomr_native as an
from atomr_native._lib.sender import STAGING
from atomr_native.memory import transfers

WINDOW = 3


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make arrays of one KiB large ones, of pieces of 128 to 512 bytes."""
    for name, value in {"SMALL": 64, "PIPELINE": 1024, "PIECE": 512, "SMALLEST_PIECE": 128, "WINDOW": WINDOW}.items():
        monkeypatch.setattr(transfers, name, value)


def narrow(device: an.Device) -> an.Device:
    """Have a device that others use take the sizes that are set now."""
    device._memory.transfers = transfers.Transfers(device._memory)
    return device


def resolve_all(device: an.Device) -> None:
    """Wait for whatever was sent."""
    for lane in device._core.lane_names:
        device._core.wait_ticket(lane, device._core.lane_stats(lane)["sent"], 30)
    device._state.collect_failures()


def all_back(device: an.Device) -> None:
    """Every piece is back in the window, and its memory in the pool."""
    resolve_all(device)
    window = device._memory.transfers.window
    taken = [window.take(first=True) for _ in range(transfers.WINDOW + 1)]
    assert [piece is not None for piece in taken] == [True] * transfers.WINDOW + [False]
    del taken
    pool = device._core.pool_stats  # a thread may have just ended with it
    eventually(lambda: (pool(STAGING)["in_use"], pool(STAGING)["deferred"]) == (0, 0))


def data(n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, n, np.uint8)


@contextlib.contextmanager
def meanwhile(at: int, do: Callable[[], object]) -> Iterator[None]:
    """Have something happen, once, before piece number `at` of a copy is begun."""
    cut, times = transfers._pieces, []

    def pieces(*arguments: Any) -> Iterator[Any]:
        for i, piece in enumerate(cut(*arguments)):
            if i == at and not times:
                times.append(i)
                do()
            yield piece

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfers, "_pieces", pieces)
        yield
    assert times == [at]
