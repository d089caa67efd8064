"""Matmul plans of CUDA devices, without one.

Every layout goes through the builder, the native plan and an emulated cuBLASLt on flat memory, and must come out as
the host device computes it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from lt_emulator import Rig
from msgspec.structs import replace
from plan_builds import build_host, received

from atomr_native.dtypes import DTYPES
from atomr_native.errors import Unsupported
from atomr_native.libraries.blas_lt.cuda.description import UnevenBatch, matmul_description
from atomr_native.libraries.blas_lt.cuda.native import MatmulDescription
from atomr_native.libraries.blas_lt.epilogue import Epilogue
from atomr_native.libraries.blas_lt.request import MatmulRequest

OK, LIBRARY_ERROR, UNSUPPORTED, INVALID_REQUEST = 0, 1, 2, 3
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}
#: (dtype of A and B, dtype of D)
PAIRS = (
    ("float32", "float32"),
    ("float16", "float16"),
    ("bfloat16", "bfloat16"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
)
#: Epilogues for which D may be column-major.
SYMMETRIC = ("default", "relu", "gelu", "gelu_aux", "dgelu", "bgrada", "bgradb")


class Memory:
    """Arrays with guards: views into larger, poisoned blocks, so that a stray write is seen."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.blocks: dict[str, np.ndarray] = {}
        self.starts: dict[str, np.ndarray] = {}

    def array(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, kind: str = "C", step: int = 1, shift: int = 0
    ) -> np.ndarray:
        """Make an array.  kind: "C"; "padded" rows; "F": the last two axes swapped in memory; both begin `shift`
        elements after an address aligned to 256 bytes.  Row strides are multiples of `step`."""
        inner = list(shape)
        if kind == "F":
            inner[-2:] = inner[:-3:-1]
        if kind != "C" or step > 1:
            inner[-1] = -(-(inner[-1] + (kind != "C")) // step) * step
        count = int(np.prod(inner)) + shift
        raw = np.empty((count + 8) * dtype.itemsize + 256, np.uint8)
        raw[:] = self.rng.integers(0, 255, raw.shape, np.uint8)
        begin = -raw.ctypes.data % 256
        block = raw[begin : begin + (count + 8) * dtype.itemsize]
        view = block.view(dtype)[shift:count].reshape(inner)
        view = view[..., : shape[-2] if kind == "F" else shape[-1]]
        view = view.swapaxes(-1, -2) if kind == "F" else view
        assert view.shape == shape
        self.blocks[name] = block
        return view

    def fill(self, view: np.ndarray) -> np.ndarray:
        """Fill with small integers, of which sums of products are exact."""
        view[...] = self.rng.integers(-2, 3, view.shape).astype(view.dtype)
        return view

    def remember(self) -> None:
        self.starts = {name: block.copy() for name, block in self.blocks.items()}

    def check_guards(self, name: str, view: np.ndarray) -> None:
        """Fail if bytes of the block outside of the view have changed."""
        block, start = self.blocks[name], self.starts[name]
        inside = np.zeros(block.shape, bool)
        offset = view.ctypes.data - block.ctypes.data
        shape, strides = (*view.shape, view.itemsize), (*view.strides, 1)
        np.ndarray(shape, bool, inside, offset, strides)[...] = True
        np.testing.assert_array_equal(block[~inside], start[~inside], err_msg=f"bytes beside {name} changed")


#: Batch axes of A and of B.
BATCHES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()),
    ((3,), (3,)),
    ((3,), ()),
    ((), (3,)),
    ((2, 3), (2, 3)),
    ((2, 3), ()),
    ((1, 3), (3,)),
    ((2, 1, 2), (1,)),
)


