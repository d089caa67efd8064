"""Fixtures of imports and exports: the driver and other libraries in this process."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import fake_cuda
import gpu
import placements
import pytest
from actions import eventually
from cuda_arrays import Library
from placements import ENGINES, OPTIONS

import atomr_native as an
from atomr_native.system import has_gpu


@pytest.fixture(scope="module", params=ENGINES)
def parent_engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """As `cuda_engine`, for tests that use the driver in this process too, which loads one of the two only."""
    engine: str = request.param
    if engine == "fake" and has_gpu():
        pytest.skip("this process uses the GPU's driver")
    if engine == "gpu":
        gpu.open_driver(context=True)
    fake = engine == "fake"
    with (
        fake_cuda.using(request.getfixturevalue("fake_environment") if fake else {}),
        fake_cuda.compiling_here() if fake else contextlib.nullcontext(),
    ):
        yield engine


@pytest.fixture(scope="module", params=placements.HOSTS)
def each_isolation(request: pytest.FixtureRequest) -> str:
    """Return each isolation in turn, whatever the device."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def parent_system(parent_engine: str, each_isolation: str, nothing_left: None) -> Iterator[an.System]:
    """Lend a System with a CUDA device, whose driver this process uses too; tests may end its worker."""
    with an.System(isolation=each_isolation, standby="off", allow_crash=True, within=0.0) as made:
        yield made


@pytest.fixture(scope="module")
def library(parent_engine: str) -> Library:
    """Return another library with arrays on the GPU, in this process."""
    return Library()


@pytest.fixture(scope="module")
def threads(nothing_left: None) -> Iterator[an.System]:
    """Lend a System whose host device is in this very process; the tests of a module share it."""
    with an.System(isolation="thread", **OPTIONS) as made:
        yield made


@pytest.fixture
def local(threads: an.System) -> Iterator[an.Device]:
    """Lend a device in this very process, with nothing imported before and after."""
    found = threads.device("host")
    yield found
    if found._state.imports._imports:
        gc.collect()
    eventually(lambda: not found._state.imports._imports)
    assert len(found._state.imports._ranges) == 0
    threads.dead_letters.clear()
