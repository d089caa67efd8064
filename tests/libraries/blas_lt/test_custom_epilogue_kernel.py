"""Custom epilogues of CUDA devices without a GPU: an emulated library, Numba's simulator, and machine code."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from typing import Any

import kernel_shim
import numpy as np
import pytest
from cuda_emulate import Emulator
from lt_emulator import Prepared, Rig, run_program
from msgspec.structs import replace
from plan_builds import received

import atomr_native as an
from atomr_native.builders.cuda.sequence import SequenceProgram
from atomr_native.builders.cuda.target import KernelProgram, Target
from atomr_native.compile import cubin
from atomr_native.dtypes import DTYPES, dtype_name
from atomr_native.libraries.blas_lt import epilogues
from atomr_native.libraries.blas_lt.cuda.custom_epilogue import custom_program
from atomr_native.libraries.blas_lt.custom_epilogue import custom_attributes, custom_part
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.blas_lt.spec import resolve_matmul
from atomr_native.plans.spec import PlanSpec, ShippedCode
from atomr_native.protocol.binaries import Binary

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

from numba import cuda
from shipped_kernels import linked_ptx, simulate_program

from atomr_native.compile import linker, shipped

HOPPER = (9, 0)
LIMIT = 32 << 20
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


def described(request: MatmulRequest, limit: int = LIMIT) -> tuple[PlanSpec, shipped.Part]:
    """Return what a device would send to its worker, without machine code, and the kernel."""
    shape, spec = resolve_matmul(request), request.lowered.spec()
    custom = custom_attributes(request.epilogue, spec, dtype_name(shape.scale), limit)
    part = custom_part(request.epilogue, spec, custom, linker.pickled(request.epilogue.function))
    custom = replace(custom, shipped=ShippedCode((("apply", "apply"),), Binary(b"")))
    return received(replace(spec, attributes=replace(spec.attributes, custom=custom))), part


class Both:
    """Runs kernels of the user by the simulator, and those in CUDA C++ by gcc."""

    def __init__(self, emulator: Emulator, part: shipped.Part, spans: list[int], whole: bool) -> None:
        self.emulator, self.part, self.whole = emulator, part, whole
        #: Elements from the first to the last of each array.
        self.spans = spans
        self.wide: list[bool] = []

    def run(self, program: KernelProgram, places: tuple[Any, ...], values: tuple[float, ...]) -> None:
        if program.launches[0].function != "apply":
            self.emulator.run(program, places, values)
            return
        dtypes = dict(self.part.options)["dtypes"]
        arrays = []
        for place, dtype in zip(places, dtypes, strict=True):
            kind = DTYPES[dtype]
            raw = (ctypes.c_char * (self.spans[len(arrays)] * kind.itemsize)).from_address(place.ctypes.data)
            arrays.append(np.frombuffer(raw, kind))
        launch = program.launches[0]
        self.wide.append(bool(launch.arguments[len(dtypes) + 4][1]))
        if not self.whole:  # which is a thread of the system for each of the GPU's
            launch = dataclasses.replace(launch, grid=(2, 1, 1), block=(2, 2, 1))
            program = dataclasses.replace(program, launches=(launch,))
        simulate_program("blas_lt.epilogue", (self.part,), program, arrays)


def span(array: np.ndarray) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize


def compute(
    rig: Rig, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, request: MatmulRequest, *, limit: int = LIMIT,
    whole: bool = False,
) -> tuple[dict[str, np.ndarray], SequenceProgram, bool]:  # fmt: skip
    """Run a request as a CUDA device would; returns its outputs, the program, and whether accesses were wide."""
    monkeypatch.setattr("atomr_native.builders.cuda.codegen.compile_cubin", lambda source, arch: b"")
    spec, part = described(request, limit)
    arrays = {}
    for operand in spec.operands:
        given = request.operands.get(operand.name, getattr(request, operand.name, None)) if request.operands else None
        given = getattr(request, operand.name, None) if given is None else given
        missing = given is None
        arrays[operand.name] = np.full(operand.shape, 77).astype(DTYPES[operand.dtype]) if missing else given
    made: list[Prepared] = []

    def prepare(description: Any) -> Prepared:
        made.append(Prepared(rig, description))
        return made[-1]

    program = custom_program(
        spec, spec.attributes.custom, Target("sm_90a", 1), version=130102, prepare=prepare, workspace_bytes=LIMIT
    )
    used = [step.run for step in program.steps]
    for one in made:
        if one not in used:
            rig.delete(one.plan)
    names = [*request.epilogue.kinds, "out", *(["aux"] if request.epilogue.aux else [])]
    in_d = dict(part.options)["dtypes"][0] == arrays["out"].dtype.name
    products = span(arrays["out"]) if in_d else arrays["out"].size
    both = Both(emulator, part, [products, *(span(arrays[name]) for name in names)], whole)
    scalars = tuple(scalar.value for scalar in request.lowered.scalars)
    run_program(rig, both, program, [x.ctypes.data for x in arrays.values()], scalars)
    return {n: arrays[n] for n in ("out", "aux", "bias_grad") if n in arrays}, program, any(both.wide)


def mixed(acc: Any, bias: Any, full: Any, per_row: Any, gate: Any) -> Any:
    y = (acc + bias) * per_row
    return y * gate + full, y


KINDS = {"bias": "row", "full": "matrix", "per_row": "column", "gate": "scalar"}
MIXED = an.CustomEpilogue(mixed, KINDS, aux=True, bias_grad=True)


@cuda.jit(device=True)
def soft(x: Any) -> Any:
    return math.log1p(math.exp(x))


@cuda.jit(device=True)
def calling(acc: Any, bias: Any, full: Any, per_row: Any, gate: Any) -> Any:
    return soft(acc + bias) * per_row * gate + full, acc > 0


CALLING = an.CustomEpilogue(calling, KINDS, aux=True)


@pytest.mark.parametrize(
    ("types", "shape", "layout", "beta"),
    [
        (("float32", "float32"), (3, 16), "", 0.0),
        (("float32", "float32"), (3, 7), "batched", 2.0),
        (("float32", "float32"), (2, 16), "in place", 1.0),
        (("float32", "float32"), (3, 8), "strided", 0.0),
        (("bfloat16", "bfloat16"), (3, 16), "", 2.0),
        (("bfloat16", "bfloat16"), (2, 8), "in place", 0.5),
        (("bfloat16", "bfloat16"), (3, 16), "rounded", 0.0),
        (("float16", "float16"), (3, 16), "strided", 0.0),
        (("float16", "float16"), (2, 8), "batched", 0.0),
        (("float16", "float16"), (9, 8), "whole", 0.0),
        (("float64", "float64"), (2, 5), "batched", 0.0),
        (("int8", "float32"), (4, 8), "", 0.0),
    ],
)
def test_plans_by_the_simulator(
    rig: Rig,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    types: tuple[str, str],
    shape: tuple[int, int],
    layout: str,
    beta: float,
) -> None:
    rng = np.random.default_rng(0)
    (m, n), k, batch = shape, 16, (2,) if layout == "batched" else ()
    side, out_type = "float64" if types[0] == "float64" else "float32", DTYPES[types[1]]

    def random(*extents: int, dtype: str = side) -> np.ndarray:
        whole = dtype == "int8"
        return (rng.integers(-3, 4, extents) if whole else rng.standard_normal(extents)).astype(DTYPES[dtype])

    a, b = random(*batch, m, k, dtype=types[0]), random(*batch, n, k, dtype=types[0])
    operands = {"bias": random(*batch, n), "full": random(*batch, m, n), "per_row": random(m), "gate": random(1)}
    c = random(*batch, m, n).astype(out_type) if beta else None
    out = None
    if layout == "in place":
        out, c = c, c
    if layout == "strided":
        out = np.zeros((m, n + 3), out_type)[:, 1 : n + 1]
    x = 0.5 * (a.astype(float) @ b.astype(float).swapaxes(-1, -2)) + (beta * c.astype(float) if beta else 0)
    bias = operands["bias"].astype(float)
    y = (x + bias[..., None, :]) * operands["per_row"].astype(float)[:, None]
    want = y * operands["gate"].astype(float) + operands["full"]
    request = MatmulRequest(
        a=a, b=b, trans_b=True, c=c, out=out, alpha=0.5, beta=beta, out_dtype=types[1], epilogue=MIXED,
        operands=operands,
    )  # fmt: skip
    limit = 16 if layout == "rounded" else LIMIT
    got, program, wide = compute(rig, emulator, monkeypatch, request, limit=limit, whole=layout == "whole")
    tolerance = TOLERANCE[types[1]]
    np.testing.assert_allclose(got["out"].astype(float), want, 2 * tolerance, 10 * tolerance)
    np.testing.assert_allclose(got["aux"].astype(float), y, 2 * tolerance, 10 * tolerance)
    np.testing.assert_allclose(got["bias_grad"], got["out"].astype(float).sum(-2), 1e-5, 1e-5)
    assert wide == (n % 8 == 0 and layout != "strided" and types[0] != "float64")
    note = program.notes[0]
    if layout == "rounded":
        assert "rounded to bfloat16 in between, since 192 bytes in float32 are more than" in note
    else:
        assert note.endswith(f"{side} in {'D' if side == types[1] else 'the workspace'}")
    assert [line[:20] for line in program.notes[1:]] == (["product: everything "] if types[0] == "int8" else [])


@pytest.mark.parametrize(("beta", "limit", "stored"), [(0, 64, "float32"), (0, 63, "float16"), (1, 64, "float16")])
def test_where_products_are_kept(beta: float, limit: int, stored: str) -> None:
    """A C of 16 bits needs bare products beside those to which it has been added."""
    a = np.ones((4, 4), np.float16)
    spec, part = described(MatmulRequest(a=a, b=a, c=a.copy(), beta=beta, epilogue=epilogues.silu), limit)
    assert spec.attributes.custom.stored == stored
    assert dict(part.options)["dtypes"] == (stored, "float16")


def test_what_needs_too_much_workspace_is_refused(rig: Rig) -> None:
    a = np.ones((16, 16), np.float16)
    request = MatmulRequest(a=a, b=a, epilogue=epilogues.silu)
    spec, _ = described(request)
    with pytest.raises(an.Unsupported, match="1024 bytes of workspace, and the limit is 512"):
        custom_program(
            spec, spec.attributes.custom, Target("sm_90a"), version=0, prepare=lambda _: 0, workspace_bytes=512
        )  # type: ignore[arg-type, return-value]


def test_batches_that_do_not_fold_are_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.ones((2, 2, 2, 4, 4), np.float32), np.ones((4, 4), np.float32)
    full = np.ones((4, 4, 4, 8, 8), np.float32)[::2, ::2, ::2, ::2, ::2]
    epilogue = an.CustomEpilogue(lambda acc, full: acc + full, {"full": "matrix"})
    spec, _ = described(MatmulRequest(a=a, b=b, epilogue=epilogue, operands={"full": full}))

    class Native:
        workspace = 0

    with pytest.raises(an.Unsupported, match="at most 3 axes that step unevenly"):
        custom_program(
            spec, spec.attributes.custom, Target("sm_90a"), version=0, prepare=lambda _: Native(), workspace_bytes=LIMIT
        )


def everything(dtype: str) -> MatmulRequest:
    """Return a request with operands of every kind, whose function calls another."""
    x = np.ones((8, 8), DTYPES[dtype])
    operands = {"bias": x[0], "full": x, "per_row": x[0], "gate": x[0, :1]}
    return MatmulRequest(a=x, b=x, epilogue=CALLING, operands=operands)


@pytest.mark.parametrize(
    ("dtype", "capability"), [("float16", (8, 0)), ("bfloat16", HOPPER), ("float64", HOPPER), ("float32", (10, 0))]
)
def test_compilation_needs_no_gpu(tools: None, dtype: str, capability: tuple[int, int]) -> None:
    _, part = described(everything(dtype))
    made = shipped.machine_code("blas_lt.epilogue", (part,), capability)
    found = cubin.kernels(made.code.data)
    assert found[dict(made.entries)["apply"]] == (8,) * len(shipped.made("blas_lt.epilogue", part)[1])
    assert shipped.machine_code("blas_lt.epilogue", (part,), capability) is made


@pytest.mark.parametrize("aux", [False, True])
def test_a_wrong_number_of_results_does_not_compile(tools: None, aux: bool) -> None:
    epilogue = an.CustomEpilogue((lambda acc: acc) if aux else (lambda acc: (acc, acc)), aux=aux)
    x = np.ones((8, 8), np.float32)
    with pytest.raises(an.LibraryError, match="compiling apply"):
        shipped.machine_code("blas_lt.epilogue", (described(MatmulRequest(a=x, b=x, epilogue=epilogue))[1],), HOPPER)


def test_what_the_machine_code_is_made_of(tools: None) -> None:
    """Whole rows are loaded and stored by 16 bytes, in registers; the user's function is not called but part of it."""
    x, bias = np.ones((8, 8), DTYPES["bfloat16"]), np.ones(8, DTYPES["bfloat16"])
    request = MatmulRequest(
        a=x, b=x, epilogue=epilogues.bias_residual, operands={"bias": bias, "residual": np.ones((8, 8), "f4")}
    )
    _, part = described(request)
    ptx = linked_ptx("blas_lt.epilogue", (part,), HOPPER)
    stores = ptx.count("st.global.v4") + ptx.count("st.v4")  # one, and those of a loop that is unrolled
    assert stores > 0
    assert ptx.count("ld.global.v4") + ptx.count("ld.v4") == 5 * stores  # products and residual by two, bias by one
    assert ".local .align" not in ptx
    assert "call" not in ptx


