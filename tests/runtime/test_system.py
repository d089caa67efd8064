"""Systems and devices: options, life, dead letters, actors, statistics."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from actions import Gate, eventually, fail, failing_plan
from placements import Placement

import atomr_native as an

Make = Callable[..., an.System]


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("isolation", "fork", "'thread'"),
        ("isolation", None, "'process'"),
        ("isolation", np.array(["process", "thread"]), "'process'"),
        ("clock", 3, "FakeClock"),
        ("mailbox", "drop", "'reject'"),
        ("standby", "cold", "'warm'"),
        ("mailbox_size", 31, "32"),
        ("mailbox_size", 1 << 21, "1048576"),
        ("mailbox_size", 64.0, "integer"),
        ("mailbox_size", True, "integer"),
        ("memory_limit", 0, "1"),
        ("memory_limit", -5, "1"),
        ("memory_limit", "1GB", "integer"),
        ("timeout", -0.5, "0"),
        ("timeout", float("nan"), "number"),
        ("timeout", "soon", "number"),
        ("max_restarts", -1, "0"),
        ("within", -1.0, "0"),
        ("watchdog", 0, "0.001"),
        ("seed", -1, "0"),
        ("seed", 1 << 64, "integer"),
        ("spin_us", -1, "0"),
    ],
)
def test_wrong_option_is_named_with_what_is_allowed(option: str, value: Any, hint: str) -> None:
    with pytest.raises(an.InvalidRequest) as caught:
        an.System(**{option: value})
    assert option in str(caught.value)
    assert repr(value) in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("limit", "text"), [({"gpu": 5}, "'gpu'.*'host'"), ({"host": 0}, "host.*=0"), ({"cuda": "1GB"}, "'1GB'")]
)
def test_a_wrong_limit_of_one_kind_is_named(limit: Any, text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=f"memory_limit.*{text}"):
        an.System(memory_limit=limit)


def test_a_limit_for_devices_of_one_kind() -> None:
    with an.System(standby="off", memory_limit={"cuda": 1 << 20}) as system:
        assert system.config.gpu_limit((1 << 30, 1 << 31), 1 << 31) == 1 << 20
        assert system.config.memory_limit_for("host") > 1 << 20
    with an.System(standby="off", isolation="thread", memory_limit={"host": np.int64(8 << 20)}) as system:
        with pytest.raises(an.OutOfMemory) as error:
            system.device("host").empty((9 << 20,), "int8")
        assert error.value.limit == 8 << 20
        assert system.config.gpu_limit((1000, 2000), 2000) == 900


def test_numbers_of_numpy_are_options_too() -> None:
    with an.System(mailbox_size=np.int16(64), timeout=np.float32(2), allow_crash=np.True_) as system:  # type: ignore[arg-type]
        assert (system.config.mailbox_size, system.config.timeout, system.config.allow_crash) == (64, 2.0, True)
        assert {type(value) for value in dataclasses.astuple(system.config)} <= {str, int, float, bool, type(None)}


def test_options_are_keywords_and_frozen(make_system: Make) -> None:
    with pytest.raises(TypeError):
        an.System("thread")  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_system().config.timeout = 1  # type: ignore[misc]


def test_device_is_made_once_and_is_the_default(system: an.System, device: an.Device, placement: Placement) -> None:
    assert system.device() is device
    assert system.device(device.name) is device
    assert device.name == placement.device
    assert device.system is system
    assert device.generation == 1
    assert device.restarts == 0


def test_kind_says_what_a_device_works_on(device: an.Device) -> None:
    assert device.kind == ("host" if device.name == "host" else "cuda")


@pytest.mark.parametrize(
    ("name", "error"),
    [("tpu", an.InvalidRequest), ("", an.InvalidRequest), (0, an.InvalidRequest), ("cuda:99", an.Unsupported)],
)
def test_unknown_device(system: an.System, name: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="host"):
        system.device(name)


def test_threads_that_race_for_a_device_get_the_same(make_system: Make, isolation: str) -> None:
    system, barrier, found = make_system(isolation=isolation), threading.Barrier(8), []

    def get() -> None:
        barrier.wait()
        device = system.device()
        found.append((device, device.put(np.arange(3)).numpy().tolist()))

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(system.device(), [0, 1, 2])] * 8


def test_worker_is_where_the_isolation_says(device: an.Device, isolation: str) -> None:
    assert (device.worker_pid is None) == (isolation == "thread")


def test_close_is_idempotent_and_final(make_system: Make, isolation: str) -> None:
    with make_system(isolation=isolation) as system:
        device = system.device()
        x = device.put([[1.0, 2.0], [3.0, 4.0]])
        lane, plan = device.lane("a"), device.lane("a").noop()
        plan.ask().result(30)
    assert system.closed
    system.close()
    device.close()
    uses: list[Callable[[], object]] = [
        system.device,
        lambda: device.put([1]),
        lambda: device.empty(3),
        lambda: device.zeros((2, 2)),
        lambda: device.copy(x),
        lambda: x.fill(0),
        lambda: device.get(x),
        x.numpy,
        x.wait,
        plan.tell,
        plan.ask,
        lane.noop().tell,
        device.wait_ready,
        lambda: device.host_array(3),
        lambda: device.blas_lt.matmul(x, x),
        lambda: device.elementwise.run("x + 1", x=x),
        lambda: device.lane("b").noop().tell(),
    ]
    for use in uses:
        with pytest.raises((an.ActorStopped, an.GpuRefStale), match="closed"):
            use()
    assert device.trim() == 0
    assert device.stats()["state"] == "closed"
    assert "closed" in repr(system)
    assert "closed" in repr(device)
    assert "device closed" in repr(x)
    assert not x.valid
    x.free()


def test_close_answers_what_is_queued(make_system: Make, isolation: str) -> None:
    system = make_system(isolation=isolation)
    device = system.device()
    lane = device.lane("a")
    seen: list[Any] = []
    with Gate(lane) as gate:
        replies = [lane.noop().ask() for _ in range(20)]
        for reply in replies:
            reply.add_done_callback(lambda r: seen.append(type(r.exception())))
        system.close(0.05)
        for reply in [gate.reply, *replies]:
            assert reply.done()
            with pytest.raises(an.ActorStopped, match="closed"):
                reply.result()
    assert seen == [an.ActorStopped] * 20


def test_close_lets_what_was_sent_finish(make_system: Make, isolation: str) -> None:
    system = make_system(isolation=isolation)
    plan = system.device().lane("a").noop()
    replies = [plan.ask() for _ in range(500)]
    system.close(30)
    assert [reply.result(0) for reply in replies] == [None] * 500


@pytest.mark.parametrize("timeout", [-1, float("nan"), "now"])
def test_close_checks_its_timeout(make_system: Make, timeout: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="timeout"):
        make_system().close(timeout)


def test_failure_of_a_tell_is_a_dead_letter(system: an.System, device: an.Device, caplog: Any) -> None:
    lane, out = device.lane("letters"), device.empty(4)
    before = system.dead_letters.total
    with caplog.at_level(logging.WARNING, "atomr_native.dead_letters"):
        failing_plan(lane, out, text="lost in the post").tell(out=out)
        lane.noop().ask().result(30)
        (letter,) = system.dead_letters
        eventually(lambda: "lost in the post" in caplog.text)  # another thread may be the one that reports it
    assert (letter.device, letter.actor) == (device.name, "letters")
    assert letter.ticket >= 1
    assert isinstance(letter.error, an.LibraryError)
    assert "lost in the post" in str(letter.error)
    assert system.dead_letters.total == before + 1
    assert system.stats()["dead_letters"] == before + 1
    system.dead_letters.clear()
    assert len(system.dead_letters) == 0
    assert system.dead_letters.total == before + 1
    assert device.stats()["actors"]["letters"]["failed"] == 1


def test_failure_of_a_dropped_reply_is_a_dead_letter_and_of_a_held_one_is_not(
    system: an.System, device: an.Device
) -> None:
    lane, out = device.lane("dropped"), device.empty(4)
    with Gate(lane):
        held = fail(lane, out, text="held")
        fail(lane, out, text="dropped")
        last = lane.noop().ask()
    last.result(30)
    assert ["dropped" in str(letter.error) for letter in system.dead_letters] == [True]
    assert "held" in str(held.exception())


def test_failures_are_told_without_being_asked_for(system: an.System, device: an.Device, caplog: Any) -> None:
    lane, out = device.lane("told"), device.empty(4)
    with caplog.at_level(logging.WARNING, "atomr_native.dead_letters"):
        failing_plan(lane, out, text="nobody looks").tell(out=out)
        eventually(lambda: "nobody looks" in caplog.text)


def test_many_failures_are_all_counted(system: an.System, device: an.Device) -> None:
    lane, out = device.lane("many"), device.empty(4)
    plan, before = failing_plan(lane, out), system.dead_letters.total
    for _ in range(500):
        plan.tell(out=out)
    lane.noop().ask().result(30)
    assert system.dead_letters.total == before + 500
    tickets = [letter.ticket for letter in system.dead_letters]
    assert tickets == sorted(tickets)
    assert len(set(tickets)) == 500


def test_lane_is_made_once_by_name(device: an.Device) -> None:
    assert device.lane("x") is device.lane("x")
    assert device.lane("x") is not device.lane("y")
    assert "x" in repr(device.lane("x"))


@pytest.mark.parametrize("name", ["", None, 3, "memory", "blas_lt", "elementwise"])
def test_wrong_lane_name(device: an.Device, name: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="lane name"):
        device.lane(name)


def test_lanes_are_limited_and_running_out_of_them_breaks_nothing(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation).device()
    lanes = []
    with pytest.raises(an.InvalidRequest, match=r"'lane 61'.*at most 64"):  # noqa: PT012
        for i in range(100):
            lanes.append(device.lane(f"lane {i}"))
    assert len(lanes) == 61  # and the three library actors
    an.gather(*[lane.noop().ask() for lane in lanes], timeout=60)
    assert device.put([7]).numpy() == [7]


def test_two_systems_share_nothing(make_system: Make, system: an.System, device: an.Device) -> None:
    other = make_system().device()
    assert other is not device
    x, y = device.put([1.0]), other.put([2.0])
    with pytest.raises(an.InvalidRequest, match="another"):
        device.get(y)
    with pytest.raises(an.InvalidRequest, match="another"):
        other.get(x)
    other.system.close()
    assert x.numpy() == [1]


def test_faults_are_injected_only_where_allowed(make_system: Make, device: an.Device, isolation: str) -> None:
    with pytest.raises(an.InvalidRequest, match="segfault"):
        device.inject_fault("meteor")
    if isolation == "thread":
        with pytest.raises(an.Unsupported, match="would end this process"):
            device.inject_fault("segfault")
    with pytest.raises(an.Unsupported, match="allow_crash"):
        make_system(isolation=isolation, allow_crash=False).device().inject_fault("abort")


def test_test_operations_exist_only_where_allowed(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation, allow_crash=False).device()
    with pytest.raises(an.Unsupported, match=r"test\.fail"):
        fail(device.lane("a"), device.empty(3))


def test_worker_thread_that_ends_loses_the_device(make_system: Make) -> None:
    system = make_system(isolation="thread")
    device = system.device()
    x, lane = device.put([1.0]), device.lane("a")
    lane.noop().ask().result(30)
    device.inject_fault("exit")
    eventually(lambda: device.stats()["state"] == "lost")
    for use in (x.numpy, lane.noop().tell, lambda: device.put([2])):
        with pytest.raises(an.DeviceLost, match="isolation='process'"):
            use()
    assert "device lost" in repr(x)


def test_generation_callback_must_be_callable(device: an.Device) -> None:
    with pytest.raises(an.InvalidRequest, match="callable"):
        device.on_generation("no")  # type: ignore[arg-type]
