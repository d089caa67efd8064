"""Immediate calls: what is remembered of them changes nothing but their cost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from crash import restart
from placements import Placement

import atomr_native as an
from atomr_native._lib import sender
from atomr_native._lib.sender import DURABLE, VOLATILE
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.fused.actor import Fused
from atomr_native.plans import actor as library_actor
from atomr_native.plans.calls import CallForm

NAN, INF = float("nan"), float("inf")
NUMBERS = (0.5, 0, 0.0, -0.0, 1, 1.0, True, 2.0, -1.0, NAN, INF, -INF, 3, -3, 2**53, 2**62, 2**63, 2**70, "a", None,
           np.float32(0.5), np.float64(0.5), np.int32(1), np.bool_(True), 1j, np.complex64(1j), [1])  # fmt: skip
FLAGS = (False, True, True, 1, 0, np.bool_(True), "yes", None, [])


@pytest.fixture(scope="module")
def device() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("host")


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device("host")


class Pool:
    """Arrays of every kind that a call may be given, and calls that draw from them."""

    def __init__(self, device: an.Device, elsewhere: an.Device, seed: int) -> None:
        self.device = device
        self.rng = np.random.default_rng(seed)
        whole = device.zeros((16, 8), "float32")
        self.squares = [device.zeros((8, 8), "float32") for _ in range(4)]
        x = self.squares[0]
        freed = device.zeros((8, 8), "float32")
        freed.free()
        self.odd = [
            whole[:8], whole[4:12], whole[8:], x[:], x.T, x.reshape(8, 8), freed, elsewhere.zeros((8, 8), "float32"),
            device.zeros((8, 8), "float64"), device.zeros((), "float32"), device.zeros((0, 8), "float32"),
            device.zeros((8, 4), "float32"), np.zeros((8, 8), np.float32), 3, None, "x", [1.0],
        ]  # fmt: skip
        self.vectors = [device.zeros((8,), "float32") for _ in range(3)] + [self.squares[1][0], whole[0]]
        self.wide = [device.zeros((8, 8), "complex64") for _ in range(2)]
        self.codes = [device.zeros((8, 8), "float8_e4m3fn") for _ in range(2)]
        self.ones = [device.zeros((1,), "float32"), device.zeros((), "float32")]
        self.tokens = [device.zeros((8, 2, 4), "float32"), device.zeros((8, 2, 4), "float32")]
        self.places = [device.zeros((8,), "int32"), device.zeros((4,), "int32")]
        self.state = device.float8.delayed(length=4)
        self.other_state = device.float8.delayed(length=4, amax="latest")

    def one(self, *usual: Any, rare: tuple[Any, ...] = (), chance: float = 0.15) -> Any:
        """Return one of the usual, or now and then one of the rare."""
        items = rare if rare and self.rng.random() < chance else usual
        return items[self.rng.integers(len(items))]

    def square(self, *others: Any) -> Any:
        return self.one(*self.squares, *others, rare=tuple(self.odd))

    def vector(self) -> Any:
        return self.one(*self.vectors, rare=(*self.odd, self.squares[0]))

    def number(self, *usual: Any) -> Any:
        return self.one(*usual, rare=NUMBERS, chance=0.3)

    def flag(self) -> Any:
        return self.one(False, rare=FLAGS, chance=0.2)

    def few(self, **options: Callable[[], Any]) -> dict[str, Any]:
        """Return some of these options."""
        return {name: make() for name, make in options.items() if self.rng.random() < 0.35}


Drawn = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def fused(p: Pool) -> Drawn:
    f, s, v = p.device.fused, p.square, p.vector
    calls: list[Callable[[], Drawn]] = [
        lambda: (f.silu, (s(),), p.few(out=s)),
        lambda: (f.swiglu, (s(),), p.few(up=s, out=s)),
        lambda: (f.geglu, (s(),), p.few(approximate=lambda: p.one("none", "tanh", rare=("x", None, [])), up=s)),
        lambda: (f.silu_backward, (s(), s()), p.few(out=s)),
        lambda: (f.swiglu_backward, (s(), s(), s()), p.few(out=s, up_out=s)),
        lambda: (f.rms_norm, (s(), v()), p.few(residual=s, eps=lambda: p.number(1e-5), out=s, residual_out=s)),
        lambda: (f.layer_norm, (s(), v()), p.few(bias=v, residual=s, eps=lambda: p.number(1e-5), out=s)),
        lambda: (f.layer_norm_backward, (s(), s(), v()), p.few(biased=p.flag, weight_out=v, bias_out=v, out=s)),
        lambda: (
            f.adamw, (*p.squares[:3], s()),
            {"step": p.number(1, 2)} | p.few(lr=lambda: p.number(0.1), beta1=lambda: p.number(0.9)),
        ),
        lambda: (f.sgd_momentum, (s(), s(), s()), p.few(nesterov=p.flag, momentum=lambda: p.number(0.9))),
        lambda: (f.adamw, ([s(), s()], [s(), s()], (s(), s()), [s(), p.square()]), {"step": p.number(1, 2)}),
        lambda: (
            f.sgd_momentum, ({"a": s(), "b": s()}, {"b": s(), "a": s()}, {"a": s(), p.one("b", "c"): s()}),
            p.few(nesterov=p.flag),
        ),
        lambda: (
            f.rope, (p.one(*p.tokens), p.one(*p.places)),
            p.few(theta=lambda: p.number(1e4), inverse=p.flag, out=lambda: p.one(*p.tokens)),
        ),
        lambda: (f.dropout, (s(), p.number(0.5), p.number(7)), p.few(offset=lambda: p.number(3), out=s)),
    ]  # fmt: skip
    return p.one(*calls)()


def blas(p: Pool) -> Drawn:
    b, s, v, z = p.device.blas, p.square, p.vector, p.wide

    def factor() -> Any:
        return p.number(1.0, 0.5, 2)

    calls: list[Callable[[], Drawn]] = [
        lambda: (b.axpy, (v(), v()), p.few(alpha=factor)),
        lambda: (b.axpy, (z[0], z[1]), p.few(alpha=factor)),
        lambda: (b.scal, (v(), factor()), {}),
        lambda: (b.dot, (v(), v()), p.few(conj=p.flag, out=lambda: p.one(*p.ones))),
        lambda: (b.nrm2, (v(),), {}),
        lambda: (b.gemv, (s(), v()), p.few(alpha=factor, beta=factor, trans=p.flag, out=v, lower=p.flag)),
        lambda: (b.geam, (s(),), p.few(b=s, alpha=factor, beta=factor, trans=p.flag, out=s)),
        lambda: (b.trsm, (s(), s()), p.few(side=lambda: p.one("left", "right", rare=("up",)), unit=p.flag)),
        lambda: (b.gemv, (s(), v()), {"unknown": 1}),
    ]
    return p.one(*calls)()


def double(acc: Any) -> Any:
    return 2 * acc


def shifted(acc: Any, bias: Any) -> Any:
    return acc + bias


DOUBLE, SHIFTED = an.CustomEpilogue(double), an.CustomEpilogue(shifted, {"bias": "row"})


def matmul(p: Pool) -> Drawn:
    lt, s, v = p.device.blas_lt, p.square, p.vector

    def factor() -> Any:
        return p.number(1.0, 0.5, 0.0, p.ones[1])

    epilogues = ("relu", an.Epilogue.RELU, "bias", "gelu_aux", "gelu_aux_bias", "dgelu", DOUBLE)
    options = p.few(
        c=s, out=s, alpha=factor, beta=factor, trans_a=p.flag, bias=v,
        epilogue=lambda: p.one(*epilogues, rare=("x", [], 3, None)), aux=s, amax=lambda: p.one(True, False, *p.ones),
        out_dtype=lambda: p.one(None, "float32", np.float32, np.dtype("f4"), rare=("int8", [], 3)),
        d_scale=lambda: p.one(*p.ones, rare=(1.0, *p.vectors)), compute=lambda: p.one("tf32", "float32", "x"),
        operands=lambda: p.one({}, {"bias": v()}, rare=([], 3)), copies=p.flag, tune=lambda: p.one(False, "known", 0),
    )  # fmt: skip
    few = {name: value for name, value in options.items() if p.rng.random() < 0.4}
    if p.rng.random() < 0.1:
        few = {"epilogue": SHIFTED, "operands": {"bias": v()}}
    operands = (s(), s())
    if p.rng.random() < 0.15:
        operands, few = (p.codes[0], p.codes[1]), {"a_scale": p.one(*p.ones)} | few
    if p.rng.random() < 0.15:
        operands = tuple(p.wide)
    if p.rng.random() < 0.2:
        lists = {"a": [s(), s()], "b": [s(), s()]} | p.few(out=lambda: [s(), p.one(None, *p.squares)])
        return (
            lt.grouped,
            (lists.pop("a"), p.one(lists.pop("b"), rare=(None, 3, []))),
            lists | p.few(alpha=factor, trans_a=p.flag, epilogue=lambda: p.one("relu", "default", rare=("x", DOUBLE))),
        )
    return lt.matmul, operands, few


def float8(p: Pool) -> Drawn:
    q, s = p.device.float8, p.square
    if p.rng.random() < 0.3:
        return (
            q.dequantize,
            (p.one(*p.codes, *p.squares[:1]), p.one(*p.ones, *p.vectors[:1])),
            p.few(dtype=lambda: p.one("float32", "bfloat16", rare=("int8", [])), out=s),
        )
    return q.quantize, (s(),), p.few(
        dtype=lambda: p.one("float8_e4m3fn", DTYPES["float8_e5m2"], None, rare=("int8", [])),
        scaling=lambda: p.one("tensor", "outer", "vec128", "blk128", rare=("x", [])),
        state=lambda: p.one(p.state, p.other_state, rare=(3, "x", ("float8_e4m3fn", 0, "max"))),
        scale=lambda: p.one(*p.ones, rare=(1.0,)), saturate=p.flag, transposed=p.flag,
        out=lambda: p.one(*p.codes), scale_out=lambda: p.one(*p.ones),
    )  # fmt: skip


def elementwise(p: Pool) -> Drawn:
    e, s = p.device.elementwise, p.square
    calls: list[Callable[[], Drawn]] = [
        lambda: (e.run, ("a + n * b",), {"a": s(), "b": s(), "n": p.number(0.5, 2)} | p.few(out=s)),
        lambda: (e.run, ({"a": "a + n"},), {"a": s(), "n": p.number(0.5, 2)}),
        lambda: (e.run, (p.one("a", "a = b", 3, [], {"a": 1}, "a +"),), {"a": s(), "b": s()}),
        lambda: (e.run, ("program + names",), {"program": s(), "names": p.number(0.5)}),
        lambda: (
            e.reduce, (p.one("sum", "argmax", rare=("x", [])), s()),
            p.few(axis=lambda: p.one(None, 0, 1, (0,), (0, 1), rare=(True, (True,), 1.0, [], 5, (1.0,))), out=s),
        ),
        lambda: (e.softmax_cross_entropy, (s(), p.one(*p.places)), p.few(grad_out=s, loss_out=lambda: p.one(*p.ones))),
    ]  # fmt: skip
    return p.one(*calls)()


def memory(p: Pool) -> Drawn:
    m, s = p.device._memory, p.square

    def dtype() -> Any:
        return p.one(None, "float32", "bfloat16", np.float32, np.dtype("c8"), rare=("x", [], 3, "int8"))

    calls: list[Callable[[], Drawn]] = [
        lambda: (m.fill, (p.one(s(), *p.places, *p.wide, *p.codes), p.number(0.5, 2, -3, 300)), {}),
        lambda: (m.copy, (p.one(s(), p.vectors[0], *p.places, *p.wide), None, dtype(), p.one(VOLATILE, DURABLE)), {}),
        lambda: (m.copy, (s(), p.one(s(), *p.wide), p.one(None, dtype()), VOLATILE), {}),
    ]
    return p.one(*calls)()


def outcome(call: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return what a call sends and gives, or the error that it raises."""
    sent = []
    sender.observe(lambda plan, reply, ticket: sent.append(plan.spec))
    try:
        result = call(*operands, **options)
    except Exception as error:
        assert not sent
        return type(error), str(error)
    finally:
        sender.observe(None)
    given = {id(one) for one in (*operands, *options.values())}
    parts = result if isinstance(result, tuple | list) else (result,)
    return sent, type(result), [None if x is None else (x.layout, id(x) if id(x) in given else 0) for x in parts]