def test_shipped_kernels_hide_no_nan(tools: None) -> None:
    """The maximum of a GPU, and so Numba's `max`, gives the other number where one is missing."""
    a, b = np.ones((2, 8), np.float32), np.ones((8, 8), np.float32)
    for epilogue in (epilogues.squared_relu, epilogues.squared_relu_forward, epilogues.squared_relu_backward):
        shapes = {"row": (8,), "matrix": (2, 8)}
        operands = {name: np.ones(shapes[kind], np.float32) for name, kind in epilogue.kinds.items()}
        _, part = described(MatmulRequest(a=a, b=b, epilogue=epilogue, operands=operands))
        ptx = linked_ptx("blas_lt.epilogue", (part,), HOPPER)
        assert "max.f32" not in ptx
        assert ".f64" not in ptx


#: ``acc + bias`` with products and bias of float32 and D of bfloat16, as the fake driver has machine code.
STAND_IN = """
KERNEL apply(const float *x, const float *p, unsigned short *y, int64_t rows, int64_t columns, int64_t e1,
             int64_t e2, int64_t fast, int64_t x0, int64_t x1, int64_t x2, int64_t x3,
             int64_t p0, int64_t p1, int64_t p2, int64_t p3, int64_t y0, int64_t y1, int64_t y2, int64_t y3) {
  for (int64_t i = blockIdx.y * blockDim.y + threadIdx.y; i < rows; i += gridDim.y * blockDim.y)
    for (int64_t j = blockIdx.x * blockDim.x + threadIdx.x; j < columns; j += gridDim.x * blockDim.x) {
      int64_t k = i % e2, g = i / e2 % e1, h = i / e2 / e1;
      float v = x[h * x0 + g * x1 + k * x2 + j * x3] + p[h * p0 + g * p1 + k * p2 + j * p3];
      uint32_t b;
      memcpy(&b, &v, 4);
      y[h * y0 + g * y1 + k * y2 + j * y3] = (b + 0x7FFF + (b >> 16 & 1)) >> 16;
    }
}
"""


