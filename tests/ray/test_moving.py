"""Bytes of arrays between processes: by descriptors on one machine, by TCP from another one."""

from __future__ import annotations

import ctypes
import dataclasses
import pickle
import signal
import socket
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import leaks
import numpy as np
import pytest
import scripts
from actions import eventually
from placements import ALL, HOST, Placement, resolve

import atomr_native as an
from atomr_native.ray.moving import client as taking
from atomr_native.ray.moving import nixl as by_nixl
from atomr_native.ray.moving import server as giving
from atomr_native.ray.moving.channel import Channel, Take
from atomr_native.ray.moving.client import Broken, Client
from atomr_native.ray.moving.server import Server
from atomr_native.ray.moving.way import Way
from atomr_native.runtime.listing import machine_gpus
from atomr_native.system import state_of

LARGE = (17 << 20) + 3  # more than two pieces

#: Gives an array until it is told to end.
GIVER = """
import pickle, sys
import numpy as np
import atomr_native as an
from atomr_native.ray.moving.server import Server
from atomr_native.system import state_of

kind, isolation, count = sys.argv[1:]
with an.System(standby="off", isolation=isolation) as system:
    if kind != "host":
        state_of(system).see_all_gpus(1)
    ref = system.device(kind).put(np.arange(int(count), dtype=np.uint8))
    server = Server(lambda key: ref, "127.0.0.1")
    print(pickle.dumps(server.way).hex(), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module", params=ALL)
def placement(request: pytest.FixtureRequest) -> Placement:
    return resolve(request)


@pytest.fixture(scope="module")
def systems(placement: Placement) -> Iterator[tuple[an.Device, an.Device]]:
    """The giving and the receiving side."""
    options = {"standby": "off", "allow_crash": True, "within": 0.0}
    with placement.system(**options) as first, placement.system(**options) as second:
        yield first.device(placement.device), second.device(placement.device)


class Side:
    """A server of named arrays, and how it is reached."""

    def __init__(self, *, far: bool = False) -> None:
        self.arrays: dict[str, an.GpuRef] = {}
        self.server = Server(self.find, "127.0.0.1")
        self.way = dataclasses.replace(self.server.way, machine="elsewhere") if far else self.server.way
        self.client = Client()

    def find(self, key: str) -> an.GpuRef:
        if key not in self.arrays:
            raise an.GpuRefStale(f"there is no {key!r}", "freed")
        return self.arrays[key]

    def take(self, key: str, device: an.Device | None) -> Any:
        return self.client.take(self.way, key, device)

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture(params=["near", "far"])
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    made = Side(far=request.param == "far")
    yield made
    made.close()


def in_use(device: an.Device) -> int:
    return device.stats()["memory"]["pools"]["volatile"]["in_use"]


def test_an_array_arrives_on_a_device_and_as_an_array(systems: tuple[an.Device, an.Device], side: Side) -> None:
    first, second = systems
    for shape in ((), (3, 0), (5, 7), (LARGE // 4 + 3,)):
        data = np.random.default_rng(7).integers(0, 1 << 30, shape, dtype=np.int32)
        side.arrays["x"] = first.put(data)
        for _ in range(2):  # the second time by the memory that is mapped already
            found = side.take("x", second)
            assert found.device is second
            assert found.dtype == data.dtype
            assert np.array_equal(found.numpy(), data)
            array = side.take("x", None)
            assert array.dtype == data.dtype
            assert np.array_equal(array, data)
            assert array.flags.writeable
        found.fill(1)
        assert np.array_equal(side.arrays["x"].numpy(), data)  # it is a copy


def test_views_and_types(systems: tuple[an.Device, an.Device], side: Side) -> None:
    first, second = systems
    for dtype in ("bfloat16", "bool", "complex128"):
        x = first.put(np.arange(60).reshape(6, 10) % 7, dtype, casting="unsafe")
        side.arrays["view"] = x[1::2, ::3]
        found = side.take("view", second)
        assert found.shape == (3, 4)
        assert found.numpy().tobytes() == x.numpy()[1::2, ::3].tobytes()


def test_a_transfer_waits_for_the_writers_and_does_not_read_half_a_write(
    systems: tuple[an.Device, an.Device], side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = systems
    x = side.arrays["x"] = first.full((LARGE // 8,), 1, "int64")
    asked: list[bool] = []
    give = Server._give

    def gives(server: Any, channel: Any, take: Any, given: Any) -> None:
        asked.append(take.steady)
        give(server, channel, take, given)

    version = Server._version

    def overtaken(ref: an.GpuRef) -> tuple[int, ...]:
        """A writer comes after the version has been read."""
        found = version(ref)
        if len(asked) == 1:
            x.fill(2)
        return found

    monkeypatch.setattr(Server, "_give", gives)
    monkeypatch.setattr(Server, "_version", staticmethod(overtaken))
    assert (side.take("x", second).numpy() == 2).all()
    assert asked == [False, True]


def test_writers_that_never_pause(systems: tuple[an.Device, an.Device], side: Side) -> None:
    first, second = systems
    x = side.arrays["x"] = first.zeros((LARGE // 64,), "int64")
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            x.fill(number).wait()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(8):
            for found in (side.take("x", second).numpy(), side.take("x", None)):
                assert (found == found[0]).all()
    finally:
        ended.set()
        thread.join()


def test_errors_of_the_array_arrive_and_the_way_stays_open(
    systems: tuple[an.Device, an.Device], side: Side
) -> None:  # fmt: skip
    first, second = systems
    side.arrays["x"] = first.put(np.arange(9))
    with pytest.raises(an.GpuRefStale, match="no 'y'") as error:
        side.take("y", second)
    assert error.value.reason == "freed"
    gone = side.arrays["gone"] = first.put([1.0])
    gone.free()
    with pytest.raises(an.GpuRefStale):
        side.take("gone", None)
    with pytest.raises(an.InvalidRequest, match="nothing"), no_room():
        side.take("x", None)
    assert side.take("x", second).numpy().tolist() == list(range(9))
    assert sum(map(len, side.client._idle.values())) == 1


@contextmanager
def no_room() -> Iterator[None]:
    """The receiver has no room."""

    def refuse(*_: object) -> None:
        raise an.InvalidRequest("nothing fits")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taking, "from_host", refuse)
        patch.setattr(taking, "from_stream", refuse)
        yield


def test_memory_is_lent_only_meanwhile(systems: tuple[an.Device, an.Device], side: Side) -> None:
    first, second = systems
    before = in_use(first), in_use(second)
    side.arrays["x"] = first.zeros((LARGE,), "uint8")
    side.take("x", second)
    side.take("x", None)
    del side.arrays["x"]
    eventually(lambda: in_use(first) <= before[0] and in_use(second) <= before[1])
    first.trim()  # what the receiver has mapped is no more
    y = side.arrays["y"] = first.full((LARGE + 5,), 3, "uint8")
    assert (side.take("y", None) == 3).all()
    assert y.valid


def test_many_receivers_at_once(systems: tuple[an.Device, an.Device], side: Side) -> None:
    first, second = systems
    data = [np.full((1 << 16,), n) for n in range(6)]
    side.arrays = {str(n): first.put(array) for n, array in enumerate(data)}
    wrong: list[Any] = []

    def take(n: int) -> None:
        for _ in range(5):
            found = side.take(str(n), second if n % 2 else None)
            if not np.array_equal(np.asarray(found), data[n]):
                wrong.append(found)

    threads = [threading.Thread(target=take, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_gpu_that_is_not_reached_gets_the_bytes_through_host_memory(
    systems: tuple[an.Device, an.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = systems
    if first.kind == "host":
        pytest.skip("of GPUs")
    tries: list[Any] = []

    def refuse(*args: Any) -> None:
        tries.append(args)
        raise an.Unsupported("no peer access")

    monkeypatch.setattr(type(second._state.imports.segments), "open_shared", refuse)
    side = Side()
    side.arrays["x"] = first.put(np.arange(1000))
    for _ in range(2):
        assert side.take("x", second).numpy().tolist() == list(range(1000))
    assert len(tries) == 1
    side.close()


@pytest.fixture
def nixl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what is known of NIXL, before and after."""
    by_nixl._module.cache_clear()
    monkeypatch.setattr(by_nixl, "_agent", None)
    yield
    by_nixl._module.cache_clear()


