"""How CUDA devices compute what cuBLASLt has not in one call, without a GPU: emulated library, kernels run by gcc."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_emulate import Emulator
from lt_emulator import Prepared, Rig, run_program
from matmul_reference import COMBINATIONS, allows, block_scales, check, epilogue_operands, random, reference
from msgspec.structs import replace
from plan_builds import received

from atomr_native.builders.cuda.sequence import SequenceProgram
from atomr_native.builders.cuda.target import Target
from atomr_native.dtypes import DTYPES
from atomr_native.errors import Unsupported
from atomr_native.libraries._scaling import COMBINATIONS as SCALINGS
from atomr_native.libraries.blas_lt.cuda.program import matmul_program
from atomr_native.libraries.blas_lt.epilogue import Epilogue
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.blas_lt.spec import resolve_matmul
from atomr_native.libraries.blas_lt.types import rule_of

HOPPER = Target("sm_90a")
ZERO = np.zeros(16, np.uint8)

pytestmark = pytest.mark.usefixtures("no_compiler")  # that sources compile for a GPU is tested below


def program_of(rig: Rig, request: MatmulRequest, **options: Any) -> SequenceProgram:
    spec = received(request.lowered.spec())
    made: list[Prepared] = []

    def prepare(description: Any) -> Prepared:
        made.append(Prepared(rig, description))
        return made[-1]

    options = {"version": 130102, "zero": ZERO.ctypes.data} | options
    try:
        program = matmul_program(spec, options.pop("target", HOPPER), prepare=prepare, **options)
    except Unsupported:
        for one in made:
            rig.delete(one.plan)
        raise
    used = [step.run for step in program.steps]
    for one in made:
        if one not in used:
            rig.delete(one.plan)
    return program


def compute(rig: Rig, emulator: Emulator, request: MatmulRequest, **options: Any) -> SequenceProgram:
    """Run a request as a CUDA device would, and compare with float64."""
    shape = resolve_matmul(request)
    spec = request.lowered.spec()
    want = reference(request, request.c.copy() if request.c is not None else None)
    arrays = {}
    for operand in spec.operands:
        given = getattr(request, operand.name)
        dtype = DTYPES[operand.dtype]
        missing = given is None or given is True
        arrays[operand.name] = np.full(operand.shape, 77).astype(dtype) if missing else given
    program = program_of(rig, request, **options)
    scalars = tuple(scalar.value for scalar in request.lowered.scalars)
    run_program(rig, emulator, program, [x.ctypes.data for x in arrays.values()], scalars)
    check(arrays, want, shape.n)
    return program


#: Every epilogue of types that differ in more than in how D is stored; some of the others.
_FEW = ("default", "gelu_aux_bias", "drelu_bgrad")
_FULL = ("float64", "float32", "bfloat16", "complex64")
CASES = [
    (types, epilogue)
    for types in COMBINATIONS
    for epilogue in Epilogue
    if allows(types, epilogue)
    and (epilogue in _FEW or types[0] in _FULL or types[2] in ("int32", "int8") or types == ("float8_e4m3fn",) * 3)
]


@pytest.mark.parametrize(("types", "epilogue"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_every_epilogue_of_every_type(
    rig: Rig, emulator: Emulator, types: tuple[str, str, str], epilogue: Epilogue
) -> None:
    rng = np.random.default_rng([COMBINATIONS.index(types), list(Epilogue).index(epilogue)])
    m, n, k = 16, 32, 32
    a, b = random(rng, (m, k), types[0]), random(rng, (n, k), types[1])
    extra = epilogue_operands(rng, epilogue, (), m, n, types)
    whole = types[2] == "int32"
    extra |= {"beta": 1} if whole else {"alpha": 0.003 if types[0] == "int8" else 0.5, "beta": -1.5}
    c = random(rng, (m, n), rule_of(*types[:2]).c(types[2])[0])
    compute(rig, emulator, MatmulRequest(a=a, b=b, trans_b=True, c=c, **extra))


def test_what_the_library_has_is_one_call(rig: Rig, emulator: Emulator) -> None:
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float16", "bfloat16"):
        a, b, bias = (random(rng, s, dtype) for s in ((16, 32), (32, 8), (8,)))
        program = compute(rig, emulator, MatmulRequest(a=a, b=b, bias=bias, epilogue="gelu_aux_bias"))
        assert (len(program.steps), program.notes) == (1, ())
    a, b = random(rng, (16, 32), "float8_e4m3fn"), random(rng, (16, 32), "float8_e4m3fn")
    one = np.asarray(0.5, np.float32)
    scales = {"a_scale": one, "b_scale": one, "d_scale": one, "amax": True}
    request = MatmulRequest(a=a, b=b, trans_b=True, out_dtype="float8_e4m3fn", fast_accum=True, **scales)
    assert len(compute(rig, emulator, request).steps) == 1
    assert rig.records[-1].op.fast == 1


@pytest.mark.parametrize(
    ("epilogue", "options", "words"),
    [
        ("default", {"k": 0}, "K=0"),
        ("gelu_aux_bias", {"k": 0}, "K=0"),
        ("dgelu_bgrad", {"k": 1}, "K=1"),
        ("bgrada", {"k": 0}, "K=0"),
        ("gelu_aux", {"n": 5}, "multiples of 8 elements"),
        ("drelu_bgrad", {"m": 0}, "D is empty"),
        ("bias", {"column": True}, "takes D and C"),
        ("bias", {"far_bias": True}, "not dense"),
    ],
)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_gaps_of_epilogues_are_kernels(
    rig: Rig, emulator: Emulator, epilogue: str, options: dict[str, Any], words: str, batch: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(1)
    m, n, k = options.get("m", 7), options.get("n", 16), options.get("k", 5)
    types = ("float32", "float32", "float32")
    extra = epilogue_operands(rng, Epilogue(epilogue), batch, m, n, types)
    if options.get("column"):
        extra["out"] = np.zeros((*batch, n, m), np.float32).swapaxes(-1, -2)
    if options.get("far_bias"):
        extra["bias"] = random(rng, (2 * n,), "float32")[::2]
    a, b = random(rng, (*batch, m, k), "float32"), random(rng, (*batch, k, n), "float32")
    c = random(rng, (*batch, m, n), "float32")
    program = compute(rig, emulator, MatmulRequest(a=a, b=b, c=c, beta=0.5, **extra))
    assert words in program.notes[0]
    assert "by a kernel" in program.notes[0]


def outer_batch(rng: np.random.Generator, dtype: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return operands that broadcast along different axes, the second one a slice, with the steps of k elements."""
    return random(rng, (3, 1, 8, k), dtype), random(rng, (2, 6, k), dtype)[:, :4]