@pytest.mark.skipif(bool(kernel_shim.available()), reason=kernel_shim.available())
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_plan_of_a_device(cuda_engine: str, monkeypatch: pytest.MonkeyPatch, batch: tuple[int, ...]) -> None:
    """From the call to D, with replays; on the fake driver C stands in for the machine code."""
    if cuda_engine == "fake":
        code = Binary(kernel_shim.compile_module(STAND_IN))
        monkeypatch.setattr(shipped, "machine_code", lambda *_: shipped.Code((("apply", "apply"),), code))
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s).astype(DTYPES["bfloat16"]) for s in ((*batch, 33, 16), (16, 24)))
    bias = rng.standard_normal((*batch, 24)).astype(np.float32)
    epilogue = an.CustomEpilogue(lambda acc, bias: acc + bias, {"bias": "row"}, bias_grad=True)
    want = a.astype(float) @ b.astype(float) + bias[..., None, :]
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        x, w, v = device.put(a), device.put(b), device.put(bias)
        for _ in range(2):
            got = device.blas_lt.matmul(x, w, epilogue=epilogue, operands={"bias": v})
            np.testing.assert_allclose(got.out.numpy().astype(float), want, 1e-2, 1e-2)
            np.testing.assert_allclose(got.bias_grad.numpy(), got.out.numpy().astype(float).sum(-2), 1e-5, 1e-4)
        plan = device.blas_lt.plan(x, w, epilogue=epilogue, operands={"bias": v})
        kept = "the epilogue is a second kernel, after the product; between them products are float32 in the workspace"
        assert plan.notes == (kept,)
        plan.tell(x, w, v, out=got.out, bias_grad=got.bias_grad, alpha=0.0)
        flat = np.broadcast_to(bias[..., None, :], want.shape)
        np.testing.assert_allclose(got.out.numpy().astype(float), flat, 1e-2, 1e-2)
