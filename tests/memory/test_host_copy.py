"""Copies in host memory by several threads, as the package sees them; the C core has tests of its own."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from scripts import run

import atomr_native as an
from atomr_native._lib.copies import COPY, FRESH, TOUCH, ZERO, HostCopy, copy_helpers, send_bytes, set_copy_helpers


@pytest.fixture(params=[0, 1, 3])
def helpers(request: pytest.FixtureRequest) -> Iterator[int]:
    """Set the number of threads that help."""
    before = copy_helpers()
    assert 1 <= before <= 8
    set_copy_helpers(request.param)
    yield request.param
    set_copy_helpers(before)


def address(x: np.ndarray) -> int:
    found: int = x.ctypes.data
    return found


@pytest.mark.parametrize("kind", [COPY, FRESH])
@pytest.mark.parametrize("nbytes", [0, 1, 300_000, (9 << 20) + 17])
def test_copies_all_of_it(helpers: int, kind: int, nbytes: int) -> None:
    assert copy_helpers() == helpers
    x, y = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8), np.empty(nbytes + 2, np.uint8)
    y[[0, -1]] = 7
    job = HostCopy(kind, address(y) + 1, address(x), nbytes, (x, y))
    job.finish()
    job.finish()
    assert job.done()
    assert np.array_equal(y[1:-1], x)
    assert y[0] == y[-1] == 7


def test_other_kinds(helpers: int) -> None:
    x = np.full((5 << 20) + 3, 9, np.uint8)
    HostCopy(TOUCH, address(x), 0, x.nbytes, x).finish()
    assert (x == 9).all()
    HostCopy(ZERO, address(x), 0, x.nbytes - 1, x).finish()
    assert not x[:-1].any()
    assert x[-1] == 9


def test_a_job_ends_with_its_object() -> None:
    x, y = np.ones(32 << 20, np.uint8), np.zeros(32 << 20, np.uint8)
    jobs = [HostCopy(COPY, address(y) + at, address(x) + at, 1 << 20, (x, y)) for at in range(0, 32 << 20, 1 << 20)]
    del jobs
    assert y.all()


def test_a_job_in_a_cycle_keeps_its_owners_to_the_end() -> None:
    x, y = np.ones(64 << 20, np.uint8), np.zeros(64 << 20, np.uint8)
    ends: list[int] = []
    watch = weakref.ref(x, lambda _: ends.append(int(y[-1])))
    link: dict[str, object] = {}  # known to the collector of cycles once something is in it: after the job
    link["job"] = HostCopy(COPY, address(y), address(x), x.nbytes, (x, link))
    del link, x
    gc.collect()
    assert watch() is None
    assert ends == [1]


def test_many_threads_finish_one_job() -> None:
    x, y = np.ones(16 << 20, np.uint8), np.zeros(16 << 20, np.uint8)
    job = HostCopy(COPY, address(y), address(x), x.nbytes, (x, y))
    threads = [threading.Thread(target=job.finish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert y.all()


@pytest.mark.parametrize("n", [-1, 65])
def test_helpers_out_of_range(n: int) -> None:
    with pytest.raises(an.InvalidRequest, match=f"{n} helpers; allowed: 0 to 64"):
        set_copy_helpers(n)


def test_a_process_ends_while_its_threads_sleep() -> None:
    run(
        """
        import pathlib
        import numpy as np
        from actions import eventually
        from atomr_native._lib.copies import COPY, HostCopy, set_copy_helpers
        set_copy_helpers(4)
        x = np.ones(8 << 20, np.uint8)
        y = np.zeros_like(x)
        HostCopy(COPY, y.ctypes.data, x.ctypes.data, x.nbytes, (x, y)).finish()
        tasks = pathlib.Path("/proc/self/task")
        eventually(lambda: [(t / "comm").read_text() for t in tasks.iterdir()].count("atomr-copy\\n") == 4)
        jobs = [HostCopy(COPY, y.ctypes.data, x.ctypes.data, x.nbytes, (x, y)) for _ in range(3)]
        """
    )


def test_a_forked_child_has_threads_of_its_own() -> None:
    x, y = np.ones(8 << 20, np.uint8), np.zeros(8 << 20, np.uint8)
    HostCopy(COPY, address(y), address(x), x.nbytes, (x, y)).finish()
    y[...] = 0
    job = HostCopy(COPY, address(y), address(x), x.nbytes, (x, y))
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if not job.done():
                with pytest.raises(an.DeviceLost, match="fork"):
                    job.finish()
            y[...] = 0
            HostCopy(COPY, address(y), address(x), x.nbytes, (x, y)).finish()
            status = 0 if y.all() else 2
        finally:
            os._exit(status)
    job.finish()
    assert y.all()
    assert os.waitpid(pid, 0)[1] == 0


def test_bytes_are_sent_inside_of_allocations_only(device: an.Device) -> None:
    source, target = device.put(np.arange(100, dtype=np.uint8)), device.zeros(100, "uint8")
    plan = device._memory.transfers.plans[0]
    assert send_bytes(plan, source, 10, target[50:], 5, 20, want_reply=True).result() is None
    expected = np.zeros(100, np.uint8)
    expected[55:75] = np.arange(10, 30)
    assert np.array_equal(target.numpy(), expected)
    assert send_bytes(plan, source, 100, target, 100, 0, want_reply=False) > 0
    for a, b, n in ((0, 0, 101), (1, 0, 100), (0, 1, 100), (101, 0, 0), (2**63, 0, 1), (0, 0, 2**63)):
        with pytest.raises(an.InvalidRequest, match="leave an allocation of 100"):
            send_bytes(plan, source, a, target, b, n, want_reply=False)
    with pytest.raises(an.InvalidRequest, match="leave an allocation of 100"):
        send_bytes(plan, source, 0, target[60:], 41, 0, want_reply=False)