@pytest.mark.parametrize("types", [("float32",) * 3, ("complex64",) * 3, ("int8", "int8", "int32"), ("bfloat16",) * 3])
@pytest.mark.parametrize("added", ["none", "c", "out"])
def test_uneven_batches_are_read_by_addresses(
    rig: Rig, emulator: Emulator, types: tuple[str, str, str], added: str
) -> None:
    rng = np.random.default_rng(14)
    a, b = outer_batch(rng, types[0], 16)
    options: dict[str, Any] = {"trans_b": True, "out_dtype": types[2]}
    if added != "none":
        whole = random(rng, (3, 3, 8, 16), types[2])[:, :2, :, :4]
        options |= {"beta": 1, "c": whole}
        if added == "out":
            options["out"] = whole
    program = compute(rig, emulator, MatmulRequest(a=a, b=b, **options))
    (note,) = program.notes
    assert note.startswith("cuBLASLt reads the addresses of 6 matrices from arrays, since batch (3, 2) does not have")
    assert (rig.records[-1].d.mode, rig.records[-1].d.count, len(program.steps)) == (1, 6, 2)


@pytest.mark.parametrize("epilogue", ["gelu_aux_bias", "drelu_bgrad", "bgrada", "bgradb"])
def test_epilogues_of_uneven_batches_are_kernels(rig: Rig, emulator: Emulator, epilogue: str) -> None:
    rng = np.random.default_rng(15)
    a, b = outer_batch(rng, "float32", 16)
    b = b[:, :3]  # products of 96 bytes, whatever D wants
    extra = epilogue_operands(rng, Epilogue(epilogue), (3, 2), 8, 3, ("float32",) * 3)
    program = compute(rig, emulator, MatmulRequest(a=a, b=b, trans_b=True, **extra))
    assert program.notes[0].startswith("cuBLASLt reads the addresses of 6 matrices")
    assert "by a kernel after the matmul" in program.notes[-1]


