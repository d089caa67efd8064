"""Gradients in epilogues, in the product or after it: both ways on an emulated library, and which is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_emulate import Emulator
from lt_emulator import Prepared, Rig, run_program
from matmul_reference import check, epilogue_operands, random, reference
from msgspec.structs import replace
from plan_builds import received

from atomr_native._lib.cublaslt import CONSTANTS
from atomr_native.builders.cuda.sequence import SequenceProgram
from atomr_native.builders.cuda.target import Target
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.blas_lt.cuda import program as module
from atomr_native.libraries.blas_lt.cuda.gradient_epilogues import (
    AFTER,
    apart_microseconds,
    faster_after,
    pass_microseconds,
)
from atomr_native.libraries.blas_lt.cuda.native import MatmulDescription
from atomr_native.libraries.blas_lt.epilogue import Epilogue
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.plans.spec import OperandSpec, PlanSpec

HOPPER = Target("sm_90a")
UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}

pytestmark = [pytest.mark.usefixtures("no_compiler"), pytest.mark.bits]


def make(rig: Rig, request: MatmulRequest, **options: Any) -> SequenceProgram:
    made: list[Prepared] = []

    def prepare(description: MatmulDescription) -> Prepared:
        made.append(Prepared(rig, description))
        return made[-1]

    spec = received(request.lowered.spec())
    program = module.matmul_program(spec, HOPPER, version=130102, prepare=prepare, **options)
    used = [step.run for step in program.steps]
    for one in made:
        if one not in used:
            rig.delete(one.plan)
    return program


def run(rig: Rig, emulator: Emulator, request: MatmulRequest, **options: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Run a request; returns the program, and the arrays of the message."""
    arrays = {}
    for operand in request.lowered.spec().operands:
        given = getattr(request, operand.name)
        arrays[operand.name] = np.full(operand.shape, 77).astype(DTYPES[operand.dtype]) if given is None else given
    program = make(rig, request, **options)
    scalars = tuple(scalar.value for scalar in request.lowered.scalars)
    run_program(rig, emulator, program, [x.ctypes.data for x in arrays.values()], scalars)
    return program, arrays