def draw(rng: np.random.Generator, memory: Memory, epilogue: Epilogue, pair: tuple[str, str]) -> MatmulRequest:
    """Make a random request of an epilogue: extents, batches, layouts, C."""
    dtype, out_dtype = DTYPES[pair[0]], DTYPES[pair[1]]
    a_batch, b_batch = BATCHES[rng.integers(len(BATCHES))]
    if epilogue in ("bgrada", "bgradb"):  # in one call for one matrix only
        a_batch = b_batch = ()
    m, n, k = (int(rng.choice([1, 2, 5, 8, 16, 33])) for _ in range(3))
    n = int(rng.choice([n, 128, 130])) if rng.random() < 0.3 else n
    k = max(k, 2) if epilogue.reads_aux else k
    trans_a, trans_b = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    batch = np.broadcast_shapes(a_batch, b_batch)
    kinds = ("C", "padded", "F")

    def make(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], **how: Any) -> np.ndarray:
        return memory.fill(memory.array(name, shape, dtype, shift=int(rng.choice([0, 0, 0, 1])), **how))

    a = make("a", (*a_batch, k, m) if trans_a else (*a_batch, m, k), dtype, kind=rng.choice(kinds))
    b = make("b", (*b_batch, n, k) if trans_b else (*b_batch, k, n), dtype, kind=rng.choice(kinds))
    kind = rng.choice(kinds if epilogue.value in SYMMETRIC else kinds[:2])
    out = make("out", (*batch, m, n), out_dtype, kind=kind)
    options: dict[str, Any] = {}
    added = rng.choice(["none", "out", "c"])
    if added != "none":
        beta = float(rng.choice([1.0, -0.5]))
        c = (
            out
            if added == "out"
            else make("c", out.shape, out_dtype, kind=kind if kind == "F" else rng.choice(kinds[:2]))
        )
        options |= {"beta": beta, "c": c}
    if epilogue.uses_bias:
        lead = batch if rng.random() < 0.4 else ()
        options["bias"] = make("bias", (*lead, n), out_dtype)
    if epilogue.reads_aux or epilogue.writes_aux:
        if epilogue.activation == "relu":
            aux = memory.array("aux", (*batch, m, -(-n // 128) * 16), DTYPES["uint8"])
            aux[...] = rng.integers(0, 255, aux.shape, np.uint8)
        else:
            aux_kind = "F" if kind == "F" else rng.choice(kinds[:2])
            aux = memory.fill(memory.array("aux", out.shape, out_dtype, step=8, kind=aux_kind))
        options["aux"] = aux
    if epilogue.writes_bias_grad:
        length = m if epilogue is Epilogue.BGRADA else n
        options["bias_grad"] = make("bias_grad", (*batch, length), out_dtype)
    return MatmulRequest(
        a=a, b=b, out=out, alpha=float(rng.choice([1.0, 0.5])), trans_a=trans_a, trans_b=trans_b, epilogue=epilogue,
        **options,
    )  # fmt: skip


def both(rig: Rig, memory: Memory, request: MatmulRequest) -> MatmulDescription:
    """Run a request on the host device and through the native plan, and compare everything that they wrote."""
    spec = request.lowered.spec()
    arrays = [getattr(request, operand.name) for operand in spec.operands]
    description = matmul_description(received(spec))
    scalars = (float(request.alpha), float(request.beta))
    built = build_host(spec)
    assert callable(built.run)
    memory.remember()
    built.run(tuple(arrays), scalars)
    expected = [np.copy(x) for x in arrays]
    for name, start in memory.starts.items():
        memory.blocks[name][:] = start
    code, plan = rig.new(description)
    assert code == OK, rig.failure.text
    assert rig.run(plan, [x.ctypes.data for x in arrays], scalars) == OK, rig.failure.text
    rig.delete(plan)
    for operand, got, want in zip(spec.operands, arrays, expected, strict=True):
        memory.check_guards(operand.name, got)
        if not operand.access & 2:
            continue
        if operand.dtype == "uint8":
            np.testing.assert_array_equal(got, want, err_msg=operand.name)
        else:
            x, y = got.astype(np.float64), want.astype(np.float64)
            scale = max(1.0, float(abs(y).max(initial=0)))
            assert np.all(abs(x - y) <= TOLERANCE[operand.dtype] * scale), (operand.name, description)
    return description


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("epilogue", list(Epilogue))
def test_every_epilogue_matches_the_host(rig: Rig, epilogue: Epilogue, pair: tuple[str, str]) -> None:
    rng = np.random.default_rng([list(Epilogue).index(epilogue), PAIRS.index(pair)])
    done = 0
    for _ in range(24):
        memory = Memory(rng)
        request = draw(rng, memory, epilogue, pair)
        try:
            both(rig, memory, request)
            done += 1
        except Unsupported as error:  # of what is drawn, only the aux of a single column may not fit
            if "aux of GELU" not in error.message:
                raise
    assert done >= 16


def test_float64_without_epilogue_matches_the_host(rig: Rig) -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        memory = Memory(rng)
        both(rig, memory, draw(rng, memory, Epilogue.DEFAULT, ("float64", "float64")))


def simple(rng: np.random.Generator, m: int, n: int, k: int, dtype: str = "float32", **options: Any) -> MatmulRequest:
    a, b = (rng.standard_normal(s).astype(DTYPES[dtype]) for s in ((m, k), (k, n)))
    return MatmulRequest(a=a, b=b, **options)


def describe(request: MatmulRequest, **options: Any) -> MatmulDescription:
    return matmul_description(received(request.lowered.spec()), **options)


def test_row_major_operands_are_swapped_not_transposed() -> None:
    d = describe(simple(np.random.default_rng(0), 3, 5, 7))
    assert (d.m, d.n, d.k, d.batch) == (5, 3, 7, 1)
    assert (d.a, d.b, d.d, d.c) == (1, 0, 2, -1)
    assert (d.trans_a, d.trans_b, d.ld_a, d.ld_b, d.ld_d) == (0, 0, 5, 7, 5)
    assert (d.type_a, d.type_b, d.type_c, d.type_d, d.compute, d.scale) == (0, 0, 0, 0, 68, 0)
    assert describe(simple(np.random.default_rng(0), 3, 5, 7, compute="tf32")).compute == 77


def test_one_b_for_all_is_one_product() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 6, 8)), rng.standard_normal((8, 5))
    d = describe(MatmulRequest(a=a, b=b))
    assert (d.m, d.n, d.k, d.batch) == (5, 24, 8, 1)
    d = describe(MatmulRequest(a=a[:, ::2], b=b))  # every second row, evenly from one matrix to the next
    assert (d.n, d.ld_b, d.batch) == (12, 16, 1)
    d = describe(MatmulRequest(a=a[:, :5], b=b))  # unevenly
    assert (d.n, d.batch, d.step_b, d.step_a) == (5, 4, 48, 0)


def test_bias_gradient_layouts() -> None:
    rng = np.random.default_rng(0)
    x, g = (rng.standard_normal(s).astype(np.float32) for s in ((32, 8), (32, 6)))
    # dW = g^T @ x with the sum of g over its rows: op(A) is (6, 32), dense along its 6.
    d = describe(MatmulRequest(a=g, b=x, trans_a=True, epilogue="bgrada"))
    assert (d.epilogue, d.trans_a, d.trans_b, d.order_b) == (512, 0, 1, 0)
    d = describe(MatmulRequest(a=x, b=g, trans_a=True, epilogue="bgradb"))
    assert (d.epilogue, d.trans_a, d.trans_b, d.order_a) == (256, 0, 1, 0)
    d = describe(MatmulRequest(a=np.ascontiguousarray(g.T), b=x, epilogue="bgrada"))
    assert (d.epilogue, d.trans_b, d.order_b, d.ld_b) == (512, 1, 1, 32)


@pytest.mark.parametrize(
    ("message", "make"),
    [
        ("epilogues for float32", lambda r: simple(r, 3, 4, 5, "float64", epilogue="relu")),
        ("K=0", lambda r: simple(r, 3, 4, 0)),
        ("K=1", lambda r: simple(r, 3, 8, 1, epilogue="dgelu", aux=np.zeros((3, 8), np.float32))),
        ("multiples of 8 elements", lambda r: simple(r, 3, 5, 2, epilogue="gelu_aux")),
        (
            "16 bytes",
            lambda r: simple(r, 3, 5, 2, epilogue="drelu", aux=np.zeros((3, 17), np.uint8)[:, :16]),
        ),
        (
            "C-contiguous",
            lambda r: simple(r, 3, 5, 2, epilogue="relu_aux", aux=np.zeros((3, 32), np.uint8)[:, :16]),
        ),
        ("D is empty", lambda r: simple(r, 0, 5, 2, epilogue="drelu_bgrad", aux=np.zeros((0, 16), np.uint8))),
        ("is not dense", lambda r: simple(r, 3, 5, 2, epilogue="bias", bias=np.zeros(10, np.float32)[::2])),
        ("no dense axis", lambda r: MatmulRequest(a=np.zeros((6, 10))[::2, ::2], b=np.zeros((5, 4)))),
        ("they overlap", lambda r: MatmulRequest(a=np.broadcast_to(np.zeros(5), (3, 5)), b=np.zeros((5, 4)))),
        (
            "takes D and C",
            lambda r: simple(r, 3, 5, 2, epilogue="bias", bias=np.zeros(5, np.float32), out=np.zeros((5, 3), "f4").T),
        ),
        (
            "takes D and C",
            lambda r: simple(r, 3, 5, 2, beta=1.0, c=np.zeros((5, 3), "f4").T, out=np.zeros((3, 5), "f4")),
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_names_its_rule(message: str, make: Any) -> None:
    request = make(np.random.default_rng(0))
    with pytest.raises(Unsupported, match=message) as caught:
        describe(request)
    assert re.search("device|copy|pad|leave|dtype|send", str(caught.value)), "what lifts it is missing"


def test_a_batch_without_even_steps_is_told_apart() -> None:
    with pytest.raises(UnevenBatch, match=r"batch \(2, 3\) does not have one stride .* a \(12, 0\); b \(0, 20\)"):
        describe(MatmulRequest(a=np.zeros((2, 1, 3, 4)), b=np.zeros((1, 3, 4, 5))))


def test_extents_beyond_32_bits_are_refused() -> None:
    spec = received(simple(np.random.default_rng(0), 3, 4, 5).lowered.spec())
    shapes = ((2**31, 5), (5, 4), (2**31, 4))
    spec = replace(spec, operands=tuple(
        replace(operand, shape=shape, strides=(shape[1] * 4, 4))
        for operand, shape in zip(spec.operands, shapes, strict=True)
    ))  # fmt: skip
    with pytest.raises(Unsupported, match="M=2147483648"):
        matmul_description(spec)


def test_versions_lift_rules() -> None:
    a, b = np.ones((2, 3, 4), np.float32), np.ones((2, 4, 8), np.float32)
    with pytest.raises(Unsupported, match="a batch of 2"):
        describe(MatmulRequest(a=a, b=b, epilogue="bgradb"))
    request = simple(np.random.default_rng(0), 3, 8, 1, epilogue="bgrada")
    assert describe(request).k == 1
    with pytest.raises(Unsupported, match=r"needs cuBLASLt 12\.3\.4"):
        describe(request, version=120200)


def test_empty_products_do_nothing(rig: Rig) -> None:
    for m, n, k in ((0, 5, 2), (5, 0, 2), (0, 5, 0)):
        description = describe(simple(np.random.default_rng(0), m, n, k))
        code, plan = rig.new(description)
        before = len(rig.records)
        assert (code, rig.run(plan, [0, 0, 0], (1.0, 0.0)), len(rig.records)) == (OK, OK, before)
        rig.delete(plan)


def test_description_is_the_struct_of_the_header(rig: Rig) -> None:
    members = [name for name, _ in rig.members()]
    assert len(members) == len(set(members))
    assert set(members) == {f.name for f in fields(MatmulDescription)}


@pytest.fixture
def plan(rig: Rig) -> Iterator[tuple[Any, list[np.ndarray], MatmulDescription]]:
    """A plan with bias and mask, and its arrays."""
    rng = np.random.default_rng(3)
    memory = Memory(rng)
    make = memory.array
    a, b, out = (make(n, s, DTYPES["float32"]) for n, s in (("a", (4, 8)), ("b", (8, 16)), ("out", (4, 16))))
    bias, aux = make("bias", (16,), DTYPES["float32"]), make("aux", (4, 16), DTYPES["uint8"])
    for x in (a, b, bias):
        memory.fill(x)
    description = describe(MatmulRequest(a=a, b=b, bias=bias, out=out, aux=aux, epilogue="relu_aux_bias"))
    rig.knob("fake_heuristics").value = 0
    code, made = rig.new(description)
    assert code == OK, rig.failure.text
    yield made, [a, b, bias, out, aux], description
    rig.delete(made)


def test_pointers_are_set_only_when_they_change(rig: Rig, plan: Any) -> None:
    made, arrays, _ = plan
    addresses = [x.ctypes.data for x in arrays]
    assert rig.knob("fake_heuristics").value == 3  # one for each alignment, none later
    assert rig.run(made, addresses, (1.0, 0.0)) == OK
    rig.knob("fake_pointers_set").value = 0
    assert rig.run(made, addresses, (1.0, 0.0)) == OK
    assert rig.knob("fake_pointers_set").value == 0
    other = arrays[2].copy()
    addresses[2] = other.ctypes.data
    assert rig.run(made, addresses, (1.0, 0.0)) == OK
    assert rig.knob("fake_pointers_set").value == 1
    assert (rig.records[-1].op.bias, rig.records[-1].op.aux) == (addresses[2], addresses[4])
    assert rig.records[-1].stream == 4  # of lane 3
    assert rig.knob("fake_heuristics").value == 3


def test_algorithm_follows_the_alignment_of_the_operands(rig: Rig, plan: Any) -> None:
    made, arrays, _ = plan
    addresses = [x.ctypes.data for x in arrays]
    seen = []
    rig.compute, kept = lambda record: None, rig.compute
    try:
        for shift in (0, 64, 4):
            assert rig.run(made, [addresses[0] + shift, *addresses[1:]], (1.0, 0.0)) == OK
            seen.append(rig.records[-1].algo)
    finally:
        rig.compute = kept
    assert seen == [256, 16, 4]


def test_unaligned_operands_without_an_algorithm_are_unsupported(rig: Rig) -> None:
    least = rig.knob("fake_least_alignment")
    least.value = 16
    try:
        code, made = rig.new(describe(simple(np.random.default_rng(0), 4, 8, 8)))
        assert code == OK
        assert rig.run(made, [4096, 8192, 4100], (1.0, 0.0)) == UNSUPPORTED
        assert b"aligned to 4 bytes" in rig.failure.text
        rig.delete(made)
    finally:
        least.value = 0


def test_beta_must_be_zero_without_c(rig: Rig, plan: Any) -> None:
    made, arrays, _ = plan
    assert rig.run(made, [x.ctypes.data for x in arrays], (1.0, 2.0)) == INVALID_REQUEST
    assert rig.failure.text.startswith(b"beta=2, but the plan was made with beta=0")


def test_workspace_is_asked_for_and_lent(rig: Rig) -> None:
    knob = rig.knob("fake_workspace")
    knob.value = 1 << 20
    try:
        request = simple(np.random.default_rng(0), 4, 8, 8)
        code, made = rig.new(describe(request, workspace_bytes=0))
        assert (code, b"no algorithm" in rig.failure.text) == (UNSUPPORTED, True)  # none fits into no workspace
        code, made = rig.new(describe(request, workspace_bytes=1 << 25))
        assert (code, rig.plan.atomr_matmul_workspace(made)) == (OK, 1 << 20)
        out = np.empty((4, 8), np.float32)
        addresses = [request.a.ctypes.data, request.b.ctypes.data, out.ctypes.data]
        assert rig.run(made, addresses, (1.0, 0.0)) == INVALID_REQUEST
        assert rig.run(made, addresses, (1.0, 0.0), workspace=(1 << 30, (1 << 20) - 1)) == INVALID_REQUEST
        assert b"too small" in rig.failure.text
        assert rig.run(made, addresses, (1.0, 0.0), workspace=(1 << 30, 1 << 21)) == OK
        assert (rig.records[-1].workspace, rig.records[-1].workspace_bytes) == (1 << 30, 1 << 20)
        rig.delete(made)
    finally:
        knob.value = 0


def test_failures_carry_the_librarys_words(rig: Rig) -> None:
    status = rig.knob("fake_heuristic_status", ctypes.c_int)
    good = describe(simple(np.random.default_rng(0), 4, 8, 8))
    try:
        for number, code in ((15, UNSUPPORTED), (7, LIBRARY_ERROR)):
            status.value = number
            assert rig.new(good)[0] == code
            assert (rig.failure.status, rig.failure.lib) == (number, b"cublaslt")
            assert b"m=8 n=4 k=8" in rig.failure.text
    finally:
        status.value = 0
    assert rig.new(dataclasses.replace(good, a=3))[0] == INVALID_REQUEST  # beyond the message
    code, made = rig.new(dataclasses.replace(good, has_algo=1, algo=(7,) + (0,) * 7))
    assert code == OK
    rig.delete(made)
    assert rig.new(dataclasses.replace(good, has_algo=1, algo=(999,) + (0,) * 7))[0] == LIBRARY_ERROR
    assert b"tuned algorithm" in rig.failure.text