def test_products_of_any_size_are_read_by_addresses(rig: Rig, emulator: Emulator) -> None:
    rng = np.random.default_rng(19)
    a, b = random(rng, (3, 1, 4, 12), "float32")[..., :3, :], random(rng, (2, 1, 12), "float32")
    program = compute(rig, emulator, MatmulRequest(a=a, b=b, trans_b=True))  # D has 12 bytes a matrix
    assert [note.split(" ")[0] for note in program.notes] == ["cuBLASLt", "everything"]


def test_scales_of_an_uneven_batch(rig: Rig, emulator: Emulator) -> None:
    rng = np.random.default_rng(16)
    a, b = outer_batch(rng, "float8_e4m3fn", 32)
    one = np.asarray(0.5, np.float32)
    request = MatmulRequest(a=a, b=b, trans_b=True, a_scale=one, b_scale=one, out_dtype="float16", amax=True)
    assert "addresses of 6 matrices" in compute(rig, emulator, request).notes[0]


def test_uneven_batches_that_start_anywhere_are_copied(rig: Rig, emulator: Emulator) -> None:
    rng = np.random.default_rng(17)
    a, b = outer_batch(rng, "float32", 15)
    request = MatmulRequest(a=a, b=b, trans_b=True, copies=False)
    with pytest.raises(Unsupported, match=r"apart by multiples of 8 bytes.*copies=True") as caught:
        program_of(rig, request)
    assert str(caught.value).count("copies=True") == 1
    for epilogue in ("default", "bias", "bgradb"):
        extra = epilogue_operands(rng, Epilogue(epilogue), (3, 2), 8, 4, ("float32",) * 3)
        program = compute(rig, emulator, MatmulRequest(a=a, b=b, trans_b=True, **extra))
        assert program.notes[0].startswith("a is copied into the workspace as [3, 2, 8, 15]")
    a, b = random(rng, (4, 4, 8), "complex64"), random(rng, (4, 8, 4), "complex64")
    with pytest.raises(Unsupported, match="conjugates only with a transpose") as caught:
        program_of(rig, MatmulRequest(a=a, b=b, conj_a=True, copies=False))
    assert str(caught.value).count("copies=True") == 1


def test_matrices_read_by_addresses_start_at_16_bytes(rig: Rig) -> None:
    a, b = outer_batch(np.random.default_rng(18), "float32", 16)
    program = program_of(rig, MatmulRequest(a=a, b=b, trans_b=True))
    plan = program.steps[1].run.plan
    assert rig.run(plan, [4096, 8196, 12288, 16384], (1.0, 0.0)) == 2
    assert b"allowed: views that start at multiples of 16 bytes" in rig.failure.text
    rig.delete(plan)


@pytest.mark.parametrize("epilogue", ["bgrada", "bgradb"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "complex64"])
@pytest.mark.parametrize("trans", [False, True])
def test_sums_over_k_are_a_kernel_where_the_library_refuses(
    rig: Rig, emulator: Emulator, epilogue: str, dtype: str, trans: bool
) -> None:
    rng = np.random.default_rng(2)

    def refuse(description: Any) -> Any:
        if description.epilogue in (256, 512):
            raise Unsupported("no algorithm")
        return Prepared(rig, description)

    m, n, k = 16, 16, 32
    a = random(rng, (3, k, m) if trans else (3, m, k), dtype)
    b = random(rng, (n, k) if trans else (k, n), dtype)
    request = MatmulRequest(a=a, b=b, trans_a=trans, trans_b=trans, epilogue=epilogue)
    spec = received(request.lowered.spec())
    program = matmul_program(spec, HOPPER, version=130102, prepare=refuse)
    arrays = [a, b, np.zeros((3, m, n), resolve_matmul(request).out.dtype)]
    arrays.append(np.zeros(resolve_matmul(request).bias_grad.shape, resolve_matmul(request).bias_grad.dtype))
    run_program(rig, emulator, program, [x.ctypes.data for x in arrays], (1.0, 0.0, 0.0, 0.0)[: len(spec.scalars)])
    check({"out": arrays[2], "bias_grad": arrays[3]}, reference(request), n)
    assert "kernel after the matmul" in program.notes[0]


