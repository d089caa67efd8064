"""Workers in processes of their own: start, output, death, and nothing left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from leaks import children
from processes import is_alive
from wire import until
from worker_processes import HELPERS, ROOT, initialise, pump_until, start_worker, worker_variables

from atomr_native import errors
from atomr_native.protocol.messages import WorkerGone
from atomr_native.runtime.placement import (
    ProcessWorker,
    worker_environment,
)

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_a_worker_process_serves_and_leaves() -> None:
    worker = start_worker()
    try:
        assert worker.alive()
        assert worker.pid in children()
        assert os.getsid(worker.pid) == worker.pid
        assert initialise(worker)["pid"] == worker.pid
        worker.client.request("self_test", timeout=10)
        stats = worker.client.request("stats", timeout=30).fields
        assert stats["watches"]
        assert stats["p"] == "ring"
        assert not select.select([worker.pidfd], [], [], 0)[0]
    finally:
        assert worker.close() == "exit status 0"
    assert worker.close() == "exit status 0"
    assert not worker.alive()
    assert worker.pidfd == worker.client.fileno() == worker.output_fd == -1
    worker.kill()


def test_sigint_is_ignored_and_sigkill_is_told() -> None:
    worker = start_worker()
    os.kill(worker.pid, signal.SIGINT)
    worker.client.request("self_test", timeout=10)
    pending = worker.client.submit("build_plan")
    worker.kill()
    worker.kill()
    assert select.select([worker.pidfd], [], [], 30)[0]
    assert worker.reap(30) == worker.reap(0) == "killed by signal 9 (SIGKILL)"
    with pytest.raises((WorkerGone, errors.AtomrError)):
        pending.result(0)
    with pytest.raises(WorkerGone):
        worker.client.request("stats")
    assert worker.close() == "killed by signal 9 (SIGKILL)"


@pytest.mark.parametrize(
    ("how", "end", "said"),
    [
        ("segfault", "killed by signal 11 (SIGSEGV)", "Fatal Python error: Segmentation fault"),
        ("abort", "killed by signal 6 (SIGABRT)", "Fatal Python error: Aborted"),
        ("exit", "exit status 3", ""),
    ],
)
def test_crashes_are_described(how: str, end: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    worker = start_worker()
    initialise(worker, allow_crash=True)
    with pytest.raises(WorkerGone):
        worker.client.request("crash", how=how, timeout=10)
    assert pump_until(worker, lambda: not worker.alive())
    assert worker.reap(5) == end
    assert not worker.pump()
    worker.close()
    assert said in caplog.text
    assert said in worker.output_tail()


def test_a_worker_that_hangs_is_killed() -> None:
    worker = start_worker()
    initialise(worker, allow_crash=True)
    with pytest.raises(errors.AskTimeout):
        worker.client.request("crash", how="hang", timeout=0.3)
    assert worker.close(timeout=0.5) == "killed by signal 9 (SIGKILL)"


def session(leader: int) -> set[int]:
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.getsid(int(name)) == leader and is_alive(int(name)):
                found.add(int(name))
    return found


@pytest.mark.parametrize("how", ["close", "kill", "die"])
def test_what_the_worker_started_ends_with_it(how: str) -> None:
    # The sleeper holds copies of the control socket and of the output pipe: neither ends when the worker does.
    worker = start_worker(ATOMR_NATIVE_WORKER_PREFIX="""sh -c 'sleep 60 & exec "$@"' sh""")
    pid = worker.pid
    assert len(session(pid)) == 2
    initialise(worker, allow_crash=True)
    if how == "die":
        with pytest.raises(WorkerGone, match="died"):
            worker.client.request("crash", how="exit", timeout=50)
    elif how == "kill":
        worker.kill()
    worker.close()
    assert until(lambda: not session(pid))


def test_output_and_logs_reach_logging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    worker = start_worker()
    initialise(worker, log_level=logging.INFO)
    texts = ["a record", "odd \ud800 text"]
    spec = {"op": "talk", "operands": [], "attributes": [["texts", texts], ["flood", 300_000]]}
    # The flood is larger than the pipe: waiting for the answer must read it.
    worker.client.request("build_plan", plan=1, spec=spec, timeout=20)
    assert pump_until(worker, lambda: "a warning of the builder" in caplog.text)
    worker.close()
    ours = [r for r in caplog.records if r.name == "atomr_native.worker.host"]
    messages = [r.getMessage() for r in ours]
    assert "some.library: a record" in messages
    assert "some.library: odd \\ud800 text" in messages
    assert "printed to stdout" in messages
    assert "printed to stderr" in messages
    flood = sum(len(m) for m in messages if set(m) == {"x"})
    assert flood == 300_000


def test_start_failures_say_what_was_printed() -> None:
    with pytest.raises(errors.LibraryError, match=r"(?s)StartFailed.*exit status 5.*cannot start: no such thing"):
        start_worker(FAKE_NO_START="1")
    with pytest.raises(errors.LibraryError, match=r"(?s)not ready within 1 s.*starting slowly"):
        ProcessWorker.start("host", worker_variables(FAKE_SLOW_START="60"), module="fake_worker", timeout=1)
    with pytest.raises(errors.Unsupported, match=r"worker runs atomr_native 9\.9"):
        start_worker(FAKE_VERSION="9.9")
    with pytest.raises(errors.LibraryError, match="No module named absent_module"):
        ProcessWorker.start("host", worker_variables(), module="absent_module")


def test_prefix_that_executes() -> None:
    worker = start_worker(ATOMR_NATIVE_WORKER_PREFIX="env 'SOME=a b'")
    assert b"SOME=a b" in Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
    worker.close()


def test_prefix_that_stays_in_front() -> None:
    worker = start_worker(ATOMR_NATIVE_WORKER_PREFIX="""sh -c '"$@"; exit 7' sh""")
    assert worker.pid not in children()
    assert initialise(worker, allow_crash=True)["pid"] == worker.pid
    os.kill(worker.pid, signal.SIGKILL)
    assert select.select([worker.pidfd], [], [], 5)[0]
    assert not worker.pump()
    assert worker.reap(5) in {"exit status 7", "killed by signal 9 (SIGKILL)"}
    worker.close()
    again = start_worker(ATOMR_NATIVE_WORKER_PREFIX="""sh -c '"$@"; exit 7' sh""")
    pid = again.pid
    again.kill()
    assert until(lambda: not is_alive(pid))
    again.close()


def test_prefixes_that_cannot_work() -> None:
    with pytest.raises(errors.LibraryError, match=r"no-such-program \(from ATOMR_NATIVE_WORKER_PREFIX\)"):
        start_worker(ATOMR_NATIVE_WORKER_PREFIX="/no-such-program -x")
    with pytest.raises(errors.InvalidRequest, match="No closing quotation"):
        start_worker(ATOMR_NATIVE_WORKER_PREFIX="gdb 'x")


PARENT = """
import os, sys, time
from atomr_native.protocol.messages import ABI, package_version
from atomr_native.runtime.placement import ProcessWorker, worker_environment
environment = worker_environment()
module = {module!r}
worker = ProcessWorker.start("host", environment, module=module)
if {init}:
    p = os.memfd_create("p")
    os.ftruncate(p, 8192)
    worker.client.request("init", (p,), version=package_version(), abi=ABI, config=dict(allow_crash=True), timeout=10)
