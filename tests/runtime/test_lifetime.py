"""Nothing is left behind in this process: destruction order, cycles, closing at any time."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scripts
from actions import Gate, eventually
from leaks import Baseline
from placements import Placement
from processes import assert_dead

import atomr_native as an

Make = Callable[..., an.System]


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


def test_threads_of_lanes_take_their_python_state_along() -> None:
    """As `faulthandler` lists the states; each would stay until the program ends."""
    scripts.run("""
import faulthandler, tempfile
import atomr_native as an

def states():
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read().count(b"hread 0x")

def use():
    with an.System(isolation="thread") as system:
        device = system.device()
        x = device.put([1.0])
        device.elementwise.run("x + 1", x=x, out=x)
        assert x.numpy() == [2]

use()
before = states()
for _ in range(5):
    use()
assert states() <= before + 2, states()  # threads of the package that are kept, and may have begun meanwhile
""")


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


@pytest.mark.fake_only(first=["system", "handles"])
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


def test_gate_threads_end(make_system: Make) -> None:
    def count() -> int:  # without native threads that asked Python for their names, which it keeps
        return sum(not thread.name.startswith("Dummy-") for thread in threading.enumerate())

    before = count()
    system = make_system(isolation="thread")
    system.device().put([1]).wait()
    system.close()
    eventually(lambda: count() <= before)


_LEFT_OPEN = """
import sys
import atomr_native as an

system = an.System(allow_crash=True)
device = system.device("host")
print(device.worker_pid, flush=True)
if sys.argv[1] == "busy":
    from crash import occupy
    reply = occupy(device.lane("busy"))
if sys.argv[1] == "closed":
    system.close()
"""


@pytest.mark.parametrize("state", ["idle", "busy", "closed"])
def test_a_system_that_is_left_open_is_told_of_and_ended_at_exit(state: str) -> None:
    program = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", _LEFT_OPEN, state],
        capture_output=True, text=True, env=scripts.environment(), timeout=60, check=True,
    )  # fmt: skip
    assert_dead(int(program.stdout))
    told = "ResourceWarning: <System of host> was not closed before the program ended" in program.stderr
    assert told is (state != "closed"), program.stderr
