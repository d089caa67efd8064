"""The choice of devices for new work, pools whose actors have a device each, and pipelines over devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from actions import Gate

import atomr_native as an


@pytest.fixture(scope="module")
def system() -> Iterator[an.System]:
    with an.System(isolation="thread", standby="off", allow_crash=True, memory_limit=64 << 20) as made:
        for name in ("host", "host:1", "host:2"):
            made.device(name)
        yield made


def test_least_loaded_has_the_fewest_messages_then_the_most_memory(system: an.System) -> None:
    first, second, third = (system.device(f"host:{i}") for i in range(3))
    held = [first.zeros(1 << 20), second.zeros(1 << 10)]
    for ref in held:
        ref.wait()
    assert system.place() is third
    assert system.place(among=[first, "host:1"]) is second
    with Gate(second.lane("mine")), Gate(third.lane("mine")):
        assert system.place() is first  # the others have work, whatever memory they have


def test_near_arrays_in_turn_and_by_key(system: an.System) -> None:
    first, second, third = (system.device(f"host:{i}") for i in range(3))
    small, large = first.zeros(10), second.zeros(1000)
    assert system.place(near=[small, large]) is second
    assert system.place(near=small) is first
    turns = [system.place(policy="round_robin") for _ in range(6)]
    assert turns[:3] == turns[3:]
    assert set(turns) == {first, second, third}
    keys = [f"key {i}" for i in range(60)]
    before = {key: system.place(policy="by_key", key=key) for key in keys}
    assert set(before.values()) == {first, second, third}
    after = {key: system.place(policy="by_key", key=key, among=[first, second]) for key in keys}
    assert all(after[key] is device for key, device in before.items() if device is not third)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"policy": "random"}, "policy='random'"),
        ({"policy": "by_key"}, "policy='by_key' with key=None"),
        ({"key": 3}, "allowed: a key with policy='by_key' only"),
        ({"policy": "by_key", "key": 1.5}, "key=1.5; allowed: a str, bytes, int"),
        ({"near": 3}, "near=3; allowed: a GpuRef"),
        ({"among": "host"}, "among='host'; allowed: a list"),
        ({"among": [4]}, "among has 4; allowed: names and devices of this System"),
    ],
)
def test_bad_choices(system: an.System, options: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        system.place(**options)


def test_closed_devices_are_not_chosen(system: an.System) -> None:
    last = system.device("host:5")
    last.close()
    assert last not in {system.place(policy="round_robin") for _ in range(8)}
    with pytest.raises(an.DeviceLost, match="no device can take work; given: host:5"):
        system.place(among=[last])
    del system._state.devices["host:5"]


class Worker(an.Actor):
    def __init__(self, device: an.Device) -> None:
        self.device = device

    @an.handler
    def on_text(self, _: str) -> str:
        return self.device.name


def test_the_actors_of_a_pool_have_a_device_each(system: an.System) -> None:
    pool = system.pool(Worker, size=3, routing="broadcast", devices=["host", system.device("host:1")])
    assert sorted(pool.ask("where?").result(30)) == ["host", "host", "host:1"]
    pool.resize(4)
    assert sorted(pool.ask("where?").result(30)) == ["host", "host", "host:1", "host:1"]
    with pytest.raises(an.InvalidRequest, match=re.escape("devices=[]; allowed: one or more devices")):
        system.pool(Worker, size=1, devices=[])


class Stage(an.Actor):
    """Takes an array from any device to its own, and adds one."""

    most: ClassVar[dict[str, int]] = {}

    def __init__(self, device: an.Device) -> None:
        self.device = device

    @an.handler
    def on_array(self, ref: an.GpuRef) -> an.GpuRef:
        here = self.device.elementwise.run("x + 1", x=self.device.copy(ref))
        used = self.device.stats(timeout=0)["memory"]["in_use"]
        self.most[self.device.name] = max(self.most.get(self.device.name, 0), used)
        here.wait()
        return here


def test_stages_of_a_pipeline_lie_on_different_devices_with_few_items_in_memory() -> None:
    Stage.most.clear()
    with an.System(isolation="thread", standby="off") as system:
        devices = [system.device(f"host:{i}") for i in range(3)]
        line = an.Pipeline([system.spawn(Stage, device) for device in devices], in_flight=2)
        source, n = devices[0], 1 << 15
        items = (source.put(np.full(n, float(i))) for i in range(20))
        for i, ref in enumerate(line.map(items)):
            assert ref.device is devices[2]
            assert (ref.numpy() == i + 3.0).all()
    # Per item at most its input, its copy and its output; one more is about to be submitted.
    assert all(most <= 9 * 8 * n for most in Stage.most.values()), Stage.most
