"""Bytes of plans: by digest in the specification, beside it once a worker, checked when they arrive."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_worker as fake
import kernel_shim
import numpy as np
import pytest
from crash import PATIENT, restart

import atomr_native as an
from atomr_native.plans.spec import PlanRequest, PlanSpec
from atomr_native.protocol.binaries import Binary, KeptBinaries, SentBinaries
from atomr_native.protocol.frames import MAX_BLOB, MAX_JSON
from atomr_native.protocol.messages import ABI, package_version
from atomr_native.runtime.control import ControlClient
from atomr_native.runtime.link import Link
from atomr_native.worker.loop import WorkerLoop

#: More than a specification may have.
LARGE = MAX_JSON + (4 << 20)


def test_specifications_are_equal_by_the_digest_of_their_bytes() -> None:
    first, same, other = (PlanSpec("x", (), (), (("code", Binary(data)),)) for data in (b"abc", b"abc", b"abx"))
    assert first == same != other
    assert len({first, same, other}) == 2
    assert dict(first.to_json()["attributes"])["code"] == {"sha256": hashlib.sha256(b"abc").hexdigest(), "nbytes": 3}
    assert [binary.data for binary in first.binaries] == [b"abc"]
    assert "abc" not in repr(first)


def beside(*binaries: Binary) -> tuple[list[dict[str, Any]], bytes]:
    return [binary.reference for binary in binaries], b"".join(binary.data for binary in binaries)


def test_a_worker_keeps_what_came_and_checks_it() -> None:
    kept = KeptBinaries()
    one, two, empty = Binary(b"one"), Binary(b"two two"), Binary(b"")
    kept.take(*beside(one, two, empty), ())
    for binary in (one, two, empty):
        found = kept.find(json.loads(json.dumps(binary.reference)))
        assert found == binary
        assert found.data == binary.data
    kept.take([], b"", [two.digest, "unknown"])
    assert kept.find(one.reference) == one
    for wrong in (two.reference, one.reference | {"nbytes": 4}):
        with pytest.raises(an.InvalidRequest, match="the worker has no binary of"):
            kept.find(wrong)
    for wrong, why in (
        ({"sha256": [], "nbytes": 3}, r"a reference to a binary: sha256 is \[\]"),
        (one.reference | {"nbytes": -1}, "nbytes is -1"),
        ({"sha256": "other"}, "lacks the field 'nbytes'"),
        (b"one", "it is b'one'"),
    ):
        with pytest.raises(an.InvalidRequest, match=why):
            kept.find(wrong)


def test_bytes_that_do_not_fit_their_digest_are_refused() -> None:
    kept, good, other = KeptBinaries(), Binary(b"good"), Binary(b"else")
    for parts, blob, why in (
        ([good.reference], b"evil", "a binary of 4 bytes has the SHA-256 .*, and was announced with"),
        ([good.reference, other.reference], b"goodevil", "and was announced with"),
        ([good.reference], b"good!", r"names binaries of \[4\] bytes and came with 5"),
        ([good.reference], b"goo", r"\[4\] bytes and came with 3"),
        ([good.reference, good.reference | {"nbytes": -1}], b"goo", r"\[4, -1\] bytes and came with 3"),
        ([], b"good", r"\[\] bytes and came with 4"),
    ):
        with pytest.raises(an.InvalidRequest, match=why):
            kept.take(parts, blob, ())
        with pytest.raises(an.InvalidRequest, match="has no binary"):
            kept.find(good.reference)


def test_both_sides_know_what_is_kept() -> None:
    """Whatever is asked for and whatever fails, a worker has what a request names, and nothing for good."""
    rng = random.Random(0)
    binaries = [Binary(bytes([n]) * rng.randrange(1, 60)) for n in range(20)]
    sent, kept, times = SentBinaries(100), KeptBinaries(), 0
    for _ in range(3000):
        needed = rng.sample(binaries, rng.randrange(1, 4))
        sending, forgotten = sent.prepare(needed)
        times += len(sending)
        fails, is_lost = rng.random() < 0.1, rng.random() < 0.5
        if fails:
            sent.doubt([*forgotten, *(binary.digest for binary in sending)])
        if fails and is_lost:
            continue
        kept.take(*beside(*sending), forgotten)
        for binary in needed:
            assert kept.find(binary.reference).data == binary.data
        if not fails:
            assert kept._kept.keys() == sent._kept.keys()
            nbytes = sum(len(binary.data) for binary in kept._kept.values())
            assert nbytes <= max(100, sum(len(binary.data) for binary in needed))
    assert times < 5500  # most were there


# ------------------------------------------------------------------------------------------ over a socket


class Builders(fake.FakeBuilders):
    """Remembers specifications."""

    def __init__(self) -> None:
        self.specs: list[dict[str, Any]] = []

    def build(self, spec: PlanSpec, plan: int, workspace: int | None = None, /) -> Any:
        self.specs.append({name: value.data for name, value in spec.attributes})
        return super().build(spec, plan, workspace)


@contextlib.contextmanager
def serving() -> Iterator[tuple[Link, Builders, list[int]]]:
    """Lend a link to a worker in a thread, its builders, and the sizes of the blobs that are sent."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    builders, sizes = Builders(), list[int]()
    loop = WorkerLoop(theirs, placement="thread", lanes_factory=fake.FakeLanes, builders=builders)
    thread = threading.Thread(target=loop.run)
    thread.start()

    class Client(ControlClient):
        def _submit(self, op: str, fds: Any, blob: Any, timeout: Any, fields: Any) -> tuple[int, Future[Any]]:
            if op == "build_plan":
                sizes.append(len(blob or b""))
            return super()._submit(op, fds, blob, timeout, fields)

    client = Client(ours, lambda _: None)
    try:
        p = os.memfd_create("p", os.MFD_CLOEXEC)
        os.ftruncate(p, 8192)
        version = {"version": package_version(), "abi": ABI}
        client.request("init", (p,), **version, placement="thread", config={}, timeout=30).close()
        os.close(p)
        yield Link(SimpleNamespace(client=client), 1), builders, sizes  # type: ignore[arg-type]
    finally:
        client.close()
        thread.join(30)
        theirs.close()


