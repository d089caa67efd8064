"""Messages that fail by an info word of their work: no lane waits for it, and none completes before its outcome."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gpu import gpu_fault

import atomr_native as an
from atomr_native.errors import DependencyFailed, LibraryError
from atomr_native.plans.spec import OVERWRITE, WRITE

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(scope="module")
def device(cuda_engine: str, nothing_left: None) -> Iterator[an.Device]:
    with an.System(allow_crash=True, watchdog=60.0) as system:
        yield system.device("cuda:0")


def report(device: an.Device, ref: an.GpuRef, info: int) -> an.Reply:
    """Send a message that fails late unless `info`, which it writes to the first number of an array, is 0."""
    return gpu_fault(device.lane("late"), "info", ref, access=WRITE | OVERWRITE, info=info)


def test_a_nonzero_info_word_fails_its_message(device: an.Device) -> None:
    x = device.put(np.ones(4, np.int32)).wait()
    with pytest.raises(LibraryError, match=r"kernel: INFO \(7\) in .*: its kernels report 7") as caught:
        report(device, x, 7).result(60)
    assert (caught.value.lib, caught.value.status, caught.value.name) == ("kernel", 7, "INFO")
    with pytest.raises(LibraryError, match="kernels report 7"):
        x.numpy()
    report(device, x, 0).result(60)  # overwritten, and well
    assert x.numpy().tolist() == [0, 1, 1, 1]
    assert device.generation == 1


def test_what_reads_it_fails_too_although_it_was_sent_before(device: an.Device) -> None:
    """By turns well and badly, on lanes that run ahead: each reader has the outcome of what it has read."""
    x = device.put(np.ones(4, np.int32)).wait()
    sent = []
    for i in range(60):
        written = report(device, x, i % 3)
        first = device.elementwise.run("a + 1", a=x)
        sent.append((i % 3, written, first, device.elementwise.run("a * 2", a=first)))
    for info, written, first, second in sent:
        if not info:
            written.result(60)
            assert first.numpy().tolist() == [1, 2, 2, 2]
            assert second.numpy().tolist() == [2, 4, 4, 4]
            continue
        with pytest.raises(LibraryError, match=f"kernels report {info}"):
            written.result(60)
        for ref in (first, second):
            with pytest.raises(LibraryError, match="kernels report 1"):  # what x holds since: the first cause stays
                ref.numpy()


def test_replies_of_readers_name_the_cause(device: an.Device) -> None:
    x = device.put(np.ones(4, np.int32)).wait()
    report(device, x, 9)
    with pytest.raises(DependencyFailed) as caught:
        gpu_fault(device.lane("reader"), "slow", x, milliseconds=1).result(60)
    assert isinstance(caught.value.cause, LibraryError)
    assert caught.value.cause.status == 9
