"""Deaths of workers while the program has no descriptors left."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from actions import eventually
from crash import PATIENT, await_generation, filled, kill

import atomr_native as an

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("call", ["pipe2", "pidfd_open"])
def test_a_device_comes_back_when_there_are_descriptors_again(
    make_system: Callable[..., an.System], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    device = make_system(**{**PATIENT, "standby": "warm"}).device("host")
    x = filled(device, 1.0)
    standby = device._state.supervisor._standby
    assert standby is not None
    eventually(lambda: standby.pid is not None)
    original, refusals = getattr(os, call), []

    def refuse(*arguments: int) -> int:
        if len(refusals) < 4:
            refusals.append(arguments)
            raise OSError(24, "Too many open files")
        made: int = original(*arguments)
        return made

    monkeypatch.setattr(os, call, refuse)
    kill(device)  # the standby takes over, and there is no next one
    await_generation(device, 2)
    eventually(lambda: refusals)
    kill(device)
    await_generation(device, 3)
    assert len(refusals) == 4
    assert "Too many open files" in caplog.text
    assert (x.numpy() == 1.0).all()
