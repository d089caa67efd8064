"""Requests: what they refuse and how they say it, and the actors that send them, over a device of NumPy arrays."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from plan_builds import build_host

from atomr_native.arrays.operands import are_interleaved, memory_span
from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest, Unsupported
from atomr_native.libraries.blas_lt.actor import BlasLt
from atomr_native.libraries.blas_lt.epilogue import Epilogue
from atomr_native.libraries.blas_lt.request import MatmulRequest, MatmulResult
from atomr_native.libraries.elementwise.actor import ElementwiseActor
from atomr_native.libraries.elementwise.expressions import FRESH, compile_program, result_dtype
from atomr_native.libraries.elementwise.request import (
    ElementwiseRequest,
    ReduceRequest,
    SoftmaxCrossEntropyRequest,
)
from atomr_native.plans.calls import NewArray
from atomr_native.plans.spec import OVERWRITE, READ, WRITE, PlanSpec

F32 = np.float32
A, B = np.ones((4, 3), F32), np.ones((3, 5), F32)
D = np.ones((4, 5), F32)


def lazy(shape: tuple[int, ...], dtype: str = "float32", strides: tuple[int, ...] | None = None) -> np.ndarray:
    """Return an array of any size or strides over one element."""
    one = np.zeros(1, DTYPES[dtype])
    return np.lib.stride_tricks.as_strided(one, shape, strides or (0,) * len(shape))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"b": np.ones((4, 5), F32)}, [r"K=3 in A \(4, 3\)", r"K=4 in B"]),
        ({"trans_a": True}, [r"K=4 in A\^T \(3, 4\) is not K=3"]),
        ({"a": np.ones(3, F32)}, [r"\(3,\)", "at least 2 axes"]),
        ({"a": [[1.0]]}, ["a is a list", "GpuRef"]),
        ({"b": B.astype(np.float64)}, ["float32", "float64", "must be the same"]),
        ({"a": A.astype(np.int32), "b": B.astype(np.int32)}, ["int32", "float64, float32, float16, bfloat16"]),
        ({"a": A[::-1]}, ["negative stride -12 at axis 0"]),
        ({"a": lazy((4, 3), strides=(6, 4))}, ["stride 6", "element size 4"]),
        ({"a": np.ones((2, 4, 3), F32), "b": np.ones((3, 3, 5), F32)}, ["do not broadcast", r"a\(2,\), b\(3,\)"]),
        ({"a": lazy((2**40, 1)), "b": lazy((1, 2**40))}, [str(2**82), str(2**63 - 1)]),
        ({"c": np.ones((5, 4), F32), "beta": 1.0}, [r"c has shape \(5, 4\); allowed: \(4, 5\)", "M=4, N=5, K=3"]),
        ({"c": D.astype(np.float16), "beta": 1.0}, ["c has dtype float16; allowed: float32"]),
        ({"beta": 0.5}, ["beta=0.5 needs c", "c=out"]),
        ({"beta": "x"}, ["beta='x'", "real number"]),
        ({"alpha": 1j}, ["alpha=1j", "real number"]),
        ({"trans_a": "T"}, ["trans_a='T'", "True or False"]),
        ({"epilogue": "swish"}, ["'swish'", "gelu_aux_bias, drelu"]),
        ({"epilogue": "bias"}, ["'bias' needs bias"]),
        ({"epilogue": "dgelu"}, ["'dgelu' needs aux"]),
        ({"bias": np.ones(5, F32)}, ["'default' does not use it", "relu_bias"]),
        ({"bias": np.ones(4, F32), "epilogue": "bias"}, [r"\(4,\); allowed: \(5,\)"]),
        ({"bias": np.ones(5, np.float16), "epilogue": "bias"}, ["float16; allowed: float32"]),
        ({"aux": D, "epilogue": "gelu"}, ["'gelu' does not use it", "gelu_aux"]),
        ({"aux": D, "epilogue": "drelu"}, [r"\(4, 5\); allowed: \(4, 16\)"]),
        ({"aux": D, "bias_grad": np.ones(5, F32), "epilogue": "dgelu"}, ["'dgelu' does not use", "dgelu_bgrad"]),
        ({"bias_grad": np.ones(5, F32), "epilogue": "bgrada"}, [r"\(5,\); allowed: \(4,\)"]),
        ({"out": np.ones((4, 4), F32)}, [r"\(4, 4\); allowed: \(4, 5\)"]),
        ({"out": np.ones((4, 5))}, ["D of dtype float64", "allowed: float32"]),
        ({"out": D, "out_dtype": "float16"}, ["out has dtype float32", "out_dtype=float16"]),
        ({"out_dtype": "int32"}, ["D of dtype int32", "allowed: float32"]),
        ({"out_dtype": "quad"}, ["'quad'", "bfloat16"]),
        ({"out": lazy((4, 5))}, ["overlaps itself"]),
        ({"out": D, "c": D[:], "beta": 1.0}, ["out overlaps c", "pass the same handle"]),
        ({"aux": D, "out": D, "epilogue": "gelu_aux"}, ["aux overlaps out"]),
    ],
)  # fmt: skip
def test_matmul_refuses(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        MatmulRequest(**({"a": A, "b": B} | options))
    for word in words:
        assert caught.match(word)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"compute_type": "float64"}, "compute_type=float64.*allowed: float32"),
    ],
)
def test_matmul_leaves_for_later(options: dict[str, Any], word: str) -> None:
    with pytest.raises(Unsupported, match=word):
        MatmulRequest(**({"a": A, "b": B} | options))


def test_out_overlapping_an_operand_is_seen_in_one_allocation() -> None:
    x = np.ones((8, 4), F32)
    with pytest.raises(InvalidRequest, match=r"out overlaps a: bytes \d+ to \d+"):
        MatmulRequest(a=x[:4], b=x[4:], out=x[2:6])
    MatmulRequest(a=x[:4], b=x[:4], out=x[4:])


@pytest.mark.parametrize(
    ("x", "y", "apart"),
    [
        (np.s_[:, :, 0], np.s_[:, :, 1], True),  # parts of one packed array
        (np.s_[:, :, 2], np.s_[:, :, 0], True),
        (np.s_[:, :, :2], np.s_[:, :, 2], True),
        (np.s_[:, :, :2], np.s_[:, :, 1], False),
        (np.s_[:, :, 0], np.s_[:, ::2, 0], False),
        (np.s_[:, ::2], np.s_[:, 1::2], True),
        (np.s_[:, ::2, 0], np.s_[:, 1::2, 0], True),
        (np.s_[..., :3], np.s_[..., 3:], True),
        (np.s_[..., :3], np.s_[..., 2:], False),
        (np.s_[:, :, 0, ::-1], np.s_[:, :, 1], False),  # apart, but not known to be
        (np.s_[:, :, 0], np.s_[1, 1, 1], True),
        (np.s_[:, :, 0], np.s_[1, 1, 0], False),
        (np.s_[:, ::3], np.s_[:, 1::2], False),
    ],
)
def test_views_that_lie_side_by_side_are_apart(x: Any, y: Any, apart: bool) -> None:
    """Those that are said to be apart have no element in common."""
    base = np.zeros((2, 6, 3, 5), F32)
    views = base[x], base[y]
    starts = [memory_span(view)[1] for view in views]
    assert [are_interleaved(views[i], starts[i], views[1 - i], starts[1 - i]) for i in (0, 1)] == [apart, apart]
    views[0][...] = 1
    assert not apart or not views[1].any()


def test_requests_are_frozen_values_that_pickle() -> None:
    request = MatmulRequest(a=A, b=B, epilogue=Epilogue.GELU_AUX, alpha=2)
    again = pickle.loads(pickle.dumps(request))
    assert again.lowered.spec() == request.lowered.spec()
    with pytest.raises(AttributeError):
        request.alpha = 1.0  # type: ignore[misc]
    assert hash(request.lowered.spec()) == hash(again.lowered.spec())


def test_scalars_do_not_belong_to_a_plan() -> None:
    c = np.ones((4, 5), F32)
    same = {MatmulRequest(a=A, b=B, c=c, alpha=x, beta=y).lowered.spec() for x, y in ((1, 2), (0.5, -1.0))}
    assert len(same) == 1
    programs = {ElementwiseRequest(program="x * s", operands={"x": A, "s": s}).lowered.spec() for s in (0.5, 2.5, 2)}
    assert len(programs) == 2  # an integer and a real number promote differently


def test_constants_of_equal_value_and_different_type_are_different_plans() -> None:
    x = np.ones(3, np.int32)
    specs = {ElementwiseRequest(program=p, operands={"x": x}).lowered.spec() for p in ("x + 1", "x + 1.0")}
    assert len(specs) == 2


def test_programs_are_canonical() -> None:
    types = {"x": "float32", "y": "bfloat16"}
    one = compile_program("y = (x*x) + x*x  ;t=y", types | {"t": "float32"})
    two = compile_program("\n  y = x * x + x * x\n  t = y\n", types | {"t": "float32"})
    assert one == two
    assert [n[0] for n in one.nodes] == ["operand", "multiply", "add", "cast", "cast"]
    assert one.reads == {"x"}
    assert compile_program({"y": "x*x + x*x", "t": "y"}, types | {"t": "float32"}) == one
    for bad in ({"y": "t = x"}, {"y z": "x"}, {"y": 2}, 3):
        with pytest.raises(InvalidRequest, match=r"allowed: (one expression|a str to a name|str, or a mapping)"):
            compile_program(bad, types)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("x +", ["line 1, column 4", "invalid syntax"]),
        ("x + zoo", ["'zoo' at line 1, column 5", "allowed: x, out"]),
        ("import os", ["Import", "allowed: one expression"]),
        ("__import__('os')", ["unknown function '__import__'", "where, minimum"]),
        ("x.real", ["Attribute 'x.real'", "names, numbers"]),
        ("x[0]", ["Subscript"]),
        ("(lambda: x)()", ["unknown function"]),
        ("[x for x in x]", ["ListComp"]),
        ("x if x else x", ["IfExp"]),
        ("x and x", ["BoolOp"]),
        ("not x", ["UnaryOp 'not x'"]),
        ("x @ x", ["operator MatMult"]),
        ("1 < x < 2", ["chained comparison", r"\(a < b\) & \(b < c\)"]),
        ("x is x", ["Compare"]),
        ("'text'", ["Constant"]),
        ("1j * x", ["Constant '1j'"]),
        ("x + 9" + "9" * 1300, ["of 4322 bits", "integers of 4096 bits"]),
        ("exp(x, x)", ["exp with 2 arguments", "1 arguments by position"]),
        ("where(x, y=1)", ["1 keywords"]),
        ("maximum(x, x, axis=0)", ["2 arguments and 1 keywords"]),
        ("exp(*x)", ["Starred"]),
        ("t = x", ["'t' is assigned, but is neither read later nor an operand"]),
        ("a, b = x", ["Tuple|'a, b'|a name"]),
        ("x[0] = 1", ["assignment to 'x\\[0\\]'"]),
        ("out = x\nout.y = 2", ["line 2, column 1"]),
        ("s = 2", ["'s', which is a number"]),
        ("x & x", ["bitwise_and of float32, float32 is not defined"]),
        ("", ["empty"]),
        ("x\0", ["null bytes"]),
        ("x" + "+x" * 9000, ["18001 characters; allowed: 16384"]),
        ("(" * 100 + "x" + ")" * 100 + "+y" + "+x" * 3000, ["parsed|nested"]),
        ("2 * s", ["not used.*: x"]),
    ],
)  # fmt: skip
def test_programs_refuse(program: str, words: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        compile_program(program, {"x": "float32", "out": "float32"} | ({"s": "float"} if "s" in program else {}))
    for word in words:
        assert caught.match(word)
    assert len(str(caught.value)) < 1000


def test_complex_values_are_not_assigned_to_real_operands() -> None:
    with pytest.raises(InvalidRequest, match=r"a complex64 value is assigned to 'out' of dtype float32.*complex128"):
        compile_program("x * z", {"x": "float32", "z": "complex64", "out": "float32"})


def test_what_is_overwritten_unread_is_not_computed() -> None:
    types = {"x": "float32", "y": "float32", "out": "float32"}
    made = compile_program("out = exp(x) + out; y = y * 3; out = x * 2; y = x", types)
    assert [node[0] for node in made.nodes] == ["operand", "const", "multiply"]
    assert made.reads == {"x"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_operands_are_computed_in_float32(dtype: str) -> None:
    made = compile_program("x * x", {"x": dtype, "out": FRESH})
    assert made.nodes == (("operand", "float32", "x"), ("multiply", "float32", 0, 0))
    assert result_dtype(made, "out", {"x": dtype}) == dtype


def test_elementwise_refuses_shapes_and_operands() -> None:
    x, y = np.ones((2, 3)), np.ones((4,))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"program": "x + y", "operands": {"x": x, "y": y}}, r"do not broadcast: x\(2, 3\), y\(4,\)"),
        ({"program": "x + y", "operands": {"x": x, "y": np.ones(3), "z": 1}}, "not used.*: z"),
        ({"program": "x", "operands": {"x": x}, "out": np.ones(3)}, r"out of shape \(3,\).*\(2, 3\)"),
        ({"program": "x = 1; y = 2", "operands": {"x": x, "y": y}}, r"one shape, not x\(2, 3\), y\(4,\)"),
        ({"program": "x + s", "operands": {"x": x, "s": "one"}}, "s is a str"),
        ({"program": "x + s", "operands": {"x": x, "s": 1j}}, "scalar 1j; allowed: real"),
        ({"program": "x + s", "operands": {"x": x, "s": 2**63}}, "64 bits"),
        ({"program": "2 * s", "operands": {"s": 2}}, "no array"),
        ({"program": "out + x", "operands": {"x": x}}, "'out' is read before it is assigned"),
        ({"program": "x", "operands": {"x": x, "out": x}, "out": x}, "out is given twice"),
        ({"program": "x", "operands": {"x": x[::-1]}, "out": np.ones((2, 3))[::-1]}, "out has the negative stride"),
        ({"program": "1", "operands": {}, "out": lazy((2, 3))}, "overlaps itself"),
        ({"program": "x + y", "operands": {"x": lazy((2**40, 1)), "y": lazy((1, 2**40))}}, "needs"),
    ]
    for options, word in cases:
        with pytest.raises(InvalidRequest, match=word):
            ElementwiseRequest(**options)


def test_elementwise_access_flags() -> None:
    w, m, g = (np.ones(3) for _ in range(3))
    made = ElementwiseRequest(program="m = g; w = w + m", operands={"w": w, "m": m, "g": g}).lowered
    assert [(o.name, o.access) for o in made.spec().operands] == [
        ("w", READ | WRITE), ("m", WRITE | OVERWRITE), ("g", READ),
    ]  # fmt: skip
    assert list(map(id, made.collect({"w": w, "m": m, "g": g}))) == [id(m), id(w)]


def test_reductions_and_losses_refuse() -> None:
    x, labels = np.ones((2, 3), F32), np.zeros(2, np.int32)
    for options, word in [
        ({"op": "median", "x": x}, "'median'; allowed: sum, mean, max, argmax, min, argmin, prod, any, all"),
        ({"op": "sum", "x": x, "axis": 2}, "axis=2 .* from -2 to 1"),
        ({"op": "sum", "x": x, "axis": (0, -2)}, "twice"),
        ({"op": "max", "x": x[:0], "axis": 0}, "no elements"),
        ({"op": "max", "x": x * 1j}, "real dtypes"),
        ({"op": "sum", "x": x, "out": np.ones(2)}, r"allowed: \(\)"),
    ]:
        with pytest.raises(InvalidRequest, match=word):
            ReduceRequest(**options)
    for options, word in [
        ({"logits": x[0]}, r"\(3,\); allowed: \(N, classes\)"),
        ({"logits": x.astype(np.int32)}, "int32; allowed: float64"),
        ({"labels": labels.astype(np.uint8)}, "uint8.*int32 or int64"),
        ({"labels": labels[:1]}, r"\(1,\).*\(2,\)"),
        ({"grad_out": x}, "grad overlaps logits"),
        ({"grad_out": np.ones((2, 3))}, "grad_out has dtype float64; allowed: float32"),
        ({"loss_out": np.ones(())}, "loss_out has dtype float64; allowed: float32"),
    ]:
        with pytest.raises(InvalidRequest, match=word):
            SoftmaxCrossEntropyRequest(**({"logits": x, "labels": labels} | options))


# ---- actors


class Layout:
    """Interned, as the runtime's layouts are."""

    known: ClassVar[dict[Any, Layout]] = {}

    def __init__(self, array: np.ndarray) -> None:
        self.shape, self.dtype, self.strides = array.shape, array.dtype, array.strides