class Nixl:
    """Stands for NIXL's module: agents of one process, which refuse what is not registered."""

    registered: ClassVar[dict[str, list[tuple[int, int]]]] = {}
    fails = False

    def __init__(self, name: str, _: Any) -> None:
        self.name = name
        self.known: list[str] = []
        Nixl.registered[name] = []

    def register_memory(self, what: list[Any], kind: str) -> tuple[int, int]:
        assert kind == "DRAM"
        ((address, nbytes, _, _),) = what
        Nixl.registered[self.name].append((address, nbytes))
        return address, nbytes

    def deregister_memory(self, memory: tuple[int, int]) -> None:
        Nixl.registered[self.name].remove(memory)

    def get_agent_metadata(self) -> bytes:
        return self.name.encode()

    def add_remote_agent(self, described: bytes) -> str:
        self.known.append(described.decode())
        return self.known[-1]

    def remove_remote_agent(self, name: str) -> None:
        self.known.remove(name)

    def get_xfer_descs(self, what: list[tuple[int, int, int]], kind: str) -> tuple[int, int]:
        assert kind == "DRAM"
        return what[0][:2]

    def initialize_xfer(self, way: str, mine: Any, theirs: Any, name: str, _: bytes) -> Any:
        assert (way, name in self.known) == ("READ", True)
        assert mine in Nixl.registered[self.name]
        if theirs not in Nixl.registered[name]:
            raise RuntimeError("NIXL_ERR_NOT_FOUND")
        return mine, theirs

    def transfer(self, handle: Any) -> str:
        return "ERR" if Nixl.fails else "PROC"

    def check_xfer_state(self, handle: Any) -> str:
        (target, nbytes), (source, _) = handle
        ctypes.memmove(target, source, nbytes)
        return "DONE"

    def release_xfer_handle(self, handle: Any) -> None:
        assert handle


