"""Programs of all shapes leave nothing behind: interpreter exit, signals, threads, other processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import placements
import pytest
from placements import Placement, programs
from processes import assert_dead
from scripts import run, start

import atomr_native as an

Make = Callable[..., an.System]


HEAD = """
import os, signal, sys, threading, time
import numpy as np
import atomr_native as an
isolation, name = sys.argv[1:]
"""


@pytest.fixture(params=programs("host"))
def host(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Return isolation and name of the host device, for programs that have nothing to do with its kind."""
    with placements.program(request) as found:
        yield found


@pytest.fixture(params=programs("host", "fake", "gpu"))
def anywhere(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Return isolation and name of each kind of device."""
    with placements.program(request) as found:
        yield found


class TestPrograms:
    def test_open_system_at_exit(self, anywhere: tuple[str, str]) -> None:
        out = run(
            HEAD
            + """
system = an.System(isolation=isolation)
device = system.device(name)
x = device.put(np.arange(3.0))
y = device.blas_lt.matmul(x.reshape(1, 3), x.reshape(3, 1))
lane = device.lane("a")
for _ in range(200):
    lane.noop().tell()
print(os.getpid(), device.worker_pid or 0, y.numpy()[0, 0])
""",
            *anywhere,
            left_open=True,
        )
        pid, worker, value = out.split()
        assert value == "5.0"
        assert_dead(*[int(p) for p in (pid, worker) if int(p)])

    def test_exit_while_a_message_runs_forever(self, anywhere: tuple[str, str]) -> None:
        out = run(
            HEAD
            + """
from actions import Gate
system = an.System(isolation=isolation, allow_crash=True)
device = system.device(name)
gate = Gate(device.lane("a"))
late = device.lane("a").noop().ask()
print(device.worker_pid or 0)
""",
            *anywhere,
            left_open=True,
        )
        if int(out):
            assert_dead(int(out))

    @pytest.mark.parametrize(
        ("ending", "status"),
        [("sys.exit(3)", 3), ("os._exit(4)", 4), ("raise RuntimeError", 1), ("os.abort()", -signal.SIGABRT)],
    )
    def test_exit_in_other_ways(self, host: tuple[str, str], ending: str, status: int) -> None:
        if host[0] == "thread" and status != 3:
            pytest.skip("there is no worker to be left")
        out = run(
            HEAD
            + f"""
system = an.System(isolation=isolation)
device = system.device(name)
x = device.put([1.0])
print(device.worker_pid or 0)
{ending}
""",
            *host,
            status=status,
        )
        if int(out):
            assert_dead(int(out))

    def test_objects_that_outlive_all_modules_end_without_a_word(self, host: tuple[str, str]) -> None:
        run(
            HEAD
            + """
class Echo(an.Actor):
    def receive(self, message):
        return message

system = an.System(isolation=isolation)
devices = [system.device(each) for each in ("host", "host:1")]
comm = system.communicator(devices)
refs = [device.put([1.0, 2.0]) for device in devices]
with comm.record() as g:
    comm.all_reduce(refs, out=refs)
lane = devices[0].lane("a")
plan = lane.noop()
actor = system.spawn(Echo)
kept = [system, devices, comm, refs, g.plan, g.plan.ask(), lane, plan, plan.ask(), actor, actor.ask(1)]
kept += [refs[0].numpy(), memoryview(devices[0].host_array(3)), devices[0].elementwise.plan("a + 1", a=refs[0])]
sys.modules["kept"] = kept
""",
            *host,
            left_open=True,
        )

    def test_exit_with_threads_that_wait(self, anywhere: tuple[str, str]) -> None:
        run(
            HEAD
            + """
from actions import Gate
system = an.System(isolation=isolation, allow_crash=True)
device = system.device(name)
gate = Gate(device.lane("a"))
late = device.lane("a").noop().ask()
seen = []
def wait():
    try:
        late.result()
    except an.ActorStopped:
        seen.append(1)
daemon = threading.Thread(target=wait, daemon=True)
daemon.start()
late.add_done_callback(lambda reply: seen.append(2))
""",
            *anywhere,
            left_open=True,
        )

    @pytest.mark.parametrize("blocked", ["reply.result()", "fill()"])
    def test_ctrl_c(self, anywhere: tuple[str, str], blocked: str) -> None:
        with start(
            HEAD
            + f"""
from actions import Gate
with an.System(isolation=isolation, allow_crash=True, timeout=None, mailbox_size=32) as system:
    device = system.device(name)
    x = device.put([1.0])
    lane = device.lane("a")
    plan = lane.noop().wait()
    x.wait()
    gates = [Gate(lane), Gate(device._memory)]
    reply = plan.ask()
    def fill():
        while True:
            plan.tell()
    threading.Thread(target=lambda: (time.sleep(0.05), print(device.worker_pid or 0, flush=True))).start()
    try:
        {blocked}
    except KeyboardInterrupt:
        print("interrupted")
        raise
    finally:
        for gate in gates:
            gate.open()
""",
            *anywhere,
        ) as process:
            assert process.stdout is not None
            worker = int(process.stdout.readline())
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert "interrupted" in out, err
        assert "KeyboardInterrupt" in err
        assert process.returncode in (1, 130, -signal.SIGINT)
        if worker:
            assert_dead(worker)

    def test_without_main(self, host: tuple[str, str]) -> None:
        out = run(
            HEAD
            + """
code = '''
import atomr_native as an
with an.System(isolation=isolation) as system:
    print(system.device(name).put([4]).numpy()[0])
'''
del sys.modules["__main__"]
exec(compile(code, "<cell 1>", "exec"), {"isolation": isolation, "name": name, "__name__": "notebook"})
""",
            *host,
        )
        assert out.strip() == "4"

    def test_from_standard_input_in_a_directory_that_is_gone(self, host: tuple[str, str], tmp_path: Any) -> None:
        out = run(
            HEAD
            + f"""
os.chdir({str(tmp_path)!r})
os.mkdir("gone"); os.chdir("gone"); os.rmdir({str(tmp_path / "gone")!r})
with an.System(isolation=isolation) as system:
    print(system.device(name).put([4]).numpy()[0])
""",
            *host,
        )
        assert out.strip() == "4"

    def test_threads_that_race_for_the_first_use(self, anywhere: tuple[str, str]) -> None:
        out = run(
            """
            import sys, threading
            isolation, name = sys.argv[1:]
            barrier, found = threading.Barrier(4), []
            def use():
                barrier.wait()
                import atomr_native as an
                with an.System(isolation=isolation, standby="off") as system:
                    device = system.device(name)
                    x = device.put([[2.0]])
                    found.append(float(device.blas_lt.matmul(x, x).numpy()[0, 0]))
            threads = [threading.Thread(target=use) for _ in range(4)]
            for t in threads: t.start()
            for t in threads: t.join()
            print(found)
            """,
            *anywhere,
        )
        assert out.strip() == str([4.0] * 4)

    def test_multiprocessing(self, host: tuple[str, str], tmp_path: Any) -> None:
        script = tmp_path / "program.py"
        script.write_text(
            HEAD
            + """
import multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)
def work(queue):
    with an.System(isolation=isolation, standby="off") as system:
        queue.put(int(system.device(name).put([5]).numpy()[0]))
