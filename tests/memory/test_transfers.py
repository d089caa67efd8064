"""Large arrays through staging memory in pieces: every byte, in order with whatever else is sent, and no leaks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from actions import Gate, bits, eventually, poison
from crowds import alongside, together
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layouts import dtypes, filled, keys
from placements import Placement
from transfer_rig import all_back, data, meanwhile, narrow, resolve_all

import atomr_native as an
from atomr_native._lib.sender import STAGING
from atomr_native.arrays.layout import layout_of
from atomr_native.dtypes import DTYPES
from atomr_native.memory import transfers

Make = Callable[..., an.System]
shared_device = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


# ---- pieces


@pytest.mark.usefixtures("tiny")
@given(shape=st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple), dtype=dtypes, whole=st.booleans())
def test_pieces_cover_an_array_once_and_in_order(shape: tuple[int, ...], dtype: Any, whole: bool) -> None:
    layout = layout_of(shape, dtype)
    index = np.arange(layout.size).reshape(shape)
    end, seen = 0, []
    for at, nbytes, key in transfers._pieces(layout, whole):
        assert at == end
        assert 0 < nbytes <= max(512, dtype.itemsize)
        end += nbytes
        if not whole:
            part = index[key]
            assert part.size * dtype.itemsize == nbytes
            seen.append(part.ravel())
    assert end == layout.nbytes
    if not whole:
        assert np.array_equal(np.concatenate(seen), np.arange(layout.size))


@pytest.mark.parametrize(
    ("nbytes", "piece"),
    [(4 << 20, 1 << 20), (9 << 20, 2 << 20), (64 << 20, 8 << 20), (1 << 30, 8 << 20), ((64 << 20) + 1, 8 << 20)],
)
def test_sizes_of_pieces(nbytes: int, piece: int) -> None:
    assert transfers._piece_bytes(nbytes) == piece


# ---- every byte


@shared_device
@given(given=st.data(), shape=st.lists(st.integers(1, 14), min_size=1, max_size=4).map(tuple), dtype=dtypes)
def test_any_view_there_and_back(
    pieces: an.Device, placement: Placement, given: st.DataObject, shape: tuple[int, ...], dtype: Any
) -> None:
    if placement.cuda:
        pytest.skip("it would compile kernels for each layout")
    x = filled(shape, dtype)
    view = x[given.draw(keys(shape))]
    durable = given.draw(st.booleans())
    ref = pieces.put(view, durable=durable)
    assert (ref.is_whole, ref.durable, ref.shape, ref.dtype) == (True, durable, view.shape, view.dtype)
    assert bits(ref.numpy()) == bits(view)
    key = given.draw(keys(shape, negative=False))
    back = pieces.put(x)
    assert bits(back[key].numpy()) == bits(x[key])
    out = np.zeros((*shape, 2), dtype)[..., 0]
    assert pieces.get(back, out) is out
    assert bits(out) == bits(x)
    target = pieces.zeros(shape, dtype.name)
    assert pieces.put(x[key], out=(part := target[key])) is part
    expected = np.zeros(shape, dtype)
    expected[key] = x[key]
    assert bits(target.numpy()) == bits(expected)


@pytest.mark.parametrize("target", ["int8", "bfloat16", "float64", "complex64"])
def test_conversion_in_pieces(pieces: an.Device, target: str) -> None:
    x = (np.random.default_rng(1).standard_normal((37, 53)) * 50).astype(np.float32)
    for source in (x, x.T, x[::-2, 1:]):
        with np.errstate(all="ignore"):
            expected = source.astype(DTYPES[target])
        assert bits(pieces.put(source, dtype=target, casting="unsafe").numpy()) == bits(expected)


@pytest.mark.parametrize("nbytes", [1023, 1024, 1025, 4096, 4097, 20_000])
def test_around_the_threshold(pieces: an.Device, nbytes: int) -> None:
    x = data(nbytes)
    out, target = np.zeros_like(x), pieces.zeros(nbytes, "uint8")
    for ref in (pieces.put(x), pieces.put(x, out=target), pieces.copy(target)):
        assert bits(ref.numpy()) == bits(x)
        assert bits(pieces.get(ref, out)) == bits(x)


def test_at_full_size(device: an.Device) -> None:
    narrow(device)
    x = np.arange((40 << 20) // 8 + 1013, dtype=np.uint64)
    ref = device.put(x)
    again = device.put(x[::-1].copy(), out=device.empty(x.shape, x.dtype))
    assert np.array_equal(ref.numpy(), x)
    out = np.zeros_like(x)
    assert np.array_equal(device.get(again, out), x[::-1])
    assert np.array_equal(device.put(x[5:].reshape(-1, 8).T).numpy(), x[5:].reshape(-1, 8).T)
    small = device.put(x[: 1 << 16])  # one message
    assert np.array_equal(small.numpy(), x[: 1 << 16])
    all_back(device)


def test_the_array_may_change_after_put(pieces: an.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "WINDOW", 16)
    narrow(pieces)
    x = data(1500)
    expected = x.copy()
    with Gate(pieces._memory):
        ref = pieces.put(x)
        x[...] = 0
    assert bits(ref.numpy()) == bits(expected)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_small_arrays_again_and_again(device: an.Device, dtype: Any) -> None:
    """The first of a shape and type takes another way than those after it."""
    narrow(device)
    x = filled((3, 5), dtype)
    out, target = np.empty_like(x), device.empty(x.shape, dtype.name)
    frozen = x.copy()
    frozen.flags.writeable = False
    for _ in range(3):
        assert bits(device.put(x, durable=True).numpy()) == bits(x)
        assert device.put(x, durable=True).durable
        assert device.put(frozen, out=target) is target
        assert bits(device.get(target, out)) == bits(x)
        assert bits(device.put(x.T).numpy()) == bits(x.T)
        assert bits(device.put(np.asfortranarray(x)).numpy()) == bits(x)
        assert bits(device.get(target[1:, ::2])) == bits(x[1:, ::2])
        wide = np.zeros((3, 10), dtype)
        assert bits(device.get(target, wide[:, ::2])) == bits(x)
    with pytest.raises(an.InvalidRequest, match="read-only"):
        device.get(target, frozen)
    with pytest.raises(an.InvalidRequest, match="out is"):
        device.get(target, np.zeros((5, 3), dtype))
    with pytest.raises(an.InvalidRequest, match="out has shape"):
        device.put(x, out=device.empty((5, 3), dtype.name))
    target.free()
    with pytest.raises(an.GpuRefStale, match="freed"):
        device.put(x, out=target)
    with pytest.raises(an.GpuRefStale, match="freed"):
        device.get(target)


def test_small_arrays_of_another_device(device: an.Device, make_system: Make) -> None:
    other = make_system(isolation="thread").device("host")
    x = np.ones(4)
    for one in (device, other):
        one.put(x).numpy()
    with pytest.raises(an.InvalidRequest, match="another device"):
        device.put(x, out=other.put(x))
    with pytest.raises(an.InvalidRequest, match="another device"):
        device.get(other.put(x))


# ---- one message, to everybody else


def test_a_get_is_of_one_moment_though_a_writer_comes_between(
    pieces: an.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = pieces.zeros(5000, "uint8")
    for at in (2, 5, 7):
        with meanwhile(at, lambda value=at: x.fill(value)):
            assert set(x.numpy().tolist()) == {at}  # begun anew after the writer
    monkeypatch.setattr(pieces._memory.segments, "has_room", lambda *_: False)
    with meanwhile(1, lambda: x.fill(77)):
        assert set(x.numpy().tolist()) == {77}


def test_nobody_sees_half_a_copy(pieces: an.Device) -> None:
    n, stop = 6000, threading.Event()
    x, wrong = pieces.zeros(n, "uint8"), []

    def write(device: an.Device) -> None:
        i = 0
        while not stop.is_set():
            i += 1
            if i % 3:
                x.fill(i % 251)
            else:
                device.put(np.full(n, i % 251, np.uint8), out=x)

    def read() -> None:
        out = np.empty(n, np.uint8)
        for i in range(15):
            found = pieces.get(x, out) if i % 2 else x.numpy()
            if len(set(found.tolist())) != 1:
                wrong.append(found)

    threads = [threading.Thread(target=write, args=(pieces,)), *(threading.Thread(target=read) for _ in range(2))]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    stop.set()
    threads[0].join()
    assert not wrong


def test_messages_after_a_put_see_all_of_it(pieces: an.Device) -> None:
    x, target = data(3000), pieces.zeros(3000, "uint8")
    for seed in range(12):
        x = data(3000, seed)
        y = pieces.elementwise.run("a + 1", a=pieces.put(x))
        z = pieces.elementwise.run("a + 1", a=pieces.put(x, out=target))
        expected = x + np.uint8(1)
        assert np.array_equal(y.numpy().astype(np.uint8), expected)
        assert np.array_equal(z.numpy().astype(np.uint8), expected)


def test_no_room_for_a_copy_beside_the_target(tiny: None, make_system: Make) -> None:
    device = make_system(isolation="thread", memory_limit=3 << 20).device("host")
    target, x = device.zeros(2 << 20, "uint8"), data(2 << 20)
    assert device.put(x, out=target) is target
    assert np.array_equal(target.numpy(), x)
    assert np.array_equal(target[::2].numpy(), x[::2])
    with pytest.raises(an.OutOfMemory):
        device.put(x)
    all_back(device)


# ---- errors


def test_the_error_of_the_writer(pieces: an.Device) -> None:
    bad = poison(pieces.lane("a"), pieces.empty(1000), text="never written")
    host = pieces.host_array(1000)
    for read in (bad.numpy, bad[::2].numpy, lambda: pieces.get(bad, np.zeros(1000, np.float32))):
        with pytest.raises(an.LibraryError, match="never written"):
            read()
    for read in (lambda: pieces.get_into(bad, host).result(), lambda: pieces.get(bad[::2], host[:500])):
        with pytest.raises((an.DependencyFailed, an.LibraryError), match="never written"):
            read()
    resolve_all(pieces)
    assert not pieces.system.dead_letters  # the failures of all pieces were told, once
    pieces.put(data(500), out=bad.view("uint8")[:500])  # a part lifts nothing
    with pytest.raises(an.LibraryError, match="never written"):
        bad.numpy()
    assert pieces.put(np.ones(1000, np.float32), out=bad).numpy().sum() == 1000
    assert pieces.put(host).numpy().sum() == 0  # the array of the user's is theirs


def test_a_get_gives_up_and_its_messages_go_on(pieces: an.Device) -> None:
    x = data(5000)
    ref, out = pieces.put(x), np.zeros(5000, np.uint8)
    with Gate(pieces._memory):
        for timeout in (0, 0.01, 0.02):
            with pytest.raises(an.AskTimeout, match=str(timeout)):
                pieces.get(ref, timeout=timeout)  # the first of them has taken all pieces
        with pytest.raises(an.AskTimeout):
            pieces.get(ref, out, timeout=0.01)
    assert bits(pieces.get(ref, out, timeout=30)) == bits(x)


def test_a_put_without_room_says_so(tiny: None, make_system: Make) -> None:
    device = make_system(timeout=0.2).device("host")
    gate = Gate(device._memory)
    with pytest.raises(an.MailboxFull, match="staging memory"):
        device.put(data(5000))
    gate.open()
    assert bits(device.put(data(5000)).numpy()) == bits(data(5000))
    del gate
    all_back(device)


def test_a_rejecting_mailbox_does_not_reject_large_arrays(tiny: None, make_system: Make) -> None:
    device = make_system(mailbox="reject", isolation="thread").device("host")
    x = data(30_000)
    assert bits(device.put(x).numpy()) == bits(x)
    all_back(device)


def test_an_interrupted_wait_loses_no_piece(pieces: an.Device) -> None:
    ref = pieces.put(data(5000))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    kept = []
    try:
        with Gate(pieces._memory):
            for work in (lambda: pieces.get(ref), lambda: pieces.put(data(9000))):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                with pytest.raises(KeyboardInterrupt) as caught:
                    work()
                kept.append(caught)  # with its frames
    finally:
        signal.signal(signal.SIGALRM, before)
    assert bits(ref.numpy()) == bits(data(5000))
    all_back(pieces)


@pytest.mark.parametrize("work", ["put", "get", "put out"])
def test_close_in_the_middle(tiny: None, placement: Placement, make_system: Make, work: str) -> None:
    system = make_system()
    device = system.device()
    ref, gate, found = device.put(data(9000)), Gate(device._memory), []

    def run() -> None:
        try:
            device.get(ref) if work == "get" else device.put(data(9000), out=ref if work == "put out" else None)
        except an.AtomrError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: device._memory.transfers.window.free == 0)
    system.close(0.05)
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(found[0], an.ActorStopped | an.GpuRefStale), found
    gate.open()


# ---- many at once


def test_many_threads_share_few_pieces(pieces: an.Device) -> None:
    def work(seed: int) -> None:
        out = np.empty(4000, np.uint8)
        mine = pieces.empty(4000, "uint8")
        for i in range(8):
            x = data(4000, 100 * seed + i)
            ref = pieces.put(x, out=mine) if i % 2 else pieces.put(x.reshape(40, 100).T, durable=bool(i % 3))
            found = pieces.get(ref, out) if i % 2 else np.ascontiguousarray(ref.numpy().T).ravel()
            assert np.array_equal(found, x)

    together(work, range(6))
    most = pieces._core.pool_stats(STAGING)["total"]
    assert most <= 64 << 20


# ---- forked children


def test_a_forked_child_is_refused(pieces: an.Device) -> None:
    ref = pieces.put(data(5000))
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for work in (
                lambda: pieces.put(data(5000)),
                ref.numpy,
                lambda: pieces.put(data(8)),
                lambda: pieces.get(ref),
            ):
                with pytest.raises(an.DeviceLost, match="fork"):
                    work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert bits(ref.numpy()) == bits(data(5000))


# ---- host arrays


def test_host_arrays_without_waiting(pieces: an.Device) -> None:
    host, back = pieces.host_array((50, 100), "uint8"), pieces.host_array(5000, "uint8")
    host[...] = data(5000).reshape(50, 100)
    with Gate(pieces._memory):
        ref = pieces.put(host, blocking=False)
        assert not ref.done()
        reply = pieces.get_into(ref.reshape(5000), back)
        assert not reply.done()
    assert reply.result() is back
    assert ref.wait().done()
    assert bits(back) == bits(host) == bits(data(5000))
    assert bits(pieces.get(ref, host[::-1][::-1])) == bits(data(5000))
    plain = data(5000, 3)
    assert bits(pieces.put(plain, blocking=False).numpy()) == bits(plain)
    with Gate(pieces._memory):  # an array that nobody has any more stays until it was read
        host[...] = 7
        ref = pieces.put(host, blocking=False)
        del host
        pieces.host_array((50, 100), "uint8")[...] = 9
    assert set(ref.numpy().ravel().tolist()) == {7}


def test_views_without_waiting(pieces: an.Device) -> None:
    """Any view of a device's array into any view of a host array, and what is around it stays as it was."""
    x = data(4000).reshape(40, 100)
    ref, host = pieces.put(x), pieces.host_array((100, 80), "uint8")
    for source, expected, out in (
        (ref.T, x.T, host[:, 1:80:2]),
        (ref[:, ::2], x[:, ::2], host[20:60, :50]),
        (ref[3], x[3], host[:, 7]),
        (ref[::5, 10:12], x[::5, 10:12], host[:8, 30:32]),
    ):
        host[...] = 0
        with Gate(pieces._memory):
            reply = pieces.get_into(source, out)
            assert not reply.done()
        assert reply.result() is out
        assert bits(out) == bits(expected)
        assert int(host.sum()) == int(expected.sum())
    assert pieces.get_into(ref[:0], np.zeros((0, 100), np.uint8)).result().shape == (0, 100)
    bad = poison(pieces.lane("a"), pieces.empty((6, 4), "uint8"))
    with pytest.raises(an.DependencyFailed):
        pieces.get_into(bad.T, host[:4, :6]).result()
    host[...] = 3
    assert (pieces.put(host).numpy() == 3).all()


