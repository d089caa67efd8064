"""Copies between devices of one System: GPUs that reach each other, GPUs that do not, and the host."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import fake_cuda
import gpu
import numpy as np
import pytest
import scripts
from actions import Gate, bits, eventually, poison
from crash import restart
from crowds import together
from layouts import NAMES, filled

import atomr_native as an
from atomr_native.dtypes import DTYPES
from atomr_native.interop import peers

ENGINES = ("reach", "apart", pytest.param("gpus", marks=pytest.mark.gpu))
PAIRS = [("cuda:0", "cuda:1"), ("cuda:1", "cuda:0"), ("host", "cuda:1"), ("cuda:1", "host")]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Two GPUs: of the fake driver, with and without access to each other, and real ones."""
    if request.param == "gpus":
        if (found := gpu.visible()) < 2:
            pytest.skip(f"a second GPU is needed; this process sees {found}")
        yield request.param
        return
    settings = {"FAKE_CUDA_DEVICES": "2", "FAKE_CUDA_PEER": str(int(request.param == "reach"))}
    with fake_cuda.using({**request.getfixturevalue("fake_environment"), **settings}):
        yield request.param


@pytest.fixture(scope="module")
def system(engine: str, nothing_left: None) -> Iterator[an.System]:
    with an.System(standby="off", allow_crash=True, within=0.0) as made:
        yield made


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(system: an.System, request: pytest.FixtureRequest) -> Iterator[tuple[an.Device, an.Device]]:
    """Source and target."""
    source, target = (system.device(name) for name in request.param)
    yield source, target
    eventually(lambda: len(target._state.imports._imports) <= len(target._state.imports.segments.reached))
    system.dead_letters.clear()


def mappings(device: an.Device) -> int:
    return len(device._state.imports.segments._mappings)


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_and_view(pair: tuple[an.Device, an.Device], engine: str, name: str) -> None:
    source, target = pair
    data = filled((4, 6), DTYPES[name])
    ref = source.put(data)
    for view in (lambda x: x, lambda x: x.T, lambda x: x[1:, ::2], lambda x: x[1, 2], lambda x: x[:0]):
        made = target.copy(view(ref))
        assert made.device is target
        assert bits(made.numpy()) == bits(view(data))
    if engine == "reach" and "host" not in (source.name, target.name):
        assert mappings(target) >= 1


def test_conversion_out_and_broadcast(pair: tuple[an.Device, an.Device]) -> None:
    source, target = pair
    data = np.arange(12.0).reshape(3, 4)
    ref = source.put(data)
    assert target.copy(ref, dtype="int16").numpy().tolist() == data.astype("int16").tolist()
    assert target.copy(ref, dtype="bfloat16").dtype.name == "bfloat16"
    out = target.zeros((2, 4, 3), "float32")
    assert target.copy(ref.T, out=out) is out
    assert out.numpy().tolist() == [data.T.tolist()] * 2
    part = target.zeros((3, 8))
    target.copy(ref, out=part[:, ::2])
    assert part.numpy()[:, ::2].tolist() == data.tolist()
    kept = target.copy(ref, durable=True)
    assert kept.durable
    fresh = target.asarray(ref)
    assert fresh.device is target
    with pytest.raises(an.Unsupported, match=r"device\.copy"):
        target.asarray(ref, copy=False)


@pytest.mark.parametrize(
    "call",
    [
        lambda s, t, x: t.copy(x, out=s.zeros((3, 4))),
        lambda s, t, x: t.copy(x, out=t.zeros((4, 4))),
        lambda s, t, x: t.copy(x, out=t.zeros((3, 4)), dtype="float64"),
        lambda s, t, x: t.copy(x, dtype="no such"),
        lambda s, t, x: t.copy(x, out=np.zeros((3, 4))),
        lambda s, t, x: t.copy(s.zeros((3, 4), "complex64"), dtype="float32"),
        lambda s, t, x: t.copy(s.zeros((3, 4), "complex64"), out=t.zeros((3, 4))),
    ],
)  # fmt: skip
def test_copies_that_cannot_be(pair: tuple[an.Device, an.Device], call: Any) -> None:
    source, target = pair
    with pytest.raises(an.InvalidRequest):
        call(source, target, source.zeros((3, 4), "float32"))


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x: t.get(x),
        lambda t, x: t.blas_lt.matmul(x, x),
        lambda t, x: t.blas_lt.matmul(t.zeros((4, 4)), x),
        lambda t, x: t.elementwise.run("x + y", x=x, y=t.zeros((4, 4))),
        lambda t, x: t.copy(t.zeros((4, 4)), out=x),
        lambda t, x: t.put(np.zeros((4, 4), "float32"), out=x),
    ],
)  # fmt: skip
def test_any_other_use_names_the_copy(pair: tuple[an.Device, an.Device], call: Any) -> None:
    source, target = pair
    x = source.zeros((4, 4), "float32")
    with pytest.raises(an.InvalidRequest, match=r"device\.copy"):
        call(target, x)


