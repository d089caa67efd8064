"""Kernels in modules that a worker cannot import, and what they refer to there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

SETTINGS = """
import enum
from numba import cuda

OFFSET = 40.0
UNRELATED = open(__file__)  # which cannot travel

class Mode(enum.IntEnum):
    ADD = 1
    LEAVE = 2

@cuda.jit(device=True)
def twice(x):
    return 2 * x
"""
KERNELS = """
import their_settings
from numba import cuda, njit
from their_settings import Mode

@njit
def third(x):
    return x + Mode.LEAVE

def plain(x, mode):
    i = cuda.grid(1)
    if i < x.size and mode == Mode.ADD:
        x[i] = third(their_settings.twice(x[i])) + their_settings.OFFSET
"""


def test_numba_is_imported_in_one_module() -> None:
    package = Path(an.__file__).parent
    importing = re.compile(r"^\s*(from|import) +numba\b", re.MULTILINE)
    assert [f.name for f in package.rglob("*.py") if importing.search(f.read_text())] == ["_numba.py"]


def test_modules_of_the_program_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_settings.py").write_text(SETTINGS)
    (tmp_path / "their_kernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(tmp_path)
    import their_kernels  # type: ignore[import-not-found]
    import their_settings  # type: ignore[import-not-found]

    modules: tuple[Any, ...] = their_kernels, their_settings
    try:
        with an.System() as system:
            device = system.device("host")
            x = device.put(np.arange(4.0))
            device.kernel(their_kernels.plain)[1, 4](x, their_settings.Mode.ADD).result(60)
            np.testing.assert_array_equal(x.numpy(), 2 * np.arange(4.0) + 42)
    finally:
        their_settings.UNRELATED.close()
        for module in modules:
            del sys.modules[module.__name__]