def test_scales_in_one_call_and_apart(rig: Rig, emulator: Emulator) -> None:
    rng = np.random.default_rng(3)
    m, n, k = 48, 144, 272
    a, b = random(rng, (m, k), "float8_e4m3fn"), random(rng, (n, k), "float8_e5m2")
    for of_a, of_b in SCALINGS:
        scales = {
            f"{which}_scale": block_scales(rng, which, kind, outer, k)
            for which, kind, outer in (("a", of_a, m), ("b", of_b, n))
            if kind != "none"
        }
        request = MatmulRequest(a=a, b=b, trans_b=True, out_dtype="float32", **scales)
        program = compute(rig, emulator, request)
        assert len(program.steps) == (2 if "none" in (of_a, of_b) and "outer" in (of_a, of_b) else 1)
        blocks = "128" in of_a
        for options in ({"version": 120400}, {"target": Target("sm_100a")}):
            if blocks:
                with pytest.raises(Unsupported, match=r"12\.9|sm_90 \(Hopper\)"):
                    program_of(rig, request, **options)
            else:
                compute(rig, emulator, request, **options)
        apart = compute(rig, emulator, MatmulRequest(a=a, b=b, trans_b=True, out_dtype="float16", amax=True, **scales))
        assert len(apart.steps) == 3  # product, epilogue, largest


@pytest.mark.parametrize("kinds", [("vec128", "vec128"), ("blk128", "vec128")])
def test_copies_leave_rows_with_scales_of_blocks_as_many(rig: Rig, emulator: Emulator, kinds: tuple[str, str]) -> None:
    rng = np.random.default_rng(20)
    m, n, k = 36, 44, 130  # multiples of 4, as the library wants, and not of 16
    a, b = random(rng, (m, k), "float8_e4m3fn"), random(rng, (k, n), "float8_e4m3fn")
    scales = {f"{w}_scale": block_scales(rng, w, kind, e, k) for w, kind, e in zip("ab", kinds, (m, n), strict=True)}
    program = compute(rig, emulator, MatmulRequest(a=a, b=b, **scales))
    assert program.notes[0] == "a is copied into the workspace as [36, 144], dense along K"


def test_what_is_documented_of_scales(rig: Rig, emulator: Emulator) -> None:
    rng = np.random.default_rng(12)
    for (m, n), out, kinds, words in (
        ((130, 128), "float32", ("vec128", "blk128"), "M=130, N=128 .* multiples of 4"),
        ((128, 128), "float8_e4m3fn", ("outer", "outer"), ""),
        ((128, 128), "float8_e4m3fn", ("vec128", "vec128"), ""),
    ):
        a, b = random(rng, (m, 256), "float8_e4m3fn"), random(rng, (n, 256), "float8_e4m3fn")
        scales = {
            f"{w}_scale": block_scales(rng, w, kind, e, 256) for w, kind, e in zip("ab", kinds, (m, n), strict=True)
        }
        request = MatmulRequest(a=a, b=b, trans_b=True, out_dtype=out, **scales)
        if words:
            with pytest.raises(Unsupported, match=words):
                program_of(rig, request)
        else:
            made = compute(rig, emulator, request)
            assert "D of float8_e4m3fn with scales" in made.notes[0]


