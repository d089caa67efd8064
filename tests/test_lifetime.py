"""Nothing is left behind: destruction order, fork, interpreter exit, signals, programs of all shapes."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import placements
import pytest
from actions import Gate, eventually
from leaks import Baseline
from placements import Placement, programs
from scripts import assert_dead, run, start

import atomr_native as an

Make = Callable[..., an.System]


# ---- in this process


def test_a_closed_system_leaves_nothing(placement: Placement) -> None:
    before = Baseline()
    for _ in range(2):
        with placement.system(standby="off") as system:
            device = system.device()
            x = device.put(np.eye(4))
            device.blas_lt.matmul(x, x).numpy()
            device.lane("a").noop().ask().add_done_callback(lambda reply: None)
            device.host_array(10)
            device.durable_group({"w": device.zeros(4, durable=True)}).commit().result(30)
        del system, device, x
    before.check()


def test_a_standby_leaves_nothing(worker_process: Placement) -> None:
    before = Baseline()
    with worker_process.system(standby="warm") as system:
        system.device().put([1]).numpy()
        os.kill(system.device().worker_pid or 0, signal.SIGKILL)
        system.device().lane("a").noop().ask().result(30)
    del system
    before.check()


def test_a_system_without_a_device_leaves_nothing() -> None:
    before = Baseline()
    an.System().close()
    an.System()
    before.check()


@pytest.mark.parametrize("first", ["system", "handles", "device", "plans"])
def test_destruction_in_any_order(placement: Placement, first: str) -> None:
    before = Baseline()
    system = placement.system(standby="off")
    device = system.device()
    x = device.put(np.arange(4.0))
    view, plan, reply = x[1:], device.lane("a").noop(), device.lane("a").noop().ask()
    group = device.durable_group({"w": device.zeros(4, durable=True)})
    export = None if placement.cuda else np.from_dlpack(x)  # NumPy shows no other memory
    host, letters = device.host_array(3), system.dead_letters
    held: dict[str, list[Any]] = {
        "system": [system], "handles": [x, view, export, host], "device": [device], "plans": [plan, reply, group],
    }  # fmt: skip
    closing = weakref.ref(system)
    del x, view, export, host, device, plan, reply, group
    system = None  # type: ignore[assignment]
    held.pop(first).clear() if first != "system" else held.pop(first)[0].close()
    gc.collect()
    found = closing()
    if found is not None:
        found.close()
    del found
    for things in held.values():
        things.clear()
    del letters
    before.check()


def test_handles_outlive_their_system(placement: Placement) -> None:
    before = Baseline()
    with placement.system(standby="off") as system:
        device = system.device()
        x = device.put(np.arange(4.0))
        things = [x, x[1:], device.lane("a").noop(), device.lane("a").noop().ask(), device.host_array(4)]
    del system, device, x
    gc.collect()
    assert all(map(repr, things))
    things[4][...] = 3
    while things:
        things.pop(0)
    before.check()


def test_reference_cycles_are_collected(placement: Placement) -> None:
    before = Baseline()

    class Model:
        pass

    model: Any = Model()
    model.system = placement.system(standby="off")
    model.device = model.system.device()
    model.w = model.device.put([1.0])
    model.reply = model.device.lane("a").noop().ask()
    model.reply.add_done_callback(lambda reply, model=model: model)
    model.device.on_generation(lambda generation, model=model: model)
    model.me = model
    model.reply.result(30)
    model.system.close()
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    before.check()


def test_device_that_cannot_start_leaves_nothing(monkeypatch: Any) -> None:
    before = Baseline()
    monkeypatch.setenv("ATOMR_NATIVE_WORKER_PREFIX", "/no/such/program")
    with an.System() as system:
        for _ in range(2):
            with contextlib.suppress(an.AtomrError, OSError):
                system.device("host")
                pytest.skip("no prefix here")
    del system
    before.check()


def test_an_error_in_a_with_block_ends_at_once(placement: Placement) -> None:
    before = Baseline()
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        placement.system(standby="off", allow_crash=True) as system,
    ):
        gate = Gate(system.device().lane("a"))
        reply = system.device().lane("a").noop().ask()
        _ = 1 / 0
    gate.open()
    assert isinstance(reply.exception(), an.ActorStopped)
    del system, gate, reply
    before.check()


def test_closing_from_a_callback(make_system: Make, isolation: str) -> None:
    system = make_system(isolation=isolation)
    lane, done = system.device().lane("a"), threading.Event()
    with Gate(lane):
        lane.noop().ask().add_done_callback(lambda reply: (system.close(1.0), done.set()))
    assert done.wait(30)
    assert system.closed
    with pytest.raises(an.ActorStopped):
        lane.noop().tell()


def test_closing_from_many_threads_while_others_send(make_system: Make, isolation: str) -> None:
    system = make_system(isolation=isolation)
    device, ends = system.device(), []
    x = device.zeros(10)

    def use() -> None:
        try:
            while True:
                device.copy(x).numpy()
                device.lane("a").noop().ask().result(30)
        except (an.ActorStopped, an.GpuRefStale) as error:
            ends.append(type(error))
        except BaseException as error:
            ends.append(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    device.put([1]).wait()
    closers = [threading.Thread(target=system.close) for _ in range(3)]
    for thread in [*closers]:
        thread.start()
    for thread in [*threads, *closers]:
        thread.join(30)
    assert len(ends) == 4
    assert set(ends) <= {an.ActorStopped, an.GpuRefStale}


# ---- fork


def in_child(work: Callable[[], object]) -> None:
    """Run something in a forked child; it must end well."""
    import warnings

    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python >= 3.12 warns of threads
        pid = os.fork()
    if pid == 0:
        status, text = 1, b""
        try:
            signal.alarm(30)
            work()
            status = 0
        except BaseException as error:
            text = repr(error).encode()
        finally:
            os.write(write, text)
            os._exit(status)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    text = os.read(read, 10_000)
    os.close(read)
    assert status == 0, f"{status}: {text.decode()}"


def test_a_forked_child_has_nothing_and_harms_nothing(make_system: Make, isolation: str) -> None:
    from leaks import descriptors, mappings

    before, mapped = descriptors(), mappings()
    system = make_system(isolation=isolation)
    device = system.device()
    x = device.put(np.arange(3.0))
    lane = device.lane("a")
    plan, reply = lane.noop().wait(), lane.noop().ask()
    view = np.arange(3.0) if device.name != "host" else np.from_dlpack(x)  # NumPy shows no other memory
    host, group = device.host_array(3), device.durable_group({"w": device.zeros(2, durable=True)})
    gate = Gate(lane)
    late = lane.noop().ask()
    assert view.sum() == 3
    assert host.sum() == 0

    def child() -> None:
        ours = descriptors() - before - Counter(pipe=2)
        assert not ours, ours
        assert mappings() <= mapped, mappings()
        uses: list[Callable[[], object]] = [
            lambda: device.put([1]), x.numpy, x.wait, lambda: x.fill(1), plan.tell, plan.ask, reply.result,
            lambda: late.result(0), lambda: device.empty(3), lambda: device.host_array(3), group.commit, x.free,
            lambda: an.gather(x), lambda: device.lane("b"), lambda: lane.noop().tell(), device.wait_ready,
            system.device, lambda: x.__dlpack__(),
        ]  # fmt: skip
        for use in uses:
            try:
                use()
            except (an.DeviceLost, an.ActorStopped) as error:
                assert "fork" in str(error) or "closed" in str(error), error  # noqa: PT017
            else:
                raise AssertionError(use)
        for thing in (x, plan, reply, late, device, system, lane, group):
            repr(thing)
        system.close()
        device.close()
        with an.System(isolation="thread", standby="off") as own:
            assert own.device("host").put([7]).numpy() == [7]
        gc.collect()

    def grandchild() -> None:
        with pytest.raises(an.DeviceLost):
            x.numpy()

    with gate:
        in_child(child)
    assert late.result(30) is None
    assert x.numpy().tolist() == [0, 1, 2]
    in_child(lambda: in_child(grandchild))
    assert group.commit().result(30) == 1


def test_fork_while_threads_send(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation).device()
    stop, errors = threading.Event(), []
    x = device.zeros(100)

    def send() -> None:
        try:
            while not stop.is_set():
                device.copy(x).numpy()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()

    def child() -> None:
        with contextlib.suppress(an.DeviceLost):
            x.numpy()
        repr(x)
        gc.collect()
        device.system.close()

    for _ in range(4):
        in_child(child)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not errors


def test_fork_after_close(make_system: Make, isolation: str) -> None:
    system = make_system(isolation=isolation)
    x = system.device().put([1.0])
    system.close()

    def child() -> None:
        with contextlib.suppress(an.DeviceLost, an.ActorStopped, an.GpuRefStale):
            x.numpy()
        repr(x)

    in_child(child)


# ---- programs


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
            barrier, found = threading.Barrier(6), []
            def use():
                barrier.wait()
                import atomr_native as an
                with an.System(isolation=isolation, standby="off") as system:
                    device = system.device(name)
                    x = device.put([[2.0]])
                    found.append(float(device.blas_lt.matmul(x, x).numpy()[0, 0]))
            threads = [threading.Thread(target=use) for _ in range(6)]
            for t in threads: t.start()
            for t in threads: t.join()
            print(found)
            """,
            *anywhere,
        )
        assert out.strip() == str([4.0] * 6)

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


def test_gate_threads_end(make_system: Make) -> None:
    before = threading.active_count()
    system = make_system(isolation="thread")
    system.device().put([1]).wait()
    system.close()
    eventually(lambda: threading.active_count() <= before)
