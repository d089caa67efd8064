"""GPUs whose last process is still ending when Ray hands them on."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from atomr_native.ray import handover


class Management:
    """Stands for NVIDIA's management library: GPU 3 is used for some looks, GPU 5 for ever, and GPU 9 is none."""

    def __init__(self, looks: int) -> None:
        self.looks, self.asked, self.ended = looks, [], False  # type: ignore[var-annotated]

    def nvmlDeviceGetHandleByIndex_v2(self, number: ctypes.c_uint, handle: Any) -> int:  # noqa: N802
        handle._obj.value = number.value + 1
        return 2 if number.value == 9 else 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: ctypes.c_void_p, count: Any, _: None) -> int:  # noqa: N802
        assert count._obj.value == 0
        gpu = (handle.value or 0) - 1
        self.asked.append(gpu)
        if gpu == 5 or (gpu == 3 and self.asked.count(3) <= self.looks):
            return 7
        return 0

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.ended = True


def test_a_gpu_that_is_handed_on_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    library = Management(4)
    monkeypatch.setattr(handover, "_management", lambda: library)
    handover.await_gpus(["3", 0, 9], 60.0)
    assert (library.asked.count(3), library.asked.count(0)) == (5, 5)
    assert library.ended
    assert not caplog.records
    handover.await_gpus([5], 0.0)  # a process that stays
    assert "GPUs [5] are still used by another process" in caplog.text


def test_nothing_is_asked_without_gpus_or_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AssertionError

    monkeypatch.setattr(handover, "_management", fail)
    handover.await_gpus([])
    handover.await_gpus(["MIG-5f"])
    monkeypatch.undo()
    handover.await_gpus([0], 0.0)