if __name__ == "__main__":
    with an.System(isolation=isolation) as system:
        x = system.device(name).put([1])
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            queue = context.SimpleQueue()
            process = context.Process(target=work, args=(queue,))
            process.start()
            process.join()
            print(method, process.exitcode, queue.get())
            queue.close()
        print(x.numpy()[0])
"""
        )
        import subprocess
        import sys

        from scripts import environment

        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", str(script), *host],
            capture_output=True, text=True, env=environment(), timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["fork", "0", "5", "spawn", "0", "5", "1"]


def test_a_second_process_makes_a_system_of_its_own(make_system: Make) -> None:
    import pickle

    device = make_system().device()
    name = pickle.dumps(device.put([1.0]))
    out = run(
        """
        import pickle, sys
        import atomr_native as an
        try:
            pickle.loads(bytes.fromhex(sys.argv[1]))
        except an.InvalidRequest as error:
            print("refused:", error)
        with an.System() as system:
            print(system.device().put([2]).numpy()[0], system.device().worker_pid)
        """,
        name.hex(),
    )
    assert "refused: this handle belongs to another System" in out
    value, worker = out.splitlines()[1].split()
    assert value == "2"
    assert int(worker) != device.worker_pid
    assert_dead(int(worker))


def test_a_killed_program_takes_its_worker_and_standby_along() -> None:
    with start(
        HEAD
        + """
system = an.System()
device = system.device()
x = device.put(np.zeros(1 << 20))
x.wait()
from leaks import children
from actions import eventually
eventually(lambda: len(children()) >= 2)
print(*children(), flush=True)
time.sleep(60)
""",
        "process",
        "host",
    ) as process:
        assert process.stdout is not None
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert len(workers) >= 2
        process.kill()
        process.communicate()
    assert_dead(*workers)


def test_the_worker_does_not_hear_ctrl_c(make_system: Make, worker_process: Placement) -> None:
    device = make_system().device()
    x = device.put([1.0])
    os.kill(device.worker_pid or 0, signal.SIGINT)
    assert x.numpy() == [1]
    assert device.generation == 1
