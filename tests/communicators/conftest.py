"""A System and communicators for each kind of devices in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from communicator_kinds import KINDS, made_of, using

import atomr_native as an


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Return each kind of devices in turn."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def system(request: pytest.FixtureRequest, kind: str) -> Iterator[an.System]:
    isolation: Any = "thread" if kind == "thread" else "process"
    with (
        using(request, kind),
        an.System(isolation=isolation, standby="off", allow_crash=True, timeout=60.0, within=0.0) as made,
    ):
        yield made
        assert not list(made.dead_letters)


@pytest.fixture(scope="module", params=[2, 3, 4])
def comm(system: an.System, kind: str, request: pytest.FixtureRequest) -> Iterator[an.Communicator]:
    made = made_of(system, kind, *range(request.param))
    yield made
    made.close()


@pytest.fixture(scope="module")
def pair(system: an.System, kind: str) -> Iterator[an.Communicator]:
    made = made_of(system, kind, 0, 1)
    yield made
    made.close()
