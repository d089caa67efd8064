"""Workers that die in the middle of large copies: what is lost is an error, and nothing else is lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest
from actions import bits
from crash import PATIENT, await_generation, kill, restart
from placements import Placement
from transfer_rig import all_back, data, meanwhile, resolve_all

import atomr_native as an

Make = Callable[..., an.System]


@pytest.fixture
def mortal(tiny: None, make_system: Make, worker_process: Placement) -> an.Device:
    """Make a device whose worker may die, and to which arrays of one KiB are large."""
    return make_system(standby="warm", **PATIENT).device()


def test_a_restart_in_the_middle_of_a_put(mortal: an.Device) -> None:
    x, old = data(6000), data(6000, 1)
    target = mortal.put(old, durable=True).wait()
    for at in (1, 4, 7):
        with meanwhile(at, lambda: restart(mortal)), pytest.raises(an.GpuRefStale, match="restarted"):
            mortal.put(x)
    for out in (None, target):
        # All that was sent has run or still will, unless it was running when the worker was killed.
        with meanwhile(4, lambda: settle_and_restart(mortal)):
            ref = mortal.put(x, durable=True, out=out)
        assert bits(ref.numpy()) == bits(x)
    all_back(mortal)


def settle_and_restart(device: an.Device) -> None:
    resolve_all(device)
    restart(device)


def test_a_restart_in_the_middle_of_a_get(mortal: an.Device) -> None:
    x = data(6000)
    durable = mortal.put(x, durable=True)
    for at in (2, 5):
        with meanwhile(at, lambda: settle_and_restart(mortal)):
            assert bits(durable.numpy()) == bits(x)
        with meanwhile(at, lambda: settle_and_restart(mortal)):
            # What was copied on the device is gone, and copied again.
            assert bits(durable[::2].numpy()) == bits(x[::2])
    volatile = mortal.put(x)
    with meanwhile(3, lambda: restart(mortal)), pytest.raises((an.GpuRefStale, an.DeviceFault), match="restart"):
        volatile.numpy()
    all_back(mortal)


@pytest.mark.fake_only(work=["put", "put out", "get durable"])
@pytest.mark.parametrize("work", ["put", "put durable", "put out", "get", "get durable"])
def test_a_worker_that_dies_at_any_moment(mortal: an.Device, work: str) -> None:
    """Whatever becomes of a copy, it is complete or an error, and staging memory comes back."""
    n = 100_000
    kept = mortal.put(data(n), durable=True).wait()
    for round_ in range(3):
        x, done = data(n, round_ + 2), threading.Event()
        volatile = mortal.put(data(n))
        before = bits(kept.numpy())

        def strike(done: threading.Event = done, delay: float = 0.005 * round_) -> None:
            done.wait(delay)
            kill(mortal)

        thread = threading.Thread(target=strike)
        generation = mortal.generation
        thread.start()
        try:
            if work.startswith("get"):
                ref = kept if "durable" in work else volatile
                assert bits(ref.numpy()) == (before if "durable" in work else bits(data(n)))
            else:
                ref = mortal.put(x, durable="durable" in work, out=kept if "out" in work else None)
                assert bits(ref.numpy()) == bits(x)
        except (an.GpuRefStale, an.DeviceFault):
            pass
        done.set()
        thread.join()
        await_generation(mortal, generation + 1)
        with contextlib.suppress(an.GpuRefStale):
            now = bits(kept.clear_error().numpy()) if "out" not in work else bits(kept.numpy())
            assert now in (before, bits(x))
        mortal.put(data(n), out=kept).wait()
    all_back(mortal)