class Ref:
    """A handle over a NumPy array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        key = array.shape, array.dtype, array.strides
        self.layout = Layout.known.setdefault(key, Layout(array))
        self.shape, self.dtype, self.strides = key[0], key[1], key[2]

    def memory_span(self) -> tuple[Any, int, int]:
        base = self.array if self.array.base is None else self.array.base
        return id(base), *np.lib.array_utils.byte_bounds(self.array)


class Direct:
    """Immediate calls of which nothing is remembered, and whose plans run at once."""

    def send(self, actor: Any, form: Any, values: tuple[Any, ...], want_reply: bool = False) -> Any:
        message = actor._lower(form.unpack(values))
        spec, signature = message.plan
        made: dict[int, Ref] = {}

        def one(operand: Any) -> Any:
            if isinstance(operand, NewArray):
                return made.setdefault(id(operand), actor._empty(operand.whole.shape, operand.whole.dtype))
            return operand

        refs = tuple(map(one, message.operands))
        numbers = [values[form.names.index(n) if isinstance(n, str) else n] for n in message.numbers]
        scalars = tuple(message.convert(*numbers) if message.convert else map(float, numbers))
        assert [(o.shape, o.strides) for o in spec.operands] == [(r.shape, r.strides) for r in refs]
        assert len(scalars) == len(spec.scalars)
        assert signature is None or signature.operands == tuple(o.name for o in spec.operands)
        run = build_host(spec).run
        assert callable(run)
        run(tuple(ref.array for ref in refs), scalars)
        actor.sent.append(refs)
        result: Any = message.result
        if isinstance(result, tuple) and not isinstance(result, NewArray):
            parts = map(one, result)
            result = tuple(parts) if type(result) is tuple else type(result)(*parts)
        else:
            result = one(result)
        return ("reply", result) if want_reply else result


class Numpy:
    """The runtime's half of an actor."""

    def __init__(self) -> None:
        self._calls = Direct()
        self.sent: list[tuple[Any, ...]] = []
        self.plans: set[Any] = set()

    @property
    def built(self) -> int:
        return len(self.plans)

    def _plan(self, spec: PlanSpec, signature: Any = None) -> Any:
        self.plans.add((spec, signature))
        return spec, signature

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Ref:
        array = np.empty(shape, dtype)
        array.fill(7 if dtype.kind in "biu" else np.nan)
        return Ref(array)