def test_a_host_array_that_is_later_than_foreseen(pieces: an.Device) -> None:
    """Who waits for a large copy knows how long others took, and relies on that for nothing."""
    host, back = pieces.host_array(5000, "uint8"), pieces.host_array(5000, "uint8")
    host[...] = data(5000)
    for _ in range(3):
        ref = pieces.put(host)
        assert pieces.get(ref, back) is back
    assert bits(back) == bits(host)
    back[...] = 0
    with Gate(pieces._memory):
        for timeout in (0, 0.01, 0.02):
            with pytest.raises(an.AskTimeout, match=str(timeout)):
                pieces.get(ref, back, timeout=timeout)
    assert pieces.get(ref, back, timeout=30) is back
    assert bits(back) == bits(host)
    gate = Gate(pieces._memory)
    with alongside(pieces.put, [host]):
        time.sleep(0.02)
        gate.open()


def test_what_get_into_refuses(pieces: an.Device) -> None:
    ref, host = pieces.zeros((4, 6), "uint8"), pieces.host_array((4, 6), "uint8")
    for source, out in ((ref, np.zeros((4, 6), np.uint8)), (ref, host[::-1])):
        with pytest.raises(an.InvalidRequest, match="get_into copies"):
            pieces.get_into(source, out)
    for out in (None, host[:2], [0], host.view("int8")):
        with pytest.raises(an.InvalidRequest, match="out is"):
            pieces.get_into(ref, out)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="GpuRef"):
        pieces.get_into(host, host)  # type: ignore[arg-type]


def test_host_arrays_are_zeroed_also_when_used_again(device: an.Device) -> None:
    for _ in range(3):
        host = device.host_array((3 << 20) + 5, "uint8")
        assert not host.any()
        host[...] = 255
        del host
