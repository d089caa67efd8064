"""The worker's loop over a socket pair, its log, and its known answer."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import fake_worker as fake
import pytest

import atomr_native
from atomr_native import errors
from atomr_native.protocol.frames import (
    MAGIC,
)
from atomr_native.protocol.messages import ABI, WorkerGone, package_version
from atomr_native.runtime.control import ControlClient
from atomr_native.worker import faults, logs
from atomr_native.worker.loop import WorkerLoop

pytestmark = pytest.mark.usefixtures("no_leaks")


# ---- the loop


@contextlib.contextmanager
def running_loop(**options: Any) -> Iterator[tuple[ControlClient, list[Any]]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    made: list[Any] = []

    def factory(*args: Any, **kwargs: Any) -> Any:
        made.append(fake.FakeLanes(*args, **kwargs))
        return made[-1]

    loop = WorkerLoop(
        theirs, placement="thread", lanes_factory=factory, builders=fake.FakeBuilders(), **options
    )  # fmt: skip
    thread = threading.Thread(target=loop.run)
    thread.start()
    client = ControlClient(ours, lambda _: None)
    try:
        yield client, made
    finally:
        client.close()
        thread.join(30)
        assert not thread.is_alive()
        theirs.close()


def init(client: ControlClient, **config: Any) -> dict[str, Any]:
    p = os.memfd_create("p", os.MFD_CLOEXEC)
    os.write(p, b"ring".ljust(8192, b"\0"))
    try:
        answer = client.request(
            "init", (p,), version=package_version(), abi=ABI, placement="thread", config=config, timeout=5
        )
        fd = answer.take_fd()
        assert os.fstat(fd).st_size == answer.fields["w_bytes"] == 4096
        os.close(fd)
        return answer.fields
    finally:
        os.close(p)


def spec(op: str, **fields: Any) -> dict[str, Any]:
    operand = {"name": "x", "dtype": "bfloat16", "shape": [2, 3], "strides": [6, 2], "access": 1}
    return {"op": op, "operands": [operand], "scalars": [], "attributes": list(fields.items())}


def test_every_operation_of_the_loop() -> None:
    with running_loop() as (client, made):
        with pytest.raises(errors.InvalidRequest, match="'init' comes first"):
            client.request("go", timeout=30)
        assert init(client, spin_us=9)["pid"] == os.getpid()
        with pytest.raises(errors.InvalidRequest, match="already"):
            init(client)
        segment = client.request("create_segment", segment=3, nbytes=65536, pool=1, timeout=30).take_fd()
        assert os.fstat(segment).st_size == 65536
        client.request("map_segment", (segment,), segment=4, nbytes=65536, pool=0, timeout=30)
        os.close(segment)
        client.request("unmap_segment", segment=3, timeout=30)
        client.request("open_lane", lane=2, timeout=30)
        event = os.eventfd(0, os.EFD_CLOEXEC)
        client.request("subscribe", (event,), index=1, timeout=30)
        assert os.eventfd_read(event) == 7
        os.close(event)
        assert client.request("build_plan", plan=5, spec=spec("x"), timeout=30).fields == {
            "workspace": 64,
            "notes": [],
            "tuning": "",
        }
        (run, operands, scalars, operation) = made[0].plans[5]
        assert operation == "x"
        assert (made[0].busy[-2:], made[0].busy[0]) == ([True, False], True)
        assert (run, operands[0][0].name, operands[0][1:], scalars) == ("noop", "bfloat16", ((2, 3), (6, 2)), [])
        client.request("go", timeout=30)
        client.request("build_plan", plan=6, spec=spec("x"), suspect=True, timeout=30)
        client.request("trust", timeout=30)
        stats = client.request("stats", timeout=30).fields
        assert (stats["segments"], stats["plans"]) == ([4], [5, 6])
        assert stats["calls"] == [
            "open_lane 2", "begin_build False", "end_build 7", "go",
            "begin_build True", "end_build 7", "suspect 6", "be_cautious False",
        ]  # fmt: skip
        assert (stats["p"], stats["spin_us"], stats["watches"]) == ("ring", 9, False)
        assert stats["rss"] > 1 << 20
        client.request("drop_plan", plan=5, timeout=30)
        assert client.request("recover_groups", groups=[{"sequence": 8}], timeout=30).fields == {
            "groups": [{"sequence": 8}]
        }
        client.request("self_test", timeout=30)
        client.request("close", timeout=30)
        assert made[0].stopped
        with pytest.raises(WorkerGone):
            client.request("stats", timeout=30)


def test_failures_are_answers() -> None:
    with running_loop() as (client, _):
        init(client)
        with pytest.raises(errors.Unsupported, match="unknown control operation 'nonsense'"):
            client.request("nonsense", (0,), timeout=30)
        with pytest.raises(errors.LibraryError, match="KeyError"):
            client.request("create_segment", timeout=30)
        with pytest.raises(errors.InvalidRequest, match="one descriptor, got 2"):
            client.request("map_segment", (0, 0), segment=1, nbytes=1, pool=0, timeout=30)
        with pytest.raises(errors.LibraryError, match=r"ValueError.*the builder failed"):
            client.request("build_plan", plan=1, spec=spec("fail"), timeout=30)
        with pytest.raises(errors.Unsupported, match="allow_crash"):
            client.request("crash", how="segfault", timeout=30)
        client.request("self_test", timeout=30)


def test_the_loop_answers_while_a_plan_is_built() -> None:
    fake.FakeBuilders.release.clear()
    with running_loop() as (client, _):
        init(client)
        slow = client.submit("build_plan", plan=1, spec=spec("wait"))
        dropped = client.submit("drop_plan", plan=1)
        assert client.request("stats", timeout=30).fields["plans"] == []
        assert not slow.done()
        fake.FakeBuilders.release.set()
        deadline = time.monotonic() + 5
        while not dropped.done() and time.monotonic() < deadline:
            client.on_readable()
        assert slow.result(0).fields == {"workspace": 64, "notes": [], "tuning": ""}
        assert dropped.result(0).fields == {}


def test_faults_that_a_thread_survives() -> None:
    with running_loop() as (client, made):
        init(client, allow_crash=True)
        with pytest.raises(errors.LibraryError, match="fault was injected"):
            client.request("crash", how="raise", timeout=30)
        with pytest.raises(errors.Unsupported, match="would end this process"):
            client.request("crash", how="segfault", timeout=30)
        with pytest.raises(errors.InvalidRequest, match=r"unknown fault 'x'; allowed: segfault"):
            client.request("crash", how="x", timeout=30)
        client.request("crash", how="exit", timeout=30)
        with pytest.raises(WorkerGone):
            client.request("stats", timeout=30)
    assert made[0].stopped == 1


def test_the_version_that_is_compared_is_the_packages() -> None:
    assert package_version() == atomr_native.__version__


def test_other_versions_are_refused() -> None:
    with running_loop() as (client, made):
        for version, abi in (("0.0.0", ABI), (package_version(), ABI + 1)):
            with pytest.raises(errors.Unsupported, match="install one version"):
                client.request("init", (0,), version=version, abi=abi, config={}, timeout=30)
        assert not made


def test_an_answer_that_is_no_json_is_an_error() -> None:
    with running_loop() as (client, made):
        init(client)
        made[0].stats = lambda: {"x": object()}
        with pytest.raises(errors.InvalidRequest, match="JSON"):
            client.request("stats", timeout=30)
        client.request("self_test", timeout=30)


def test_a_malformed_request_ends_the_loop() -> None:
    with running_loop() as (client, _):
        client._sock.send(struct.pack("<IIII", MAGIC, 2, 0, 0) + b"{}")
        with pytest.raises(WorkerGone):
            client.request("stats", timeout=30)


def test_thread_placement_changes_nothing_global() -> None:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, logging.lastResort, sys.excepthook)
    with running_loop() as (client, _):
        init(client, log_level=10)
        assert (root.handlers[:], root.level, logging.lastResort, sys.excepthook) == before


# ---- logs and the known answer


def test_log_handler_drops_instead_of_waiting() -> None:
    sent: list[dict[str, Any]] = []
    room = 2
    handler = logs.ControlHandler(lambda m: len(sent) < room and not sent.append(m))  # type: ignore[func-returns-value]
    logger = logging.Logger("t")
    logger.addHandler(handler)
    for i in range(5):
        logger.warning("message %d", i)
    assert [m["message"] for m in sent] == ["message 0", "message 1"]
    assert handler.dropped == 3
    room = 100
    logger.error("x" * 100_000)
    assert sent[2]["message"].startswith("3 log messages")
    assert len(sent[3]["message"]) < 20_000
    assert (sent[3]["level"], sent[3]["name"]) == (logging.ERROR, "t")


def test_known_answer_notices_wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.known_answer()
    monkeypatch.setattr(faults.np, "matmul", lambda x, y, out: out.fill(1))
    with pytest.raises(errors.LibraryError, match="wrong result"):
        faults.known_answer()
