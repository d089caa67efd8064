"""Interrupts, signal handlers and callbacks of the garbage collector in every public call; see `test_interrupts.py`."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib.util
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from every_call import EveryCall
from interrupts import Interrupter

import atomr_native as an

pytestmark = [
    pytest.mark.host_only,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

_PATIENCE = 120.0


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryCall]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        with an.System(timeout=_PATIENCE, standby="off") as system:
            yield EveryCall(system, tmp_path_factory.mktemp("groups"))


@pytest.fixture(scope="module")
def durations(calls: EveryCall) -> dict[str, float]:
    """Seconds of each call, the second time that it is made."""
    took = {}
    for name, make in calls.makes.items():
        make()
        began = time.perf_counter()
        make()
        took[name] = time.perf_counter() - began
    return took


@pytest.fixture(autouse=True)
def no_hang(calls: EveryCall) -> Iterator[None]:
    """End the process, with every thread's stack, if a call hangs."""
    faulthandler.dump_traceback_later(6 * _PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    calls.check()


@pytest.mark.parametrize(
    ("seed", "interrupts"), [(11, 400), *(pytest.param(seed, 10_000, marks=pytest.mark.slow) for seed in (12, 13))]
)
def test_an_exception_at_any_moment(calls: EveryCall, durations: dict[str, float], seed: int, interrupts: int) -> None:
    chance, names = random.Random(seed), list(calls.makes)
    met = dict.fromkeys(names, 0)
    with Interrupter(chance) as interrupter:
        while interrupter.count < interrupts or not all(met.values()):
            name = min(names, key=lambda each: (met[each], chance.random()))
            met[name] += interrupter.call(calls.makes[name], 1.2 * durations[name])


#: In a recording, and in a group of a communicator, a nested call is part of it, or refused.
COLLECTING = {"record", "function", "ranks_recorded", "send_between_ranks"}


def nested(calls: EveryCall, chance: random.Random, made: list[str]) -> Callable[[], None]:
    """Return what makes another call inside of any; a call that would wait for its own thread is refused at once."""
    plain = [name for name in calls.makes if "async" not in name and "large" not in name and name != "grow"]
    busy = threading.local()

    def make() -> None:
        if getattr(busy, "inside", False):
            return
        busy.inside = True
        try:
            name = chance.choice(plain)
            with contextlib.suppress(an.NestedCall):
                calls.makes[name]()
                made.append(name)
        finally:
            busy.inside = False

    return make


def test_a_signal_handler_makes_calls(calls: EveryCall, durations: dict[str, float]) -> None:
    chance, made = random.Random(14), list[str]()
    with Interrupter(chance, nested(calls, chance, made)) as interrupter:
        for name in [name for name in calls.makes if name not in COLLECTING] * 2:
            interrupter.call(calls.makes[name], durations[name])
    assert made


def test_callbacks_of_the_collector_make_calls(calls: EveryCall) -> None:
    chance, made = random.Random(15), list[str]()
    make = nested(calls, chance, made)

    def collected(phase: str, _info: dict[str, int]) -> None:
        if phase == "stop":
            make()

    before = gc.get_threshold()
    gc.callbacks.append(collected)
    try:
        for name in [name for name in calls.makes if name not in COLLECTING] * 2:
            gc.set_threshold(chance.randrange(5, 60), 1000, 1000)
            calls.makes[name]()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
    assert made


#: Classes whose methods are called, and those methods that are not, each with the reason.
PUBLIC: tuple[type, ...] = (
    an.System, an.Device, an.GpuRef, an.DurableGroup, an.Communicator, an.RecordedPlan, an.Plan, an.Pipeline,
)  # fmt: skip
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(
        ("System.close", "System.device", "System.communicator_async", "Device.close"),
        "their interrupts are those of `test_interrupts.py`: devices that start and close",
    ),
    **dict.fromkeys(("Device.inject_fault", "Device.restart_timeline", "Device.abandon"), "of faults, and for tests"),
    "Device.cuda_kernel": "the host device refuses it",
    **dict.fromkeys(
        (
            "Communicator.refuse_symmetric", "DurableGroup.bring_back", "DurableGroup.describe",
            "DurableGroup.make_spare", "DurableGroup.recovered", "DurableGroup.tear", "DurableGroup.untear_shadow",
            "Plan.check_apart", "Plan.fix", "Plan.make", "Plan.name_fixed", "Plan.put_in_place",
            "RecordedPlan.access_of", "RecordedPlan.name_fixed", "RecordedPlan.of", "RecordedPlan.send", "Plan.send",
        ),
        "not public: parts of other calls",
    ),
}  # fmt: skip


def test_every_method_is_called(calls: EveryCall, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def spy(name: str, method: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            seen.add(name)
            return method(*args, **options)

        return call

    every = set()
    for kind in PUBLIC:
        for name in dir(kind):
            method = getattr(kind, name)
            if name.startswith("_") or not callable(method) or isinstance(method, type):
                continue
            every.add(f"{kind.__name__}.{name}")
            if not isinstance(kind.__dict__.get(name), (classmethod, staticmethod)):
                monkeypatch.setattr(kind, name, spy(f"{kind.__name__}.{name}", method))
    if importlib.util.find_spec("numba_cuda") is None:
        every.remove("Device.kernel")  # whose calls are made with it
    for make in calls.makes.values():
        make()
    lacking = sorted(every - seen - set(LEFT_OUT))
    assert not lacking, f"no call of {lacking}: add one to tests/helpers/every_call.py"
    assert set(LEFT_OUT) <= every
