"""A kernel of the user's, for the test that records every operation."""

from __future__ import annotations

import importlib.util
from typing import Any

from recorded_cases import Case, case

import atomr_native as an

NUMBA = importlib.util.find_spec("numba_cuda") is not None


def _scale(device: an.Device, _: Any, out: an.GpuRef, x: an.GpuRef, *, factor: float) -> None:
    import numba_kernels

    device.kernel(numba_kernels.scale).forall(8)(out, x, factor)


CASES: dict[str, Case] = {"kernel": case(_scale, "row other", factor=(2.0, 3.0))} if NUMBA else {}
#: Kernels that are compiled for a GPU.
NOT_ON_FAKE = {"kernel"}
NEVER = set() if NUMBA else {"kernel.*"}