def request(plan: int, op: str = "x", **binaries: Binary) -> PlanRequest:
    spec = PlanSpec(op, (), (), tuple(binaries.items()))
    return PlanRequest(plan, 0, spec.to_json(), spec.binaries)


@pytest.mark.usefixtures("no_leaks")
def test_bytes_are_sent_once_a_worker() -> None:
    large, small = Binary(os.urandom(LARGE)), Binary(b"small")
    for _ in range(2):  # generations
        with serving() as (link, builders, sizes):
            link.build(request(1, code=large)).close()
            link.build(request(2, code=large, more=small)).close()
            link.build(request(3, more=small)).close()
            link.build(request(4)).close()
            assert sizes == [LARGE, 5, 0, 0]
            assert [s.get("code") == large.data for s in builders.specs] == [True, True, False, False]
            assert [s.get("more") for s in builders.specs] == [None, b"small", b"small", None]


@pytest.mark.usefixtures("no_leaks")
def test_threads_never_overtake_the_bytes_that_they_need() -> None:
    binaries = [Binary(bytes([n]) * 300_000) for n in range(4)]
    with serving() as (link, builders, sizes):
        futures: list[Future[Any]] = []

        def ask(first: int) -> None:
            for n in range(10):
                futures.append(link.submit_build(request(100 * first + n, code=binaries[n % 4])))

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        link.ask("self_test").close()
        assert [future.exception() for future in futures] == [None] * 40
        assert sorted(sizes) == [0] * 36 + [300_000] * 4
        assert len(builders.specs) == 40


@pytest.mark.usefixtures("no_leaks")
def test_a_request_waits_for_the_bytes_that_another_one_is_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    code, sends, go = Binary(b"code"), threading.Event(), threading.Event()
    with serving() as (link, _, sizes):
        client, real = link.worker.client, link.worker.client.submit

        def submit(*given: Any, **named: Any) -> Future[Any]:
            if named["blob"]:
                sends.set()
                assert go.wait(60)
            return real(*given, **named)

        monkeypatch.setattr(client, "submit", submit)
        futures: list[Future[Any]] = []
        threads = [
            threading.Thread(target=lambda n=n: futures.append(link.submit_build(request(n, code=code))))
            for n in range(2)
        ]
        threads[0].start()
        assert sends.wait(60)
        threads[1].start()
        threads[1].join(0.3)
        assert sizes == []
        link.build(request(2)).close()  # without binaries
        go.set()
        for thread in threads:
            thread.join(60)
        link.ask("self_test").close()
        assert [future.exception() for future in futures] == [None] * 2
        assert sizes == [0, 4, 0]


