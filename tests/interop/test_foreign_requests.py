"""What a worker answers to requests for memory of others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import atomr_native as an
from atomr_native.worker.foreign import open_foreign


class Lanes:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device("host")


def test_each_kind() -> None:
    lanes: Any = Lanes()
    open_foreign(lanes, {"segment": 3, "kind": "window"}, [], in_process=False)
    open_foreign(lanes, {"segment": 4, "kind": "shared", "nbytes": 9, "handle": "0102"}, [], in_process=True)
    open_foreign(lanes, {"segment": 5, "kind": "peer", "nbytes": 8, "uuid": "ff"}, [7], in_process=True)
    open_foreign(lanes, {"segment": 6, "kind": "own", "nbytes": 10}, [], in_process=True)
    assert lanes.calls == [
        ("open_window", 3), ("open_shared", 4, 9, b"\x01\x02"), ("open_peer", 5, 8, 7, b"\xff"), ("open_own", 6, 10),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "fds", "error"),
    [
        ({"kind": "window"}, [], an.Unsupported), ({"kind": "other"}, [], an.InvalidRequest),
        ({}, [], an.InvalidRequest),
        ({"kind": "peer", "nbytes": 1, "uuid": ""}, [], an.InvalidRequest),
        ({"kind": "shared", "nbytes": 1, "handle": "x"}, [], ValueError), ({"kind": "shared"}, [], KeyError),
    ],
)  # fmt: skip
def test_requests_that_make_no_sense(fields: dict[str, Any], fds: list[int], error: type[Exception]) -> None:
    lanes: Any = Lanes()
    with pytest.raises(error):
        open_foreign(lanes, {"segment": 1, **fields}, fds, in_process=True)
    assert lanes.calls == []


def test_the_host_device_maps_nothing_of_others(device: an.Device) -> None:
    links = device._state.supervisor.links
    for fields in (
        {"kind": "shared", "nbytes": 64, "handle": "00" * 64},
        {"kind": "window"},
        {"kind": "own", "nbytes": 64},
    ):
        with pytest.raises(an.Unsupported):
            links.open_foreign(9, [], **fields)
    fd = os.memfd_create("other")
    try:
        with pytest.raises(an.Unsupported):
            links.open_foreign(9, [fd], kind="peer", nbytes=4096, uuid="00" * 16)
    finally:
        os.close(fd)
    with pytest.raises(an.InvalidRequest, match="segment 9"):
        links.close_foreign(9, device.generation).result(30)
    assert device.put([1.0]).numpy().tolist() == [1]


def test_a_window_takes_its_number_once() -> None:
    with an.System(isolation="thread") as system:
        links = system.device("host")._state.supervisor.links
        links.open_foreign(4000, [], kind="window")
        for number in (4000, 0, 4096):
            with pytest.raises(an.InvalidRequest, match="segment"):
                links.open_foreign(number, [], kind="window")
        links.close_foreign(4000, 1).result(30)
        links.open_foreign(4000, [], kind="window")
