"""Fixtures of workers and restarts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from leaks import children
from wire import open_fds, until

import atomr_native as an


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail when a test leaves any descriptor, Python thread or process behind."""

    def held() -> tuple[set[Any], ...]:
        return open_fds(), set(threading.enumerate()), children()

    before = held()

    def extra() -> list[set[Any]]:
        return [now - then for now, then in zip(held(), before, strict=True)]

    yield
    assert until(lambda: not any(extra())), extra()


@pytest.fixture
def make_device(cuda_engine: str, make_system: Callable[..., an.System]) -> Callable[..., an.Device]:
    """Make CUDA devices that one test has for itself."""

    def make(**options: Any) -> an.Device:
        return make_system(**options).device("cuda:0")

    return make