@pytest.mark.usefixtures("no_leaks")
def test_a_worker_refuses_a_wrong_digest_and_gets_the_bytes_again() -> None:
    with serving() as (link, builders, sizes):
        lying = Binary(b"code")
        lying.data = b"evil"
        future = link.submit_build(request(1, code=lying))
        link.worker.client.request("self_test", timeout=30)
        with pytest.raises(an.InvalidRequest, match="a binary of 4 bytes has the SHA-256"):
            future.result()
        assert builders.specs == []
        code = Binary(b"code")
        link.build(request(1, code=code)).close()
        with pytest.raises(an.AtomrError, match="the builder failed"):
            link.build(request(2, "fail", code=code))
        link.build(request(3, code=code)).close()
        assert sizes == [4, 4, 0, 0]
        assert [s["code"] for s in builders.specs] == [b"code"] * 3
        new = Binary(b"new")
        with pytest.raises(an.AtomrError, match="the builder failed"):
            link.build(request(4, "fail", code=new))
        link.build(request(4, code=new)).close()
        assert sizes[4:] == [3, 3]
        with pytest.raises(an.InvalidRequest, match=f"blob {MAX_BLOB + 1}, allowed at most {MAX_BLOB}"):
            link.build(request(5, code=Binary(bytes(MAX_BLOB + 1))))
        link.build(request(6, code=code)).close()


# ------------------------------------------------------------------------------------------ devices


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of blobs that are sent."""
    sizes: list[int] = []
    real = ControlClient._submit

    def submit(self: Any, op: str, fds: Any, blob: Any, *rest: Any) -> Any:
        if blob:
            sizes.append(len(blob))
        return real(self, op, fds, blob, *rest)

    monkeypatch.setattr(ControlClient, "_submit", submit)
    return sizes


def large_kernel() -> Any:
    table = np.arange(LARGE // 8, dtype=np.int64)

    def kernel(x, i):
        x[0] = table[i]

    return kernel


def test_a_large_kernel_on_the_host_device(nothing_left: None, make_system: Any, blobs: list[int]) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    device = make_system(**PATIENT).device()
    kernel = device.kernel(large_kernel())
    x = device.zeros(4, "int64")
    plan = kernel[1, 1].plan(x, 0)
    plan.ask(x, i=LARGE // 8 - 1).result(60)
    assert x.numpy()[0] == LARGE // 8 - 1
    another = kernel[1, 1].plan(x[1:], 0).wait(60)  # another layout, the same function
    assert [size > LARGE for size in blobs] == [True]
    restart(device)
    x = device.zeros(4, "int64")
    plan.ask(x, i=7).result(60)
    assert x.numpy()[0] == 7
    another.ask(x[1:], i=8).result(60)
    assert x.numpy()[1] == 8
    assert [size > LARGE for size in blobs] == [True, True]


COUNTING = """
extern "C" __global__ void count(unsigned long long a, unsigned long long b, unsigned long long size,
                                 unsigned long long item, long long *out, unsigned long long n,
                                 unsigned long long step) { out[0] += 1; }
"""


@pytest.mark.skipif(bool(kernel_shim.available()), reason=kernel_shim.available())
def test_large_machine_code_on_the_fake_driver(
    fake_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, blobs: list[int], tmp_path: Path
) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")
    import fake_cuda

    from atomr_native.compile import linker

    code = Binary(kernel_shim.compile_module(COUNTING) + bytes(LARGE))
    monkeypatch.setattr(linker, "machine_code", lambda *_, **__: linker.MachineCode("count", code))

    def count(out):
        out[0] += 1

    with fake_cuda.using(fake_environment), an.System(**PATIENT) as system:
        device = system.device("cuda:0")
        out = device.zeros(4, "int64")
        kernel = device.kernel(count)
        for _ in range(3):
            kernel[1, 1](out)
        kernel[2, 1](out)  # another plan
        assert out.numpy()[0] in (4, 5)
        assert blobs == [len(code.data)]
        restart(device)
        out = device.zeros(4, "int64")
        kernel[1, 1](out)
        kernel[2, 1](out).result(60)
        assert out.numpy()[0] >= 2
        assert blobs == [len(code.data)] * 2