def test_the_sender_does_not_wait(pair: tuple[an.Device, an.Device]) -> None:
    source, target = pair
    x, out = source.put(np.zeros(4)), target.put(np.zeros(4))
    target.copy(x, out=out).wait()  # the plans are there, and the memory is mapped
    with Gate(source.elementwise) as gate:
        source.elementwise.run("x + 1", x=x, out=x)
        made = target.copy(x, out=out)
        later = source.elementwise.run("x + 10", x=x, out=x)  # behind the copy
        both = target.elementwise.run("x * 2", x=made)
        assert not made.done()
        gate.open()
    assert (made.numpy() == 1).all()
    assert (both.numpy() == 2).all()
    assert (later.numpy() == 11).all()


def test_it_waits_for_the_writer(pair: tuple[an.Device, an.Device]) -> None:
    source, target = pair
    x = source.put(np.zeros(4))
    with Gate(source.elementwise) as gate:
        y = source.elementwise.run("x + 1", x=x)
        timer = threading.Timer(0.03, gate.open)
        timer.start()
        assert target.copy(y).numpy().tolist() == [1] * 4
        timer.join()
    poison(source.elementwise, y, text="not written")
    failed = target.copy(y)  # which enqueues
    with pytest.raises(an.LibraryError, match="not written"):
        failed.numpy()
    y.free()
    with pytest.raises(an.GpuRefStale):
        target.copy(y)


def test_it_is_ordered_with_the_messages_of_the_target(pair: tuple[an.Device, an.Device]) -> None:
    source, target = pair
    x, out = source.put(np.full(1000, 5.0)), target.zeros((1000,), "float64")
    for turn in range(20):
        target.elementwise.run("x * 2", x=out, out=out)
        target.copy(x, out=out)
        target.elementwise.run("x + k", x=out, k=turn, out=out)
        assert (out.numpy() == 5 + turn).all()


def test_the_source_is_not_reused_meanwhile(pair: tuple[an.Device, an.Device]) -> None:
    source, target = pair

    def churn(number: int) -> None:
        for turn in range(25):
            value = float(100 * number + turn)
            made = target.copy(source.full((5000,), value, "float64"))
            assert (made.numpy() == value).all()

    together(churn, range(3))


def test_a_queue_of_copies_between_writers(pair: tuple[an.Device, an.Device]) -> None:
    source, target = pair
    x, beside = source.zeros((4000,)), source.zeros((4000,))
    outs = []
    for turn in range(30):
        x.fill(turn)
        outs += [(float(turn), target.copy(x)) for _ in range(1 + turn % 5)]
        if turn % 7 == 0:
            outs.append((float(turn), target.copy(x[1:])))  # by another plan
        if turn % 9 == 0:
            outs.append((0.0, source.copy(target.copy(beside))))  # and back
    for value, out in outs:
        assert (out.numpy() == value).all()