@pytest.mark.parametrize("draw", [fused, blas, matmul, float8, elementwise, memory])
def test_what_is_remembered_is_what_would_be_found_anew(
    device: an.Device, elsewhere: an.Device, draw: Callable[[Pool], Drawn]
) -> None:
    p = Pool(device, elsewhere, 11)
    actors = (device.fused, device.blas, device.blas_lt, device.float8, device.elementwise, device._memory)
    good = 0
    for _ in range(400):
        call, operands, options = draw(p)
        actor = call.__self__
        assert actor in actors
        warm = outcome(call, operands, options)
        again = outcome(call, operands, options)
        kept, actor._calls = actor._calls, sender.CallCache(1)
        anew = outcome(call, operands, options)
        actor._calls = kept
        assert warm == again == anew, (call.__name__, operands, options)
        good += isinstance(warm[0], list)
    assert good > 60


def test_numbers_of_one_structure_travel_with_each_call(device: an.Device) -> None:
    x = device.put(np.ones(6, np.float32))
    for number in (2.0, 3, np.float32(0.5), np.int64(4), 0.0, 1.0, -2.5, INF, NAN):
        got = device.elementwise.run("a * n", a=x, n=number).numpy()
        np.testing.assert_array_equal(got, np.full(6, float(number)))
    for alpha in (2.0, 3, np.float32(0.5), NAN):
        np.testing.assert_array_equal(device.blas.scal(device.copy(x), alpha).numpy(), np.full(6, float(alpha)))
    z = device.put(np.ones(3, np.complex64))
    for alpha in (2.0, 1j, 2 - 3j, np.complex64(1j)):
        np.testing.assert_array_equal(device.blas.scal(device.copy(z), alpha).numpy(), np.full(3, alpha))


