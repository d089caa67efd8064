"""Fixtures of matrix products: an emulated cuBLASLt, and kernels that run on the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cuda_emulate import Emulator
from lt_emulator import Rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Return native matmul plans on an emulated cuBLASLt, which must be gone after the module's tests."""
    made = Rig(tmp_path_factory.mktemp("fake"))
    yield made
    assert made.knob("fake_live").value == 0, "descriptors leaked"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    """Return what runs kernels in CUDA C++ on the host, compiled by gcc."""
    return Emulator(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels in CUDA C++ built without machine code, which the emulator has no use for."""
    monkeypatch.setattr("atomr_native.builders.cuda.codegen.compile_cubin", lambda source, arch: b"")
