"""Arrays of other code as memory of the host device: how long they are kept, and for whom."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scripts
from actions import Gate, eventually
from lending import check_array_is_taken_up_again, check_owner_is_kept

import atomr_native as an

Make = Callable[..., an.System]


def test_the_owner_is_kept_for_handles_and_messages(local: an.Device) -> None:
    check_owner_is_kept(local, lambda: np.arange(10.0))


def test_the_owner_goes_at_once_where_nothing_uses_it(local: an.Device) -> None:
    for _ in range(3):
        x = np.arange(10.0)
        gone = weakref.ref(x)
        local.asarray(x).wait()
        del x
        gc.collect()
        assert gone() is None


def test_an_array_is_taken_up_again_with_its_messages(local: an.Device) -> None:
    check_array_is_taken_up_again(local, np.zeros(8))


def test_a_worker_that_hangs_keeps_what_it_was_given(make_system: Make) -> None:
    """The watchdog gives a thread up, which goes on all the same: it may still write memory of others."""
    device = make_system(isolation="thread", watchdog=0.2).device("host")
    x, y = np.zeros(8), np.zeros(8)
    owners = [weakref.ref(array) for array in (x, y)]
    refs = [device.asarray(array, copy=False) for array in (x, y)]
    gate = Gate(device.lane("a"))
    with pytest.raises(an.DeviceLost, match=r"hangs \(given up, by the watchdog: message 1 of 'a'.*may still write"):
        gate.reply.result(60)
    del x, refs[0]
    gc.collect()
    device.system.close()
    del y, refs[:]
    gc.collect()
    assert all(owner() is not None for owner in owners)
    worker = device._state.supervisor._left
    assert worker is not None
    gate.open()
    eventually(lambda: not worker.alive())


def test_freeing(local: an.Device) -> None:
    x = np.zeros(8)
    ref, other = local.asarray(x), local.asarray(x[2:])
    ref.free()
    ref.free()
    for handle in (ref, other):
        with pytest.raises(an.GpuRefStale) as caught:
            handle.numpy()
        assert caught.value.reason == "freed"
    again = local.asarray(x)
    assert again.numpy().tolist() == [0] * 8
    with Gate(local.elementwise) as gate:
        local.elementwise.run("x + 1", x=again, out=again)
        again.free()
        made: list[an.GpuRef] = []
        thread = threading.Thread(target=lambda: made.append(local.asarray(x)))
        thread.start()
        thread.join(0.05)
        assert not made  # the order of what was freed and of what comes holds
        gate.open()
        thread.join(30)
    assert made[0].numpy().tolist() == [1] * 8


def test_stale_handles_keep_nothing(local: an.Device) -> None:
    x = np.zeros(8)
    gone = weakref.ref(x)
    ref = local.asarray(x)
    ref.free()
    del x
    gc.collect()
    eventually(lambda: gone() is None)
    assert not ref.valid


def test_exports_of_imports(local: an.Device) -> None:
    x = np.arange(6.0)
    gone = weakref.ref(x)
    ref = local.asarray(x)
    view = np.from_dlpack(ref)
    assert view.__array_interface__["data"][0] == x.__array_interface__["data"][0]
    with ref.lend() as array:
        array[0] = 50
    assert x[0] == 50
    del x, ref, array
    gc.collect()
    assert view.tolist() == [50, 1, 2, 3, 4, 5]
    assert local.asarray(view, copy=False).numpy()[0] == 50
    del view
    gc.collect()
    eventually(lambda: gone() is None)


def test_a_name_does_not_own(local: an.Device) -> None:
    x = np.arange(6.0)
    ref = local.asarray(x)[1:]
    name = pickle.loads(pickle.dumps(ref))
    assert name.numpy().tolist() == [1, 2, 3, 4, 5]
    assert name.memory_span() == ref.memory_span()
    gone = weakref.ref(x)
    del x, ref
    gc.collect()
    eventually(lambda: gone() is None)
    with pytest.raises(an.GpuRefStale):
        name.numpy()


def test_a_lost_device_lets_go(make_system: Make) -> None:
    device = make_system(isolation="thread").device("host")
    x, y = np.arange(6.0), np.zeros(6)
    gone = [weakref.ref(x), weakref.ref(y)]
    refs = [device.asarray(x), device.asarray(y)]
    del x, y
    with Gate(device.elementwise):
        device.elementwise.run("x + 1", x=refs[0], out=refs[1])
    device.inject_fault("exit")
    eventually(lambda: device.stats()["state"] == "lost")
    eventually(lambda: all(r() is None for r in gone))
    with pytest.raises(an.DeviceLost):
        refs[0].numpy()


def test_closing_lets_go(make_system: Make) -> None:
    system = make_system(isolation="thread")
    device = system.device("host")
    x, lent = np.arange(6.0), np.arange(3.0)
    gone = [weakref.ref(x), weakref.ref(lent)]
    ref, view = device.asarray(x), np.from_dlpack(device.asarray(lent))
    del x, lent
    system.close()
    gc.collect()
    assert gone[0]() is None
    assert view.tolist() == [0, 1, 2]
    with pytest.raises(an.ActorStopped):
        device.asarray(np.zeros(3))
    del view
    gc.collect()
    assert gone[1]() is None
    assert not ref.valid


def test_a_forked_child_lets_the_parents_be(local: an.Device) -> None:
    x = np.arange(6.0)
    ref = local.asarray(x)
    if (child := os.fork()) == 0:
        status = 1
        try:
            with pytest.raises(an.DeviceLost):
                local.asarray(x)
            del ref
            gc.collect()
            status = 0 if x.tolist() == [0, 1, 2, 3, 4, 5] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ref.numpy().tolist() == x.tolist()


def test_owners_with_destructors_that_use_the_device(local: an.Device) -> None:
    seen: list[Any] = []

    class Talkative(np.ndarray[Any, Any]):
        def __del__(self) -> None:
            if self.base is None or self.shape == (7,):
                seen.append(local.asarray(np.arange(3.0)).numpy().tolist())

    x = np.arange(7.0).view(Talkative)
    y = local.elementwise.run("x + 1", x=local.asarray(x))
    del x
    gc.collect()
    y.wait()
    eventually(lambda: seen == [[0, 1, 2]])


def test_without_a_worker_it_waits_for_the_next(make_system: Make) -> None:
    """In process placement only a copy is possible, also while the device restarts."""
    device = make_system().device("host")
    os.kill(device.worker_pid or 0, signal.SIGKILL)
    assert device.asarray(np.arange(3.0)).numpy().tolist() == [0, 1, 2]
    host = device.host_array(3)
    ref = device.asarray(host, copy=False)
    os.kill(device.worker_pid or 0, signal.SIGKILL)
    ref.fill(3)
    ref.wait()
    assert host.tolist() == [3, 3, 3]


def test_a_handle_that_lives_until_the_interpreter_ends_does_not_hold_it_up() -> None:
    out = scripts.run(
        """
        import numpy as np
        import atomr_native as an

        with an.System(standby="off", isolation="thread") as system:
            ref = system.device("host").asarray(np.ones(3), copy=False)
            print(ref.numpy().sum())
        """
    )
    assert out == "3.0\n"