def test_host_memory_of_another_machine_is_read_by_nixl(nixl: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def config(backends: list[str]) -> None:
        assert backends == ["UCX"]

    module = types.SimpleNamespace(nixl_agent=Nixl, nixl_agent_config=config)
    monkeypatch.setitem(sys.modules, "nixl", types.ModuleType("nixl"))
    monkeypatch.setitem(sys.modules, "nixl._api", module)  # type: ignore[arg-type]
    reads: list[int] = []
    read = by_nixl.Agent.read

    def counted(agent: Any, described: bytes, source: int, target: int, nbytes: int) -> None:
        reads.append(nbytes)
        read(agent, described, source, target, nbytes)

    monkeypatch.setattr(by_nixl.Agent, "read", counted)
    by_nixl_side(reads, [12, 12, 8], fails=False)
    monkeypatch.setattr(Nixl, "fails", True)
    by_nixl_side(reads, [12, 12, 8, 12], fails=True)
    assert not any(Nixl.registered.values())


def by_nixl_side(reads: list[int], expected: list[int], *, fails: bool) -> None:
    side = Side(far=True)
    assert side.way.nixl
    with an.System(standby="off") as system:
        device = system.device("host")
        x = side.arrays["x"] = device.put(np.arange(3, dtype="float32"))
        side.arrays["none"] = device.zeros((0,))
        out = device.zeros((2,))
        assert side.take("x", device).numpy().tolist() == [0.0, 1.0, 2.0]
        assert side.take("x", None).tolist() == [0.0, 1.0, 2.0]
        side.client.take(side.way, "x", device, out, (1, 2))
        assert out.numpy().tolist() == [1.0, 2.0]
        assert side.take("none", None).shape == (0,)
        assert reads == expected
        x.fill(7).wait()
        del x
    side.close()
    assert fails == Nixl.fails


def test_nixl_that_is_demanded_and_missing(nixl: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in by_nixl._MODULES:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    assert not by_nixl.is_wanted()
    monkeypatch.setenv("ATOMR_NATIVE_NIXL", "1")
    with pytest.raises(an.Unsupported, match="install the package nixl") as error:
        Side()
    assert error.value.rule == "ray.nixl"
    monkeypatch.setenv("ATOMR_NATIVE_NIXL", "0")
    assert not by_nixl.is_wanted()
    monkeypatch.setenv("ATOMR_NATIVE_NIXL", "yes")
    with pytest.raises(an.InvalidRequest, match="NIXL='yes'; allowed: 0, 1"):
        by_nixl.is_wanted()


@contextmanager
def giver(count: int, device: str = HOST.device) -> Iterator[tuple[Way, scripts.Program]]:
    with scripts.start(GIVER, device, "process", str(count), piped=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield pickle.loads(bytes.fromhex(line)), process
        process.kill()


@pytest.mark.parametrize("far", [False, True])
def test_another_process_that_is_killed(far: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    with giver(LARGE) as (found, process), an.System(standby="off") as system:
        way = dataclasses.replace(found, machine="elsewhere") if far else found
        device = system.device("host")
        expected = np.arange(LARGE, dtype=np.uint8)
        assert np.array_equal(client.take(way, "x", device).numpy(), expected)
        receive = Channel.receive

        def killed(channel: Channel) -> Any:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return receive(channel)

        monkeypatch.setattr(Channel, "receive", killed)
        with pytest.raises(Broken):
            client.take(way, "x", None)
        with pytest.raises(Broken) as error:
            client.take(way, "x", None)
        assert error.value.never
    client.close()


@pytest.mark.gpu
@pytest.mark.parametrize("far", [False, True])
def test_gpus_of_two_processes(far: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process has a GPU, as nodes on Ray have; the bytes go from GPU to GPU."""
    if machine_gpus() < 2:
        pytest.skip("needs two GPUs")
    client, expected = Client(), np.arange(LARGE, dtype=np.uint8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with giver(LARGE, "cuda:0") as (found, process):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        way = dataclasses.replace(found, machine="elsewhere") if far else found
        with an.System(standby="off") as system:
            state_of(system).see_all_gpus(1)
            for device in (system.device("cuda:0"), system.device("host"), None):
                for _ in range(2):
                    taken = client.take(way, "x", device)
                    assert np.array_equal(taken if device is None else taken.numpy(), expected)
            assert far or not next(iter(client._idle.values()))[0]._refused  # by peer access
            process.kill()
            process.wait()
            with pytest.raises(Broken):
                client.take(way, "x", system.device("cuda:0"))
            assert system.device("cuda:0").put([1.0]).numpy().tolist() == [1.0]
    client.close()


def ends(channel: Channel) -> bool:
    """Ask for an array; return whether the other end ends the connection instead."""
    try:
        channel.send(Take("x", "host"))
        channel.receive()
    except OSError:
        return True
    return False


@pytest.mark.parametrize("far", [False, True])
def test_a_secret_is_asked_for_at_both_ends(far: bool) -> None:
    side = Side(far=far)
    with an.System(standby="off") as system:
        side.arrays["x"] = system.device("host").put([1.0])
        wrong = dataclasses.replace(side.way, secret=b"another")
        with pytest.raises(Broken, match="another one"):
            side.client.take(wrong, "x", None)
        for data in (b"", b"x" * 200):
            with socket.socket(socket.AF_INET if far else socket.AF_UNIX) as stranger:
                stranger.connect(("127.0.0.1", side.way.port) if far else side.way.local)
                stranger.sendall(data)
        with socket.socket(socket.AF_INET if far else socket.AF_UNIX) as stranger:  # which does not look at the answer
            stranger.connect(("127.0.0.1", side.way.port) if far else side.way.local)
            channel = Channel(stranger)
            assert not channel.greet(b"another", first=True)
            assert ends(channel)
        assert side.take("x", None).tolist() == [1.0]
    side.close()
    with pytest.raises(Broken, match="left"):
        side.take("x", None)
    with pytest.raises(Broken):
        Client().take(side.way, "x", None)


def test_a_process_that_has_ended_leaves_no_descriptors() -> None:
    with an.System(standby="off", isolation="thread") as system:
        device = system.device("host")
        x = device.put(np.arange(LARGE, dtype=np.uint8))
        x.wait()
        side = Side()
        side.arrays["x"] = x
        before = leaks.descriptors()
        assert (side.take("x", None) == np.arange(LARGE, dtype=np.uint8)).all()
        side.client.forget(side.way)
        eventually(lambda: not side.server._channels)
        assert leaks.descriptors()["memfd:atomr"] == before["memfd:atomr"]
        side.close()


def test_connections_that_nobody_uses_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "IDLE", 0.05)
    side = Side()
    with an.System(standby="off") as system:
        side.arrays["x"] = system.device("host").put([1.0])
        for _ in range(2):
            assert side.take("x", None).tolist() == [1.0]
            eventually(lambda: not side.client._idle and not side.server._channels)
    side.close()


def test_a_transfer_is_ended_when_its_node_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver learns from the engine that the other process is gone, though its connection says nothing."""
    side, entered, ended = Side(), threading.Event(), threading.Event()

    def stuck(*_: object) -> None:
        entered.set()
        ended.wait(30)

    monkeypatch.setattr(giving.Server, "_give", stuck)
    failures: list[BaseException] = []

    def take() -> None:
        try:
            side.take("x", None)
        except Broken as error:
            failures.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    assert entered.wait(30)
    side.client.forget(side.way)
    thread.join(30)
    ended.set()
    assert len(failures) == 1
    side.close()