def test_shared_memory_is_seen_in_every_call(device: an.Device) -> None:
    run = device.fused.silu
    whole = device.zeros((8, 4), "float32")
    left, right, apart = whole[:4], whole[2:6], whole[4:]
    for _ in range(2):
        assert run(left, out=apart) is apart
        assert run(left, out=left) is left
        same = whole[:4]
        assert run(left, out=same) is same
        with pytest.raises(an.InvalidRequest, match="out overlaps x"):
            run(left, out=right)
    empty = device.zeros((0, 4), "float32")
    for _ in range(2):
        assert run(empty, out=empty) is empty
        assert run(empty).shape == (0, 4)
        assert run(device.put(np.float32(0.0))).numpy() == 0.0


def used(device: an.Device) -> dict[str, Any]:
    """Return the figures of a device's memory but those of the machine, which other programs change."""
    return {name: figure for name, figure in device.stats()["memory"].items() if name != "device_free"}


def test_stale_handles_are_refused_by_remembered_calls(device: an.Device, elsewhere: an.Device) -> None:
    x, y = device.zeros((4, 4), "float32"), device.zeros((4, 4), "float32")
    device.blas_lt.matmul(x, y)
    device.fused.silu(x, out=y)
    y.free()
    before = used(device)
    for call in (lambda: device.blas_lt.matmul(x, y), lambda: device.fused.silu(x, out=y)):
        with pytest.raises(an.GpuRefStale, match="freed"):
            call()
    assert used(device) == before  # what was allocated for a result is free again
    with pytest.raises(an.InvalidRequest, match="operand 'b' lives on another device"):
        device.blas_lt.matmul(x, elsewhere.zeros((4, 4), "float32"))


