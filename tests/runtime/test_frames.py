"""Frames, and typed errors, on the wire."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import open_fds, raw, receive, send

from atomr_native import errors
from atomr_native.protocol.frames import (
    HEADER,
    MAGIC,
    MAX_BLOB,
    MAX_FDS,
    MAX_JSON,
    Frame,
    FrameReader,
    FrameWriter,
    ProtocolError,
    encode_frame,
)
from atomr_native.protocol.wire_errors import decode_error, encode_error

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with a, b:
        yield a, b


# ---- frames


def test_frame_roundtrip_with_blob_and_descriptors(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    fds = tuple(os.memfd_create(f"m{i}", os.MFD_CLOEXEC) for i in range(MAX_FDS))
    for i, fd in enumerate(fds):
        os.write(fd, bytes([i]))
    send(a, {"id": 1, "text": "żółw \ud800"}, fds, b"blob")
    send(a, {"id": 2})
    reader = FrameReader(b)
    frame = receive(reader, b)
    assert frame.fields == {"id": 1, "text": "żółw \ud800"}
    assert frame.blob == b"blob"
    assert [os.pread(fd, 1, 0)[0] for fd in frame.fds] == list(range(MAX_FDS))
    assert not any(os.get_inheritable(fd) for fd in frame.fds)
    frame.close()
    frame.close()
    assert receive(reader, b) == Frame({"id": 2})
    assert reader.read() is None
    for fd in fds:
        os.close(fd)


def test_large_blob_crosses_in_pieces(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    blob = os.urandom(5 << 20)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send, a, {"id": 1, "pad": "x" * 300_000}, (0,), blob)
        frame = receive(FrameReader(b), b, 30)
        sending.result(10)
    assert frame.blob == blob
    assert len(frame.fds) == 1
    frame.close()


def test_byte_by_byte(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    data = encode_frame({"id": 9}, b"xyz", 1) + b"xyz"
    reader = FrameReader(b)
    raw(a, data[:1], (0,))
    for i in range(1, len(data)):
        assert reader.read() is None
        a.send(data[i : i + 1])
    frame = reader.read()
    assert frame is not None
    assert (frame.fields, frame.blob, len(frame.fds)) == ({"id": 9}, b"xyz", 1)
    frame.close()


def header(json_size: int, blob_size: int = 0, nfds: int = 0, magic: int = MAGIC) -> bytes:
    return HEADER.pack(magic, json_size, blob_size, nfds)


@pytest.mark.parametrize(
    ("data", "nfds", "match"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 1, "starts with"),
        (header(MAX_JSON + 1), 1, "claims"),
        (header(2, MAX_BLOB + 1), 1, "claims"),
        (header(2, 0, MAX_FDS + 1), 1, "claims"),
        (header(0), 0, "claims"),
        (header(2, 0, 2) + b"{}", 1, "claims 2 descriptors and came with 1"),
        (header(2, 0, 0) + b"{}", 3, "came with 3"),
        (header(2) + b"[]", 0, "object"),
        (header(2) + b"\xff\xff", 0, "not JSON"),
        (header(100_000) + b"[" * 100_000, 0, "not JSON"),
        (header(10_000) + b"1" * 10_000, 0, "not JSON"),
        (header(2, 0, 100) + b"{}", 100, "lost"),
    ],
)
def test_malformed_frames_are_refused_and_leak_nothing(
    pair: tuple[socket.socket, socket.socket], data: bytes, nfds: int, match: str
) -> None:
    a, b = pair
    before = open_fds()
    raw(a, data, (0,) * nfds)
    reader = FrameReader(b)
    with pytest.raises(ProtocolError, match=match):
        reader.read()
    assert open_fds() == before


def test_descriptors_inside_a_message_are_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    before = open_fds()
    reader = FrameReader(b)
    raw(a, header(2))
    assert reader.read() is None
    raw(a, b"{}", (0, 1))
    with pytest.raises(ProtocolError, match="inside"):
        reader.read()
    assert open_fds() == before


def test_end_of_stream(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    before = open_fds()
    reader = FrameReader(b)
    raw(a, header(2, 0, 1), (0,))
    assert reader.read() is None
    a.shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError, match="inside a message"):
        reader.read()
    assert open_fds() == before


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=64),
            st.builds(
                lambda j, b, n, m: HEADER.pack(m, j, b, n),
                st.integers(0, 64), st.integers(0, 64), st.integers(0, 4), st.sampled_from([MAGIC, MAGIC, 0]),
            ),
            st.dictionaries(st.text(max_size=4), st.integers(), max_size=3).map(lambda d: encode_frame(d)),
        ),
        max_size=6,
    ),
    st.lists(st.integers(0, 3), max_size=6),
)  # fmt: skip
def test_fuzzed_streams(pieces: list[bytes], nfds: list[int]) -> None:
    before = open_fds()
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with a, b:
        inside = open_fds()
        reader = FrameReader(b)
        try:
            for i, piece in enumerate(pieces):
                if piece:
                    raw(a, piece, (0,) * (nfds[i] if i < len(nfds) else 0))
                while (frame := reader.read()) is not None:
                    assert isinstance(frame.fields, dict)
                    frame.close()
        except (ProtocolError, EOFError):
            pass
        else:
            reader.close()
        assert open_fds() == inside
    assert open_fds() == before


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=4), st.binary(max_size=2000), st.integers(0, 5))
def test_any_json_crosses(fields: dict[str, Any], blob: bytes, nfds: int) -> None:
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with a, b:
        send(a, fields, (0,) * nfds, blob)
        frame = receive(FrameReader(b), b)
        assert (frame.fields, frame.blob, len(frame.fds)) == (fields, blob, nfds)
        frame.close()


def test_what_cannot_be_sent_is_said(pair: tuple[socket.socket, socket.socket]) -> None:
    a, _ = pair
    writer = FrameWriter(a)
    for fields, blob, fds, match in [
        ({"x": object()}, b"", (), "JSON"),
        ({"x": "y" * (MAX_JSON + 1)}, b"", (), "too large: JSON"),
        ({}, bytes(MAX_BLOB + 1), (), "too large: blob"),
        ({}, b"", (0,) * 65, "too large: descriptors 65"),
    ]:
        with pytest.raises(errors.InvalidRequest, match=match):
            writer.push(fields, fds, blob)
    assert not writer.pending


def test_a_frame_whose_descriptor_is_bad_can_be_withdrawn(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    writer = FrameWriter(a)
    writer.push({"id": 1}, (1_000_000,), tag=1)
    writer.push({"id": 2}, tag=2)
    with pytest.raises(OSError, match="Bad file"):
        writer.flush()
    assert writer.withdraw() == (True, 1)
    assert writer.flush()
    assert receive(FrameReader(b), b).fields == {"id": 2}
    assert writer.withdraw() == (False, None)


# ---- errors


SAMPLES: list[errors.AtomrError] = [
    errors.AtomrError("a"),
    errors.InvalidRequest("b"),
    errors.UnknownOption("b", "epilog", "epilogue", ("bias", "epilogue")),
    errors.UnknownOption("b", "x", None, ()),
    errors.Unsupported("c"),
    errors.Unsupported("c", rule="blas_lt.dense_axis", lifted_by=("layout", "copies")),
    errors.PlanQuarantined("d"),
    errors.NoCudaArrayInterface("d"),
    errors.NoArrayOperator("d"),
    errors.InvalidAxis("a"),
    errors.NestedCall("d"),
    errors.GpuRefStale("e", "freed"),
    errors.OutOfMemory("f", requested=1, free=2, largest=3, limit=4),
    errors.OutOfMemory("f", requested=1),
    errors.LibraryError("lib", 7, "NAME", "operation", "detail"),
    errors.DeviceFault("g", (errors.Suspect("blas", 3, "matmul"),), False),
    errors.DeviceLost("h"),
    errors.NodeLost("l", "node1", True),
    errors.MailboxFull("i", "blas", 8),
    errors.AskTimeout("j"),
    errors.DependencyFailed("k", errors.OutOfMemory("f", requested=1, free=2, largest=3, limit=4)),
    errors.ActorStopped("l"),
    errors.UnhandledMessage("m"),
    errors.NoReply("n"),
    errors.FactorizationError("solver.x", (3,), 2, 1),
    errors.SingularMatrix("solver.x", (), 2, 1),
    errors.NotPositiveDefinite("solver.x", (1, 2), 2, 4),
    errors.NotConverged("solver.x", (1,), 2, 1),
    errors.LoopLimitReached(3, 100),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_typed_errors_cross(error: errors.AtomrError) -> None:
    data = json.loads(json.dumps(encode_error(error)))
    copy = decode_error(data, "op")
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.args == error.args
    left, right = dict(vars(copy)), dict(vars(error))
    if isinstance(error, errors.DependencyFailed):
        assert str(left.pop("cause")) == str(right.pop("cause"))
    assert left == right


def test_every_public_error_is_covered() -> None:
    assert {type(e).__name__ for e in SAMPLES} == set(errors.__all__) - {"MessageCall", "Suspect"}


def test_what_an_error_of_memory_does_not_know_is_none() -> None:
    error = errors.OutOfMemory("full", requested=8)
    assert (error.requested, error.free, error.largest, error.limit) == (8, None, None, None)
    with pytest.raises(TypeError):
        errors.OutOfMemory("full", 8, 0, 0, 0)  # type: ignore[misc]


def test_other_errors_become_library_errors() -> None:
    class Special(errors.Unsupported):
        pass

    assert type(decode_error(encode_error(Special("x")), "op")) is errors.Unsupported
    copy = decode_error(encode_error(ZeroDivisionError("by zero")), "build_plan")
    assert isinstance(copy, errors.LibraryError)
    assert (copy.lib, copy.name, copy.operation) == ("worker", "ZeroDivisionError", "build_plan")
    assert "by zero" in str(copy)


@settings(max_examples=200, deadline=None)
@given(
    json_values
    | st.fixed_dictionaries(
        {
            "type": st.sampled_from([*errors.__all__, "os.system", "__class__"]),
            "args": st.dictionaries(
                st.sampled_from(
                    ["message", "reason", "requested", "cause", "suspects", "lib", "status", "rule", "lifted_by"]
                ),
                json_values,
            ),
        }
    )
)
def test_malformed_errors_become_errors(data: Any) -> None:
    assert isinstance(decode_error(data, "op"), errors.AtomrError)


def test_endless_causes_end() -> None:
    data: dict[str, Any] = {"type": "AtomrError", "args": {"message": "end"}}
    for _ in range(100):
        data = {"type": "DependencyFailed", "args": {"message": "x", "cause": data}}
    error: Any = decode_error(data, "op")
    kinds = []
    while isinstance(error, errors.DependencyFailed):
        kinds.append(type(error))
        error = error.cause
    assert 1 <= len(kinds) <= 10
    assert isinstance(error, errors.LibraryError)  # in place of the others
    assert error.name == "malformed DependencyFailed"


def test_what_an_error_may_hold_at_most() -> None:
    suspect = {"actor": "a", "ticket": 1, "operation": "op"}
    fault = encode_error(errors.DeviceFault("it died"))
    fault["args"] |= {"message": "x" * (1 << 20), "suspects": [suspect] * 10_000}
    error = decode_error(fault, "op")
    assert isinstance(error, errors.DeviceFault)
    assert len(str(error)) < 100_000
    assert 100 < len(error.suspects) < 5000