def test_block_scales_that_start_anywhere_are_refused(rig: Rig) -> None:
    a = random(np.random.default_rng(13), (128, 256), "float8_e4m3fn")
    scale = np.ones((2, 132), np.float32)
    request = MatmulRequest(a=a, b=a, trans_b=True, out_dtype="float32", a_scale=scale[:, :128].copy().T,
                            b_scale=scale[:, :128].copy())  # fmt: skip
    (step,) = program_of(rig, request).steps
    out = np.zeros((128, 128), np.float32)
    places = [a.ctypes.data, a.ctypes.data, scale.ctypes.data, scale.ctypes.data + 4, out.ctypes.data]
    places[0:2] = [-(-a.ctypes.data // 16) * 16] * 2
    assert rig.run(step.run.plan, places, (1.0, 0.0)) == 2
    assert b"scales of blocks start at an address" in rig.failure.text
    rig.delete(step.run.plan)


def test_layouts_of_block_scales_are_checked(rig: Rig) -> None:
    a, b = (np.ones((256, 640), DTYPES["float8_e4m3fn"]) for _ in range(2))
    for wrong in (np.ones((256, 5), np.float32), np.ones((2, 5), np.float32)):
        request = MatmulRequest(a=a, b=b, trans_b=True, a_scale=wrong, b_scale=np.ones((5, 256), np.float32))
        with pytest.raises(Unsupported, match=r"a_scale of kind (vec|blk)128 has strides \(5, 1\).*make it"):
            program_of(rig, request)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float32", "complex64", "int8"])
@pytest.mark.parametrize("epilogue", ["default", "bias", "bgrada"])
def test_operands_that_the_library_cannot_read_are_copied(
    rig: Rig, emulator: Emulator, dtype: str, epilogue: str
) -> None:
    rng = np.random.default_rng(4)
    m, n, k = 7, 13, 37
    a, b = random(rng, (2, m, 2 * k), dtype)[..., ::2], random(rng, (2 * k, 2 * n), dtype)[::2, ::2]
    out = rule_of(dtype, dtype).outputs[0]
    extra = epilogue_operands(rng, Epilogue(epilogue), (2,), m, n, (dtype, dtype, out))
    if dtype.startswith("complex"):
        extra |= {"conj_b": True}
    with pytest.raises(Unsupported, match="copies=True"):
        program_of(rig, MatmulRequest(a=a, b=b, copies=False, **extra))
    program = compute(rig, emulator, MatmulRequest(a=a, b=b, **extra))
    assert "a is copied into the workspace as [2, " in program.notes[0]
    assert "b is copied" in program.notes[1]


def test_float8_layouts_depend_on_the_architecture(rig: Rig) -> None:
    rng = np.random.default_rng(5)
    a, b = random(rng, (16, 32), "float8_e4m3fn"), random(rng, (32, 48), "float8_e4m3fn")
    with pytest.raises(Unsupported, match=r"b of float8 is not dense along K.*trans_b=True"):
        program_of(rig, MatmulRequest(a=a, b=b, copies=False))
    with pytest.raises(Unsupported, match="sm_89"):
        program_of(rig, MatmulRequest(a=a, b=b), target=Target("sm_80"))


def test_factors_on_the_device(rig: Rig, emulator: Emulator) -> None:
    rng = np.random.default_rng(6)
    a, b, c = (random(rng, s, "float32") for s in ((3, 4), (4, 8), (3, 8)))
    alpha, beta = np.asarray([1.5], np.float32), np.asarray(0.25, np.float32)
    for extra in ({}, {"epilogue": "gelu_aux", "out": np.zeros((8, 3), np.float32).T}):
        compute(rig, emulator, MatmulRequest(a=a, b=b, c=c, alpha=alpha, beta=beta, **extra))
        compute(rig, emulator, MatmulRequest(a=a, b=b, alpha=alpha, **extra))
    z = np.asarray(2 - 1j, np.complex64)
    x = random(rng, (4, 4), "complex64")
    compute(rig, emulator, MatmulRequest(a=x, b=x, alpha=z))
    compute(rig, emulator, MatmulRequest(a=x, b=x, bias=x[0], alpha=z, epilogue="bias"))
    compute(rig, emulator, MatmulRequest(a=x, b=x, trans_a=True, conj_a=True, alpha=1 - 3j, c=x, beta=2j))


def test_a_large_workspace_is_refused(rig: Rig) -> None:
    spec = received(MatmulRequest(a=np.zeros((4, 4)), b=np.zeros((4, 4)), epilogue="relu").lowered.spec())
    shapes = ((2**15, 4), (4, 2**16), (2**15, 2**16))
    spec = replace(spec, operands=tuple(
        replace(operand, shape=shape, strides=(shape[1] * 8, 8))
        for operand, shape in zip(spec.operands, shapes, strict=True)
    ))  # fmt: skip
    made = []

    def prepare(description: Any) -> Prepared:
        made.append(Prepared(rig, description))
        return made[-1]

    with pytest.raises(Unsupported, match=r"the limit is 33554432; raise System\(workspace_limit=\)"):
        matmul_program(spec, HOPPER, version=130102, prepare=prepare)
    for one in made:
        rig.delete(one.plan)


@pytest.mark.parametrize(
    "types", [("float8_e4m3fn", "float8_e4m3fn", "float8_e4m3fn"), ("int8",) * 3, ("complex64",) * 3]
)
def test_kernels_compile_for_the_gpu(rig: Rig, types: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc = pytest.importorskip("atomr_native.builders.cuda.cubin")
    try:
        nvrtc.version()
    except Unsupported as error:
        pytest.skip(str(error))
    monkeypatch.undo()
    rng = np.random.default_rng(7)
    a, b = outer_batch(rng, types[0], 48)
    requests = [MatmulRequest(a=a, b=b, trans_b=True)]
    for epilogue in ("gelu_aux_bias", "relu_aux", "dgelu_bgrad", "drelu_bgrad", "bgrada"):
        if not allows(types, Epilogue(epilogue)):
            continue
        a, b = random(rng, (7, 37), types[0]), random(rng, (37, 5), types[1])
        extra = epilogue_operands(rng, Epilogue(epilogue), (), 7, 5, types)
        if not types[0].startswith("complex"):
            extra["amax"] = True
        requests.append(MatmulRequest(a=a, b=b, **extra))
    for request in requests:
        program = program_of(rig, request)
        sizes = [len(step.run.cubin) for step in program.steps if not isinstance(step.run, Prepared)]
        assert sizes
        assert all(sizes)
        for step in program.steps:
            if isinstance(step.run, Prepared):
                rig.delete(step.run.plan)


def test_refusals_have_rules(rig: Rig) -> None:
    rng = np.random.default_rng(19)

    def refusal(request: MatmulRequest, **options: Any) -> Unsupported:
        with pytest.raises(Unsupported) as caught:
            program_of(rig, request, **options)
        return caught.value

    apart = random(rng, (16, 64), "float32")[:, ::2], random(rng, (32, 8), "float32")
    error = refusal(MatmulRequest(a=apart[0], b=apart[1], copies=False))
    assert (error.rule, error.lifted_by) == ("blas_lt.dense_axis", ("layout", "copies"))
    assert str(error).endswith("; or leave copies=True, so that A and B are copied into the workspace")
    a, b = random(rng, (16, 24), "float8_e4m3fn"), random(rng, (16, 24), "float8_e4m3fn")
    error = refusal(MatmulRequest(a=a, b=b, trans_b=True, copies=False))
    assert (error.rule, error.lifted_by) == ("float8.k_multiple_of_16", ("shape", "copies"))
    assert str(error).count("copies=True") == 1
    error = refusal(MatmulRequest(a=a, b=b, trans_b=True), target=Target("sm_80"))
    assert (error.rule, error.lifted_by) == ("float8.architecture", ("device",))
    assert "copies=True" not in str(error)
    error = refusal(MatmulRequest(a=apart[0], b=apart[1]), workspace_bytes=1024)
    assert (error.rule, error.lifted_by) == ("blas_lt.workspace_limit", ("workspace_limit", "shape"))
    assert "copies=True" not in str(error)


@pytest.mark.parametrize(
    ("types", "options", "all_schemes"),
    [
        (("bfloat16", "bfloat16"), {}, False),
        (("bfloat16", "bfloat16"), {"reduced_precision": True}, True),
        (("float16", "float16"), {}, False),
        (("float16", "float16"), {"compute": "float16_accumulate"}, True),
        (("bfloat16", "bfloat16"), {"out_dtype": "float32"}, True),
        (("float32", "float32"), {}, True),
        (("float8_e4m3fn", "float8_e4m3fn"), {"out_dtype": "float16"}, False),
    ],
)
def test_parts_of_a_split_sum_are_not_rounded(
    rig: Rig, types: tuple[str, str], options: dict[str, Any], all_schemes: bool
) -> None:
    """The library may add up parts of K in D's dtype only where that rounds nothing, or where the request allows it."""
    rng = np.random.default_rng(23)
    a, b = random(rng, (16, 64), types[0]), random(rng, (32, 64), types[1])
    program = program_of(rig, MatmulRequest(a=a, b=b, trans_b=True, **options))
    compute_type_only = 2
    assert rig.knob("fake_reductions").value == (7 if all_schemes else compute_type_only)
    for step in program.steps:
        rig.delete(step.run.plan)
