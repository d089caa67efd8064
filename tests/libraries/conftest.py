"""Fixtures of kernels that Numba compiles."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def tools() -> None:
    """Skip where a Numba kernel cannot be compiled."""
    nvjitlink = pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")
    try:
        nvjitlink.version()
    except Exception as error:
        pytest.skip(f"nvJitLink is not installed: {error}")
