"""Where workers live: their environment, the standby, threads, forks, the native lanes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import fake_worker as fake
import pytest
from processes import is_alive
from wire import open_fds, until
from worker_processes import ROOT, initialise, pump_until, start_worker, worker_variables

from atomr_native import errors
from atomr_native.protocol.messages import ABI, package_version
from atomr_native.runtime.placement import (
    ProcessWorker,
    StandbyPool,
    Worker,
    worker_command,
    worker_environment,
)
from atomr_native.runtime.placement import environment as environment_module
from atomr_native.runtime.placement.thread import ThreadWorker

pytestmark = pytest.mark.usefixtures("no_leaks")


# ---- the environment


def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment_module, "_site_directories", lambda: ["/nowhere"])
    made = worker_environment({"A": "1", "PYTHONPATH": os.pathsep.join(["", "relative", str(tmp_path)])})
    path = made["PYTHONPATH"].split(os.pathsep)
    assert path[0] == str(ROOT)
    assert "" not in path
    assert path[-2:] == [os.path.abspath("relative"), str(tmp_path)]
    assert (made["A"], made["PYTHONFAULTHANDLER"]) == ("1", "1")
    import numpy as np

    assert str(Path(np.__file__).parents[1]) in path


def test_environment_of_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    monkeypatch.setattr(
        environment_module, "_site_directories", lambda: [str(ROOT), str(Path(np.__file__).parents[1])]
    )  # fmt: skip
    assert "PYTHONPATH" not in worker_environment({})


def test_another_copy_in_front_is_overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "atomr_native").mkdir()
    monkeypatch.setattr(environment_module, "_site_directories", lambda: [str(ROOT)])
    path = worker_environment({"PYTHONPATH": str(tmp_path)})["PYTHONPATH"].split(os.pathsep)
    assert path.index(str(ROOT)) < path.index(str(tmp_path))


def test_command(monkeypatch: pytest.MonkeyPatch) -> None:
    command, prefixed = worker_command({"ATOMR_NATIVE_WORKER_PREFIX": "gdb -batch -args"}, ["--control-fd", "9"])
    assert prefixed
    assert command[:4] == ["gdb", "-batch", "-args", sys.executable]
    assert command[-4:] == ["-m", "atomr_native.worker", "--control-fd", "9"]
    assert "-P" in command
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(errors.Unsupported, match="isolation='thread'"):
        worker_command({}, [])


# ---- standby


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def waits(pid: int) -> bool:
    """Whether no thread of a process has used the processor for a while."""

    def ticks() -> int:
        return sum(int(x) for x in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])

    before = ticks()
    time.sleep(0.3)
    return ticks() == before


def test_standby_is_ready_idle_and_replaced() -> None:
    pool = StandbyPool("host", worker_variables(), module="fake_worker")
    try:
        assert pool.pid is None
        pool.refill()
        pool.refill()
        pid = pool.pid
        assert pid is not None
        assert until(lambda: "/numpy/" in maps(pid) and waits(pid))
        assert not {name for name in ("/scipy/", "/numba/") if name in maps(pid)}
        worker = pool.take()
        initialise(worker)
        assert worker.pid == pid
        assert pool.pid is None
        worker.close()
        pool.refill()
        dead = pool.pid
        assert dead is not None
        os.kill(dead, signal.SIGKILL)
        fresh = pool.take()
        assert fresh.pid != dead
        fresh.client.request("self_test", timeout=10)
        fresh.close()
        pool.refill()
    finally:
        pool.close()
        pool.close()
    pool.refill()
    assert pool.pid is None
    with pytest.raises(errors.ActorStopped):
        pool.take()


def test_standby_off_and_failing(caplog: pytest.LogCaptureFixture) -> None:
    off = StandbyPool("host", worker_variables(), kind="off", module="fake_worker")
    off.refill()
    assert off.pid is None
    off.take().close()
    off.close()
    broken = StandbyPool("host", worker_variables(ATOMR_NATIVE_WORKER_PREFIX="/no-such-program"))
    broken.refill()
    assert "no standby for host" in caplog.text
    with pytest.raises(errors.LibraryError):
        broken.take()
    broken.close()


# ---- threads


def test_thread_placement_serves_and_leaves() -> None:
    worker = ThreadWorker.start("host", lanes_factory=fake.FakeLanes, builders=fake.FakeBuilders())
    assert (worker.pid, worker.pidfd) == (None, -1)
    assert worker.alive()
    initialise(worker)
    worker.client.request("self_test", timeout=30)
    assert not worker.client.request("stats", timeout=30).fields["watches"]
    with pytest.raises(errors.AskTimeout):
        worker.reap(0.01)
    assert worker.close() == "thread ended"
    assert worker.close() == "thread ended"
    assert not worker.alive()


def test_thread_placement_kill_and_crash() -> None:
    killed = ThreadWorker.start("host", lanes_factory=fake.FakeLanes, builders=fake.FakeBuilders())
    initialise(killed)
    killed.kill()
    killed.kill()
    assert killed.reap(5) == "thread ended"
    killed.close()
    ended = ThreadWorker.start("host", lanes_factory=fake.FakeLanes, builders=fake.FakeBuilders())
    initialise(ended, allow_crash=True)
    ended.client.request("crash", how="exit", timeout=30)
    assert pump_until(ended, lambda: not ended.pump())
    ended.close()


def test_close_although_another_thread_was_the_reader() -> None:
    workers: list[Worker] = [
        ThreadWorker.start("host", lanes_factory=fake.FakeLanes, builders=fake.FakeBuilders()),
        start_worker(),
    ]
    for worker in workers:
        thread = threading.Thread(target=worker.client.adopt)
        thread.start()
        thread.join()
        assert worker.close() in {"thread ended", "exit status 0"}


# ---- fork


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_abandon_in_a_forked_child() -> None:
    worker, thread = start_worker(), ThreadWorker.start("host", lanes_factory=fake.FakeLanes)
    pool = StandbyPool("host", worker_variables(), module="fake_worker")
    pool.refill()
    before = len(open_fds())
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for item in (worker, thread, pool):
                item.abandon()
            worker.kill()
            worker.close()
            status = 0 if not worker.alive() and len(open_fds()) < before - 8 else 3
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    worker.client.request("self_test", timeout=10)
    thread.client.request("self_test", timeout=10)
    worker.close()
    thread.close()
    pool.take().close()
    pool.close()


# ---- with the native lanes


REAL = """
import os, sys, time
from atomr_native._lib.sender import Core
from atomr_native.protocol.messages import ABI, package_version
from atomr_native.runtime.placement import ProcessWorker, worker_environment
core = Core(64)
worker = ProcessWorker.start("host", worker_environment())
answer = worker.client.request(
    "init", (core.p_fd,), version=package_version(), abi=ABI, config=dict(allow_crash=True), timeout=10
)
os.close(answer.take_fd())
worker.client.submit("crash", how="hang")
time.sleep(0.2)
print(worker.pid, flush=True)
time.sleep(60)
"""


def test_a_killed_parent_takes_a_hanging_worker_along() -> None:
    pytest.importorskip("atomr_native._lib.lanes")
    # Its control thread hangs with the GIL held: only the native thread of the lanes can notice.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", REAL], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    assert until(lambda: not is_alive(pid))
    parent.wait()
    parent.stdout.close()


@pytest.mark.parametrize("placement", ["process", "thread"])
def test_native_lanes_behind_the_control_protocol(placement: str) -> None:
    pytest.importorskip("atomr_native._lib.lanes")
    sender = pytest.importorskip("atomr_native._lib.sender")
    core = sender.Core(64)
    worker: Worker = (
        ProcessWorker.start("host", worker_environment()) if placement == "process" else ThreadWorker.start("host")
    )
    answer = worker.client.request(
        "init", (core.p_fd,), version=package_version(), abi=ABI, placement=placement, config={}, timeout=20
    )
    w_fd = answer.take_fd()
    core.attach(w_fd, answer.fields["w_bytes"])
    os.close(w_fd)
    segment = worker.client.request("create_segment", segment=1, nbytes=1 << 20, pool=0, timeout=30).take_fd()
    worker.client.request("unmap_segment", segment=1, timeout=30)
    worker.client.request("map_segment", (segment,), segment=1, nbytes=1 << 20, pool=0, timeout=30)
    os.close(segment)
    event = os.eventfd(0, os.EFD_CLOEXEC)
    worker.client.request("subscribe", (event,), index=0, timeout=30)
    os.close(event)
    worker.client.request("go", timeout=30)
    worker.client.request("self_test", timeout=30)
    assert worker.client.request("stats", timeout=30).fields["segment_bytes"] == 1 << 20
    with pytest.raises(errors.InvalidRequest, match="segment 9 is not mapped"):
        worker.client.request("unmap_segment", segment=9, timeout=30)
    with pytest.raises(errors.OutOfMemory):
        worker.client.request("create_segment", segment=2, nbytes=1 << 60, pool=0, timeout=30)
    assert worker.close() in {"exit status 0", "thread ended"}
    del core