print(worker.pid, flush=True)
{then}
"""


def run_parent(
    *, then: str, module: str = "fake_worker", init: bool = False, cwd: Path | None = None, flags: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    code = textwrap.dedent(PARENT.format(module=module, init=init, then=then))
    path = os.pathsep.join([str(ROOT), str(HELPERS)])
    return subprocess.Popen(
        [sys.executable, *flags, "-c", code], stdout=subprocess.PIPE, text=True, cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.parametrize("initialised", [False, True])
def test_a_killed_parent_takes_its_worker_along(initialised: bool) -> None:
    # A forked child of the parent keeps a copy of the control socket open: only the pidfd tells.
    fork = """
pid = os.fork()
if pid == 0:
    os.close(1); time.sleep(60); os._exit(0)
print(pid, flush=True)
time.sleep(60)
"""
    parent = run_parent(then=fork, init=initialised)
    assert parent.stdout is not None
    pid, child = int(parent.stdout.readline()), int(parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    assert until(lambda: not is_alive(pid))
    assert is_alive(child)
    os.kill(child, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()


def test_a_hostile_directory_stays_out(tmp_path: Path) -> None:
    for name in ("numpy", "json", "ml_dtypes", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hostile module imported')\n")
    then = "worker.client.request('self_test', timeout=10); print(worker.close())"
    parent = run_parent(then=then, module="atomr_native.worker", cwd=tmp_path, flags=("-P",))
    out, _ = parent.communicate(timeout=60)
    assert out.splitlines()[1:] == ["exit status 0"]


def test_start_from_a_changed_path_and_directory(tmp_path: Path) -> None:
    code = f"""
import sys, os
sys.path.insert(0, {str(ROOT)!r})
from atomr_native.runtime.placement import ProcessWorker, worker_environment
environment = worker_environment()
os.chdir("/")
worker = ProcessWorker.start("host", environment)
worker.client.request("self_test", timeout=10)
assert worker.close() == "exit status 0"
print("fine")
"""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for flags in ([], ["-I"]):
        done = subprocess.run(
            [sys.executable, *flags, "-c", code],
            cwd=tmp_path,
            env=environment,
            text=True,
            capture_output=True,
            timeout=60,
        )
        assert (done.stdout, done.stderr) == ("fine\n", "")


def test_start_by_hand_is_explained() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "atomr_native.worker"], text=True, capture_output=True, timeout=60,
        env=worker_environment(),
    )  # fmt: skip
    assert done.returncode == 2
    assert "--control-fd" in done.stderr