def test_a_copy_that_is_sent_again(pair: tuple[an.Device, an.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves out checks, but for those whose answer may be another one."""
    source, target = pair
    slow: list[int] = []
    checked = peers._copy
    monkeypatch.setattr(peers, "_copy", lambda *given, **named: slow.append(1) or checked(*given, **named))
    target._state.quick_copies.clear()
    out = target.zeros((3, 2), "float64")
    refs = [source.put(np.full((3, 2), n)) for n in (1.0, 2.0)]
    for n in (0, 1, 0, 1, 1):
        assert target.copy(refs[n], out=out) is out
        assert bits(out.numpy()) == bits(refs[n].numpy())
    rows = source.put(np.arange(12.0).reshape(6, 2))
    target.copy(rows[2:5], out=out)  # in the middle of its memory
    assert out.numpy().tolist() == [[4, 5], [6, 7], [8, 9]]
    into = target.zeros((6, 2), "float64")
    target.copy(refs[0], out=into[1:4])
    assert into.numpy().sum(axis=1).tolist() == [0, 2, 2, 2, 0, 0]
    assert len(slow) == 1
    other = target.zeros((2, 3, 2), "float64")
    assert target.copy(refs[1], out=other).numpy().sum() == 24.0  # broadcast
    assert target.copy(refs[1], out=target.zeros((3, 2), "float32")).numpy().dtype == np.float32
    for wrong in (source.zeros((3, 2), "float64"), target.zeros((2, 2), "float64"), None):
        if wrong is None:
            assert target.copy(refs[0], out=None).numpy().tolist() == refs[0].numpy().tolist()
        else:
            with pytest.raises(an.InvalidRequest):
                target.copy(refs[0], out=wrong)
    assert len(slow) == 6
    stale = target.zeros((3, 2), "float64")
    stale.free()
    with pytest.raises(an.GpuRefStale):
        target.copy(refs[0], out=stale)
    refs[1].free()
    with pytest.raises(an.GpuRefStale):
        target.copy(refs[1], out=out)
    assert bits(target.copy(refs[0], out=out).numpy()) == bits(refs[0].numpy())


def test_a_death_in_a_queue_of_copies(pair: tuple[an.Device, an.Device]) -> None:
    """Each copy is whole, or fails; the other side goes on."""
    source, target = pair
    for victim in (source, target, source):
        x = source.full((300_000,), 2.0, durable=True)
        outs = [target.empty((300_000,), durable=True) for _ in range(40)]
        x.wait()
        for out in outs:
            target.copy(x, out=out)
        generation = victim.generation
        os.kill(victim.worker_pid or 0, signal.SIGKILL)
        for out in outs:
            with contextlib.suppress(an.DeviceFault, an.DependencyFailed, an.GpuRefStale):
                assert (out.numpy() == 2.0).all()
        eventually(lambda before=generation, it=victim: it.generation > before)
        victim.wait_ready(60)
        assert (target.copy(x).numpy() == 2.0).all()


def test_restarts_of_either_side(system: an.System, pair: tuple[an.Device, an.Device]) -> None:
    source, target = pair
    kept = source.put(np.arange(1000.0), durable=True)
    for device in (target, source, target):
        assert (target.copy(kept).numpy() == np.arange(1000.0)).all()
        restart(device)
    assert (target.copy(kept).numpy() == np.arange(1000.0)).all()


def test_memory_that_is_given_back_is_mapped_no_more(engine: str) -> None:
    with an.System(standby="off") as system:
        source, target = system.device("cuda:0"), system.device("cuda:1")
        x = source.put(np.arange(3.0))
        target.copy(x).wait()
        before = mappings(target)
        assert before == (engine != "apart") or engine == "gpus"
        x.free()

        def is_mapped_no_more() -> bool:
            source.trim()  # which may return other memory before the copy has let go of this
            return mappings(target) == 0

        eventually(is_mapped_no_more)
        assert target.copy(source.put([4.0])).numpy().tolist() == [4]
        source.close()
        assert mappings(target) == 0


PROGRAM = """
import numpy as np, sys, atomr_native as an
with an.System(isolation="thread") as system:
    a, b, h = (system.device(name) for name in ("cuda:0", "cuda:1", "host"))
    data = np.arange(24.0).reshape(4, 6)
    for s in (a, b, h):
        for t in (a, b, h):
            x = s.put(data)
            assert (t.copy(x.T).numpy() == data.T).all(), (s, t)
            assert t.copy(x[1:, ::2], dtype="int8").numpy().tolist() == data[1:, ::2].tolist()
    assert len(b._state.imports.segments._mappings) == int(sys.argv[1])
    assert a.__class__ is b.__class__ and a.facts["uuid"] != b.facts["uuid"]
"""


@pytest.mark.parametrize("peer", [0, 1])
def test_in_thread_placement(fake_environment: dict[str, str], peer: int) -> None:
    settings = {"FAKE_CUDA_DEVICES": "2", "FAKE_CUDA_PEER": str(peer)}
    with fake_cuda.using({**fake_environment, **settings}):
        scripts.run(PROGRAM, str(peer))