def test_requests_share_what_calls_have_found(device: an.Device) -> None:
    x, y = device.zeros((3, 5), "float32"), device.zeros((5, 2), "float32")
    actor = device.blas_lt
    request = an.MatmulRequest(a=x, b=y, alpha=2)
    actor.tell(request)
    known = len(actor._calls)
    assert actor.ask(request).result(60).shape == (3, 2)
    actor.matmul(x, y, alpha=7)
    assert len(actor._calls) == known

    class Named(an.MatmulRequest):
        pass

    assert actor.tell(Named(a=x, b=y)).shape == (3, 2)
    assert len(actor._calls) == known
    with pytest.raises(an.InvalidRequest, match="BlasLt does not accept int; allowed: MatmulRequest"):
        actor.tell(3)


def test_what_is_remembered_is_bounded(device: an.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_actor, "_PLANS", 4)
    actor = Fused(device, "bounded")
    used = device.zeros((1,), "float32")
    plans: dict[int, an.Plan] = {}  # kept, so that none gets another's number
    for size in range(1, 12):
        actor.silu(device.zeros((size,), "float32"))
        actor.silu(used)  # a remembered call keeps its plan
        plans |= {id(plan): plan for plan in actor._calls.plans if plan.layouts[0].shape == (1,)}
    assert len(actor._plans) == len(actor._calls) == 4
    assert len(plans) == 1
    calls = sender.CallCache(2)
    monkeypatch.setattr(actor, "_calls", calls)
    for number in (0.5, 2.0, 0.0, 1.0):
        actor.rms_norm(used, used[:], eps=number)
    assert len(calls) == 2