def numbers(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


#: Of which D or the mask is read after the product, and where it is predicted so.
PREDICTED = ("drelu", "drelu_bgrad", "dgelu_bgrad")


@pytest.mark.parametrize("epilogue", PREDICTED)
@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_both_ways_give_the_same(
    rig: Rig, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, epilogue: str, dtype: str, batch: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(1)
    m, n, k = 40, 272, 33
    extra = epilogue_operands(rng, Epilogue(epilogue), batch, m, n, (dtype,) * 3)
    a, b = random(rng, (*batch, m, k), dtype), random(rng, (n, k), dtype)
    with_c = {"c": random(rng, (*batch, m, n), dtype), "alpha": 0.5, "beta": -1.5}
    for spread in (False, True):
        for options in ({},) if spread == bool(batch) else (with_c,):
            found = []
            for after in (False, True):
                monkeypatch.setattr(module, "faster_after", lambda *_, after=after: after)
                whole = np.zeros((*batch, m, n + 64 * spread), DTYPES[dtype])
                out = whole[..., 8 : 8 + n] if spread else whole
                request = MatmulRequest(a=a, b=b, trans_b=True, out=out, **options, **extra)
                program, arrays = run(rig, emulator, request)
                assert len(program.steps) == 1 + after
                if not after:
                    assert program.notes == ()
                    check(arrays, reference(request), n)
                found.append(arrays)
                assert not spread or not whole[..., :8].any() | whole[..., 8 + n :].any()
            (note,) = program.notes
            assert f"{epilogue!r}" in note
            assert "kernel after the matmul, since the library's own epilogue is slower" in note
            fused, apart = found
            assert fused["out"].tobytes() == apart["out"].tobytes()
            if "bias_grad" in apart:
                assert note.endswith("summed is D as it is stored")
                exact, size = (v.sum(-2) for v in (numbers(apart["out"]), abs(numbers(apart["out"]))))
                within = 50 * 2.0**-24 * size + 1.01 * UNIT[dtype] * abs(exact)
                assert (abs(numbers(apart["bias_grad"]) - exact) <= within).all()
                # D was rounded before it was summed.
                apart_by = abs(numbers(apart["bias_grad"]) - numbers(fused["bias_grad"]))
                assert (apart_by <= 2 * within + 1.01 * UNIT[dtype] * size).all()


def test_c_may_be_d(rig: Rig, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "faster_after", lambda *_: True)
    rng = np.random.default_rng(2)
    extra = epilogue_operands(rng, Epilogue("drelu_bgrad"), (), 16, 32, ("float32",) * 3)
    a, b, c = (random(rng, shape, "float32") for shape in ((16, 8), (8, 32), (16, 32)))
    request = MatmulRequest(a=a, b=b, c=c, out=c, beta=0.5, **extra)
    want = reference(request, c.copy())
    program, arrays = run(rig, emulator, request)
    check(arrays, want, 32)
    assert len(program.steps) == 2


def test_what_the_kernel_cannot_stays_in_the_product(
    rig: Rig, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "faster_after", lambda *_: True)
    rng = np.random.default_rng(3)
    for epilogue, n, wide in (("drelu", 13, 13), ("drelu_bgrad", 24, 28), ("drelu_bgrad", 4, 4)):
        extra = epilogue_operands(rng, Epilogue(epilogue), (), 16, n, ("bfloat16",) * 3)
        a, b = random(rng, (16, 32), "bfloat16"), random(rng, (32, n), "bfloat16")
        request = MatmulRequest(a=a, b=b, out=np.zeros((16, wide), DTYPES["bfloat16"])[:, :n], **extra)
        program, arrays = run(rig, emulator, request)
        assert (len(program.steps), program.notes) == (1, ())
        check(arrays, reference(request), n)
    for k in (0, 1):  # which the library does not have in one call
        extra = epilogue_operands(rng, Epilogue("dgelu_bgrad"), (), 16, 8, ("float32",) * 3)
        request = MatmulRequest(a=random(rng, (16, k), "float32"), b=random(rng, (k, 8), "float32"), **extra)
        program, arrays = run(rig, emulator, request)
        check(arrays, reference(request), 8)
        assert f"K={k}" in program.notes[0]


def test_sums_lie_where_the_matmul_has_had_its_workspace(
    rig: Rig, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "faster_after", lambda *_: True)
    rng = np.random.default_rng(4)
    extra = epilogue_operands(rng, Epilogue("drelu_bgrad"), (), 700, 64, ("float32",) * 3)
    a, b = random(rng, (700, 8), "float32"), random(rng, (8, 64), "float32")
    program, arrays = run(rig, emulator, MatmulRequest(a=a, b=b, **extra))
    check(arrays, reference(MatmulRequest(a=a, b=b, **extra)), 64)
    assert program.steps[1].operands[3] == ("workspace", 0)
    assert program.workspace > 0
    small = make(rig, MatmulRequest(a=a, b=b, **extra), workspace_bytes=program.workspace - 256)
    assert (len(small.steps), small.notes) == (1, ())
    rig.delete(small.steps[0].run.plan)


def spec_of(m: int, n: int, k: int, dtype: str, epilogue: str, **options: Any) -> PlanSpec:
    """The specification of a product."""
    shapes = {"a": (m, k), "b": (n, k), "out": (m, n)}
    dtypes = {"out": options.get("out_dtype", dtype)}
    operands = tuple(
        OperandSpec(o, dtypes.get(o, dtype), shape, (shape[1], 1), 1) for o, shape in shapes.items()
    )  # fmt: skip
    x = np.zeros((4, 4), np.float32)
    plain = MatmulRequest(a=x, b=x, trans_b=True).lowered.spec()
    return replace(plain, operands=operands, attributes=replace(plain.attributes, epilogue=epilogue))


def test_what_is_predicted() -> None:
    large, layer = (4096, 8192, 8192), (1024, 4096, 4096)
    assert set(PREDICTED) < set(AFTER)
    for epilogue in PREDICTED:
        for dtype in ("bfloat16", "float16"):
            assert faster_after(spec_of(*large, dtype, epilogue), "sm_90a")
            assert faster_after(spec_of(*layer, dtype, epilogue), "sm_90a")
            assert not faster_after(spec_of(*layer, dtype, epilogue), "sm_80")
            assert not faster_after(spec_of(16, 4096, 4096, dtype, epilogue), "sm_90a")
            assert not faster_after(spec_of(4096, 4096, 128, dtype, epilogue), "sm_90a")
        assert not faster_after(spec_of(*layer, "float32", epilogue), "sm_90a")
        assert not faster_after(spec_of(*layer, "bfloat16", epilogue, out_dtype="float32"), "sm_90a")
    for step in ((128, 512, 512), (512, 2048, 2048)):  # of training small networks
        assert faster_after(spec_of(*step, "bfloat16", "dgelu_bgrad"), "sm_90a")
        assert not faster_after(spec_of(*step, "bfloat16", "drelu_bgrad"), "sm_90a")
    assert not faster_after(spec_of(*large, "bfloat16", "bgrada"), "sm_90a")
    assert pass_microseconds(spec_of(*large, "bfloat16", "bgradb")) == 4 + 2 * 8192 * 8192 / 3.5e6
    nbytes = 2 * 4096 * 8192
    assert pass_microseconds(spec_of(*large, "bfloat16", "drelu")) == 2 + 2 * nbytes / 3.5e6
    assert pass_microseconds(spec_of(*large, "bfloat16", "dgelu_bgrad")) == 4 + nbytes / 3.5e6


@pytest.mark.parametrize("together", [20.0, 5.0, None])
@pytest.mark.parametrize("predicted", [False, True])
@pytest.mark.parametrize("epilogue", ["drelu", "bgradb"])
def test_tuning_decides_where_it_has_measured_both(
    rig: Rig,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    together: float | None,
    predicted: bool,
    epilogue: str,
) -> None:
    monkeypatch.setattr(module, "faster_after", lambda *_: predicted)
    rng = np.random.default_rng(5)
    extra = epilogue_operands(rng, Epilogue(epilogue), (), 16, 32, ("bfloat16",) * 3)
    a, b = random(rng, (16, 32), "bfloat16"), random(rng, (32, 32), "bfloat16")
    request = MatmulRequest(a=a, b=b, tune=True, **extra)

    def measured(description: MatmulDescription) -> float | None:
        plain = description.epilogue == CONSTANTS["CUBLASLT_EPILOGUE_DEFAULT"]
        return 4.0 if plain else together

    program, arrays = run(rig, emulator, request, measured=measured)
    check(arrays, reference(request), 32)
    after = predicted if together is None else together > 10
    assert len(program.steps) == 1 + after
    if after and together is not None:
        assert "the call takes 20.0 us with all of it, 4.0 us without that, and the kernels" in program.notes[0]


@pytest.mark.parametrize(
    ("together", "alone", "bare", "steps"),
    [(20.0, 9.0, 4.0, 3), (20.0, 4.0, 9.0, 2), (5.0, 4.0, 4.0, 1), (20.0, None, 4.0, 1), (None, 4.0, 4.0, 1)],
)
def test_tuning_also_measures_products_in_float32(
    rig: Rig, emulator: Emulator, together: float | None, alone: float | None, bare: float, steps: int
) -> None:
    """The derivative of GELU is multiplied before D is rounded; so it is apart only from a product that is not."""
    rng = np.random.default_rng(6)
    dgelu, float32 = CONSTANTS["CUBLASLT_EPILOGUE_DGELU"], CONSTANTS["CUDA_R_32F"]

    def measured(description: MatmulDescription) -> float | None:
        if description.epilogue == CONSTANTS["CUBLASLT_EPILOGUE_DEFAULT"]:
            assert description.type_d == float32
            return bare
        return alone if description.epilogue == dgelu and "bgrad" in epilogue else together

    for epilogue, wanted in (("dgelu_bgrad", steps), ("dgelu", 1 if together is None or together < 10 else 2)):
        extra = epilogue_operands(rng, Epilogue(epilogue), (), 16, 32, ("bfloat16",) * 3)
        a, b = random(rng, (16, 24), "bfloat16"), random(rng, (24, 32), "bfloat16")
        request = MatmulRequest(a=a, b=b, tune=True, **extra)
        program, arrays = run(rig, emulator, request, measured=measured)
        if wanted != 2 or epilogue == "dgelu":  # whose sums are of D as it is stored
            check(arrays, reference(request), 32)
        assert len(program.steps) == wanted, (epilogue, program.notes)
        if wanted == 3 or (wanted == 2 and epilogue == "dgelu"):
            (note,) = program.notes
            assert f"20.0 us with all of it, {bare:.1f} us without that, in float32, and the kernels about" in note


def test_what_is_not_measured_apart() -> None:
    small = (128, 512, 512)
    aux = OperandSpec("aux", "bfloat16", small[:2], (512, 1), 1)

    def time(dtype: str, epilogue: str, *more: OperandSpec, **changes: Any) -> float | None:
        spec = spec_of(*small, dtype, epilogue)
        operands = (*spec.operands, aux, *more)
        return apart_microseconds(replace(spec, operands=operands, attributes=replace(spec.attributes, **changes)))

    elements = 128 * 512
    assert time("bfloat16", "dgelu") == pytest.approx(1.6 + 8 * elements / 3.5e6)
    assert time("bfloat16", "dgelu_bgrad") == pytest.approx(5.6 + 16 * elements / 3.5e6)
    assert time("bfloat16", "drelu") is None
    assert time("float64", "dgelu", scale="float64") is None
    for name in ("amax", "d_scale"):
        assert time("bfloat16", "dgelu", OperandSpec(name, "float32", (1,), (1,), 1)) is None
