"""Communicators of two to four host devices, in processes and in threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import atomr_native as an


@pytest.fixture(scope="module", params=["process", "thread"])
def system(request: pytest.FixtureRequest) -> Iterator[an.System]:
    with an.System(isolation=request.param, standby="off", allow_crash=True, timeout=60.0, within=0.0) as made:
        yield made
        assert not list(made.dead_letters)


@pytest.fixture(scope="module", params=[2, 3, 4])
def comm(system: an.System, request: pytest.FixtureRequest) -> Iterator[an.Communicator]:
    made = system.communicator([f"host:{i}" for i in range(request.param)])
    yield made
    made.close()


@pytest.fixture(scope="module")
def pair(system: an.System) -> Iterator[an.Communicator]:
    made = system.communicator(["host", "host:1"])
    yield made
    made.close()