def test_threads_share_what_is_remembered(device: an.Device) -> None:
    actor = Fused(device, "shared")
    arrays = [device.put(np.full((size, 3), size, np.float32)) for size in range(1, 9)]
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                for x in arrays:
                    assert actor.squared_relu(x).shape == x.shape
            got = actor.squared_relu(arrays[4]).numpy()
            np.testing.assert_array_equal(got, np.full((5, 3), 25.0))
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not errors
    assert len(actor._calls) == len(arrays)


def test_closed_devices_refuse_remembered_calls() -> None:
    with an.System(isolation="thread") as system:
        device = system.device("host")
        x = device.zeros((4,), "float32")
        silu = device.fused.silu
        silu(x, out=x)
        y = silu(x)
        y.wait()
    for call in (lambda: silu(x, out=x), lambda: silu(x)):
        with pytest.raises(an.ActorStopped, match="host is closed"):
            call()


def test_restarts_leave_remembered_calls_as_they_are(worker_process: Placement) -> None:
    with worker_process.system() as system:
        device = system.device()
        x = device.put(np.ones((2, 2), np.float32), durable=True)
        first = device.elementwise.run("a + 1", a=x)
        np.testing.assert_array_equal(first.numpy(), np.full((2, 2), 2))
        known = len(device.elementwise._calls)
        restart(device)
        assert device.generation == 2
        second = device.elementwise.run("a + 1", a=x)
        np.testing.assert_array_equal(second.numpy(), np.full((2, 2), 2))
        assert len(device.elementwise._calls) == known
        with pytest.raises(an.GpuRefStale):
            device.elementwise.run("a + 1", a=first)


def test_forms_say_what_is_wrong_with_them() -> None:
    with pytest.raises(an.InvalidRequest, match="1 names, 2 kinds and 1 defaults"):
        CallForm(tuple, tuple, ("x",), b"aa", (None,))
    with pytest.raises(an.InvalidRequest, match="rest=b'o'; allowed"):
        CallForm(tuple, tuple, ("x",), b"a", (None,), b"o")