class NumpyBlasLt(Numpy, BlasLt):
    owner = SimpleNamespace(kind="host")


class NumpyElementwise(Numpy, ElementwiseActor):
    pass


def refs(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(len(shapes))
    return [Ref(rng.standard_normal(shape).astype(DTYPES[dtype])) for shape in shapes]


def test_immediate_matmul_prepares_once() -> None:
    actor = NumpyBlasLt()
    a, b, other, bias = refs((4, 3), (3, 5), (4, 3), (5,))
    for x in (a, other, a):
        d = actor.matmul(x, b)
        np.testing.assert_allclose(d.array, x.array @ b.array, rtol=1e-5)
    assert actor.built == 1
    d = actor.matmul(a, b, bias=bias, epilogue="bias", alpha=2.0)
    np.testing.assert_allclose(d.array, 2 * (a.array @ b.array) + bias.array, rtol=1e-5)
    assert actor.built == 2


def test_immediate_matmul_returns_what_the_epilogue_stores() -> None:
    actor = NumpyBlasLt()
    a, b, bias, weights, target = refs((4, 3), (3, 5), (5,), (5, 2), (4, 2))
    forward = actor.matmul(a, b, bias=bias, epilogue="gelu_aux_bias")
    assert isinstance(forward, MatmulResult)
    assert forward.bias_grad is None
    np.testing.assert_allclose(forward.aux.array, a.array @ b.array + bias.array, rtol=1e-5)
    back = actor.matmul(target, weights, trans_b=True, aux=forward.aux, epilogue=Epilogue.DGELU_BGRAD)
    assert back.aux is None
    np.testing.assert_allclose(back.bias_grad.array, back.out.array.sum(0), rtol=1e-4, atol=1e-5)
    mine = actor._empty((5,), np.dtype(F32))
    again = actor.matmul(target, weights, trans_b=True, aux=forward.aux, epilogue="dgelu_bgrad", bias_grad=mine)
    assert again.bias_grad is mine
    np.testing.assert_array_equal(mine.array, back.bias_grad.array)


def test_immediate_matmul_checks_memory_on_every_call() -> None:
    actor = NumpyBlasLt()
    a, b, out, c = refs((4, 4), (4, 4), (4, 4), (4, 4))
    assert actor.matmul(a, b, out=out) is out
    for bad in (a, b):
        with pytest.raises(InvalidRequest, match="out overlaps"):
            actor.matmul(a, b, out=bad)
    before = c.array.copy()
    actor.matmul(a, b, c=c, out=c, beta=1.0)
    np.testing.assert_allclose(c.array, before + a.array @ b.array, rtol=1e-5)
    before = c.array.copy()
    actor.matmul(a, b, c=c, out=out, beta=1.0)
    np.testing.assert_allclose(out.array, before + a.array @ b.array, rtol=1e-5)
    actor.matmul(a, b, c=c, out=c, beta=1.0)
    np.testing.assert_array_equal(c.array, out.array)
    with pytest.raises(InvalidRequest, match="out overlaps c"):
        actor.matmul(a, b, c=Ref(c.array[:]), out=c, beta=1.0)


def test_matmul_takes_handles_only() -> None:
    actor = NumpyBlasLt()
    a, b = refs((4, 3), (3, 5))
    for options, word in [
        ({"a": a.array}, "a is a ndarray"), ({"c": 1, "beta": 1}, "c is a int|c is a"), ({"out_dtype": []}, "dtype"),
        ({"epilogue": []}, "epilogue"), ({"bias": b.array[0], "epilogue": "bias"}, "bias is a ndarray"),
    ]:  # fmt: skip
        with pytest.raises(InvalidRequest, match=word):
            actor.matmul(**({"a": a, "b": b} | options))
    with pytest.raises(InvalidRequest, match="a_scale"):
        actor.matmul(a, b, a_scale=1.0)
    with pytest.raises(InvalidRequest, match="a is a ndarray"):
        actor.tell(MatmulRequest(a=a.array, b=b.array))
    assert not actor.sent


def test_matmul_requests_and_plans() -> None:
    actor = NumpyBlasLt()
    a, b, c = refs((4, 3), (3, 5), (4, 5))
    request = MatmulRequest(a=a, b=b, c=c, beta=0.5)
    np.testing.assert_allclose(actor.tell(request).array, a.array @ b.array + c.array / 2, rtol=1e-5)
    kind, value = actor.ask(request)
    assert kind == "reply"
    np.testing.assert_allclose(value.array, a.array @ b.array + c.array / 2, rtol=1e-5)
    _, signature = actor.plan(a, b, c=c, alpha=3, beta=0.5)
    assert signature.inputs == ("a", "b", "c")
    assert signature.outputs == ("out",)
    assert (signature.scalars, signature.defaults) == (("alpha", "beta"), (3.0, 0.5))


def test_elementwise_prepares_once_and_follows_its_operands() -> None:
    actor = NumpyElementwise()
    w, g, m = refs((6, 7), (6, 7), (6, 7))
    for lr in (0.1, 0.2, np.float32(0.25)):
        expected = w.array - F32(lr) * g.array
        assert actor.run("w - lr * g", out=w, w=w, g=g, lr=lr) is w
        np.testing.assert_array_equal(w.array, expected)
    assert actor.built == 1
    apart = actor.run("w - lr * g", w=w, g=g, lr=0.5)
    np.testing.assert_array_equal(apart.array, w.array - F32(0.5) * g.array)
    assert actor.run("w - lr * g", out=m, w=w, g=g, lr=0.5) is m
    np.testing.assert_array_equal(m.array, apart.array)
    assert actor.built == 2
    expected = g.array - F32(0.5) * g.array
    actor.run("w - lr * g", out=m, w=g, g=g, lr=0.5)  # two names of one array that is only read
    np.testing.assert_array_equal(m.array, expected)
    assert actor.run("m = 2 * m; w = w + m", m=m, w=w) == (m, w)
    with pytest.raises(InvalidRequest, match="x is a ndarray"):
        actor.run("x + 1", x=w.array)
    with pytest.raises(InvalidRequest, match="out is a ndarray"):
        actor.run("w + 1", w=w, out=w.array)
    with pytest.raises(InvalidRequest, match="program is a int"):
        actor.run(3, w=w)


def test_elementwise_checks_memory_on_every_call() -> None:
    actor = NumpyElementwise()
    base = np.arange(20, dtype=F32)
    left, right, other = Ref(base[:10]), Ref(base[5:15]), Ref(base[10:])
    actor.run("x + 1", out=other, x=left)
    with pytest.raises(InvalidRequest, match="out overlaps x"):
        actor.run("x + 1", out=right, x=left)
    before = left.array.copy()
    actor.run("x + 1", out=Ref(base[:10]), x=left)  # another handle of the same view
    np.testing.assert_array_equal(left.array, before + 1)


def test_elementwise_requests_reductions_and_losses() -> None:
    actor = NumpyElementwise()
    x, y = refs((4, 3), (4, 3))
    kind, value = actor.ask(
        ElementwiseRequest(program={"z": "x + y", "out": "z * s"}, operands={"x": x, "y": y, "s": 2})
    )
    assert kind == "reply"
    np.testing.assert_array_equal(value.array, (x.array + y.array) * 2)
    np.testing.assert_allclose(actor.reduce("sum", x, 0).array, x.array.sum(0), rtol=1e-5)
    np.testing.assert_array_equal(actor.reduce("argmax", x, axis=1).array, x.array.argmax(1))
    labels = Ref(np.array([0, 2, 1, 1]))
    loss, grad = actor.softmax_cross_entropy(x, labels)
    assert loss.shape == ()
    np.testing.assert_allclose(grad.array.sum(1), 0, atol=1e-6)
    spec, _ = actor.plan_softmax_cross_entropy(x, labels)
    assert [operand.name for operand in spec.operands] == ["logits", "labels", "grad", "loss"]
    _, signature = actor.plan("x - lr * y", out=x, x=x, y=y, lr=0.5)
    assert (signature.inputs, signature.outputs) == (("y",), ("x",))
    assert (signature.scalars, signature.defaults) == (("lr",), (0.5,))
    with pytest.raises(InvalidRequest, match="does not accept int"):
        actor.tell(3)


def test_elementwise_tells_in_place_from_apart() -> None:
    actor = NumpyElementwise()
    x, y, out = refs((3,), (3,), (3,))
    for target in (x, y, out, x):
        expected = x.array - 2 * y.array
        actor.run("x - 2 * y", out=target, x=x, y=y)
        np.testing.assert_array_equal(target.array, expected)
    assert actor.built == 3


def test_matmul_with_options_is_remembered_too() -> None:
    actor = NumpyBlasLt()
    a, b = (Ref(np.ones(s, DTYPES["float8_e4m3fn"])) for s in ((4, 16), (16, 5)))
    scale = Ref(np.asarray(0.5, np.float32))
    for alpha in (1.0, 3.0):
        result = actor.matmul(a, b, alpha=alpha, a_scale=scale, out_dtype="float32", amax=True)
        assert isinstance(result, MatmulResult)
        np.testing.assert_array_equal(result.out.array, np.full((4, 5), 8 * alpha))
        assert (result.amax.array, result.aux, result.bias_grad) == (8 * alpha, None, None)
        assert actor.built == 1
    factor = Ref(np.asarray(2.0, np.float32))
    assert actor.matmul(a, b, alpha=factor, out_dtype="float32").array[0, 0] == 32
    for number in (np.float32(2), np.int64(2), np.float64(2)):
        assert actor.matmul(a, b, alpha=number, out_dtype="float32").array[0, 0] == 2 * actor.matmul(
            a, b, out_dtype="float32"
        ).array[0, 0]  # fmt: skip
    z = Ref(np.full((2, 2), 1j, np.complex64))
    assert actor.matmul(z, z, alpha=1j, conj_a=True).array[0, 0] == 2j
    assert actor.matmul(z, z).array[0, 0] == -2
    with pytest.raises(InvalidRequest, match="amax overlaps a_scale"):
        actor.matmul(a, b, a_scale=scale, amax=scale)
