"""The CUDA kernels of float8 without a GPU: their arithmetic, whole plans by the simulator, and machine code."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import float8_reference as reference
import numpy as np
import pytest
from msgspec.structs import replace
from plan_builds import build_cuda, build_host

import atomr_native as an
from atomr_native.builders.cuda.target import Target
from atomr_native.compile import cubin
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.float8 import request as requests
from atomr_native.libraries.float8.host import _scales
from atomr_native.plans.lowering import Operand
from atomr_native.plans.spec import WRITE, ShippedCode
from atomr_native.protocol.binaries import Binary

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

from shipped_kernels import linked_ptx, simulate

from atomr_native.compile import shipped
from atomr_native.compile.numba import copies
from atomr_native.compile.numba.device import scalars
from atomr_native.compile.numba.device.launch_words import launch_words

FORMATS = ("float8_e4m3fn", "float8_e5m2")
HOPPER, AMPERE = (9, 0), (8, 0)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("saturate", [True, False])
def test_the_encoder_at_every_rounding_boundary(dtype: str, saturate: bool) -> None:
    encode = copies.as_python(scalars.encoder(dtype, saturate))
    x = reference.boundaries(dtype)
    got = np.array([encode(value) for value in x], np.uint8)
    want = reference.cast(x, dtype, saturate).view(np.uint8)
    np.testing.assert_array_equal(got, np.where(np.isnan(x), scalars.FORMATS[dtype].nan, want))


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_decoder_of_every_code(dtype: str) -> None:
    decode = copies.as_python(scalars.decoder(dtype))
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal([decode(code) for code in codes], codes.view(DTYPES[dtype]).astype(np.float32))


def test_bfloat16_is_rounded_to_nearest_even() -> None:
    round_ = copies.as_python(scalars.bfloat16_of)
    bits = np.random.default_rng(0).integers(0, 2**32, 2000, np.uint32) & np.uint32(0xFFFFC000)
    x = bits.view(np.float32)
    x = x[~np.isnan(x)]
    got = np.array([round_(value) & 0xFFFF for value in x], np.uint16)
    np.testing.assert_array_equal(got, x.astype(DTYPES["bfloat16"]).view(np.uint16))
    assert round_(np.float32(np.nan)) == 0x7FFF


@pytest.mark.parametrize("dtype", FORMATS)
def test_scales_are_those_of_the_host(dtype: str) -> None:
    fresh = copies.as_python(scalars.fresh_scale)
    rng = np.random.default_rng(2)
    edges = [0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF]
    sizes = np.concatenate([edges, rng.integers(0, 2**31, 500)]).astype(np.int32)
    limit = np.float32(scalars.FORMATS[dtype].limit)
    for margin in (0, 3, -60, 60):
        headroom = copies.as_python(scalars.power_of_two)(margin)
        with np.errstate(all="ignore"):
            got = [fresh(int(size), limit, headroom) for size in sizes]
            np.testing.assert_array_equal(got, _scales(sizes, dtype, np.float32(2.0**margin)))


def allocated(operand: Operand) -> np.ndarray:
    spec = operand.spec
    made = np.zeros(spec.shape if operand.whole is None else operand.whole, DTYPES[spec.dtype])
    return np.ndarray(spec.shape, made.dtype, made, 0, spec.strides)


def parts_of(request: Any, capability: tuple[int, int]) -> tuple[shipped.Part, ...]:
    parts: tuple[shipped.Part, ...] = request.lowered.code.parts_for(capability)
    return parts


def bits(array: np.ndarray) -> np.ndarray:
    return array.view({1: "u1", 2: "u2", 4: "u4"}[array.itemsize])


def compare(request: requests.QuantizeRequest, capability: tuple[int, int], blocks: int) -> None:
    """Run a plan by the simulator and by the host's builder, and compare all that they write, bit by bit."""
    made: Any = request.lowered
    spec, parts = made.spec(), made.code.parts_for(capability)
    results = []
    for simulated in (True, False):
        arrays, outputs = [], []
        for operand in made.operands:
            array = allocated(operand) if operand.given is None else operand.given
            if operand.spec.access & WRITE:
                array = array if operand.given is None else array.copy()
                outputs.append(array)
            arrays.append(array)
        if simulated:
            simulate("float8.quantize", parts, spec, arrays, blocks)
        else:
            run: Any = build_host(spec).run
            run(tuple(arrays), ())
        results.append(outputs)
    assert not copies.as_python(lambda: launch_words())().any()  # as the next launch wants them
    for ours, hosts, operand in zip(*results, spec.operands[-len(results[0]) :], strict=True):
        np.testing.assert_array_equal(bits(ours), bits(hosts), err_msg=operand.name)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    x = rng.standard_normal(shape) * np.exp(2 * rng.standard_normal(shape))
    return np.clip(x, -60000, 60000).astype(DTYPES[dtype])


def state(history: Any = (2.0, np.inf, 0.0, 7.0), position: int = 3, **options: Any) -> requests.DelayedScaling:
    return requests.DelayedScaling(
        history=np.array(history, np.float32), position=np.array([position], np.int32),
        scale=np.array([0.25], np.float32), **options,
    )  # fmt: skip


#: A whole tile of zeros and of numbers about the smallest ones.
TINY = np.where(np.arange(128 * 128) % 3 == 0, 0, np.arange(128 * 128) * 2.0**-149).astype("f4").reshape(128, 128)
#: Shapes with whole tiles (loaded by 16 bytes) and parts of tiles; every scaling, both ways of casting.
PLANS: dict[str, tuple[np.ndarray, dict[str, Any], tuple[int, int], int]] = {
    "tensor, a whole tile and a tail": (numbers((128 * 128 + 77,), "bfloat16"), {}, HOPPER, 1),
    "tensor, software, several blocks": (numbers((131, 140), "float32"), {"dtype": "float8_e5m2"}, AMPERE, 2),
    "tensor, Fortran order": (numbers((40, 9), "float16").T, {"saturate": False}, HOPPER, 1),
    "tensor, strided, several tiles a block": (
        numbers((3, 2360), "float16")[:, ::2], {"transposed": True}, HOPPER, 1,
    ),
    "tensor, an odd address": (numbers((5, 41), "bfloat16")[:, 1:], {"scale": np.float32([0.7])}, HOPPER, 1),
    "tensor, given, transposed": (
        numbers((128, 136), "float16"),
        {"scale": np.float32([40.0]), "transposed": True, "dtype": "float8_e5m2"},
        HOPPER,
        1,
    ),
    "tensor, given, tiny": (TINY, {"scale": np.float32([2.0**-140])}, HOPPER, 1),
    "tensor, given, 0": (TINY, {"scale": np.float32([0.0]), "saturate": False}, HOPPER, 1),
    "delayed": (numbers((3, 50), "float32"), {"state": state(margin=2)}, HOPPER, 1),
    "delayed, latest": (numbers((3, 50), "float32"), {"state": state(amax="latest")}, HOPPER, 1),
    "delayed, whole tiles, several a block, transposed": (
        numbers((128, 640), "bfloat16"), {"state": state(), "transposed": True}, HOPPER, 1,
    ),
    "delayed, several blocks, a long history": (
        numbers((131, 140), "float32"), {"state": state([1.0, *[0.5] * 1100, 99.0, 3.0], 1101)}, AMPERE, 2,
    ),
    "delayed, nowhere": (numbers((2, 5), "float16"), {"state": state(position=-6, margin=-3)}, HOPPER, 1),
    "delayed, nothing": (np.zeros((0, 5), "f4"), {"state": state()}, HOPPER, 1),
    "delayed, nothing known": (np.full((1, 3), np.nan, "f4"), {"state": state(amax="latest")}, HOPPER, 1),
    "outer": (numbers((3, 70), "bfloat16"), {"scaling": "outer"}, HOPPER, 1),
    "outer, whole groups": (numbers((2, 1160), "float16"), {"scaling": "outer"}, HOPPER, 1),
    "outer, software": (numbers((2, 264), "bfloat16"), {"scaling": "outer"}, AMPERE, 1),
    "outer, strided, unsaturated": (
        numbers((70, 3), "float32").T, {"scaling": "outer", "saturate": False}, AMPERE, 1,
    ),
    "vec128, whole": (numbers((128, 128), "float16"), {"scaling": "vec128"}, HOPPER, 1),
    "vec128, whole, one number at a time": (numbers((128, 128), "float32"), {"scaling": "vec128"}, HOPPER, 1),
    "vec128, parts": (numbers((3, 150), "float32"), {"scaling": "vec128"}, AMPERE, 1),
    "blk128, whole": (numbers((128, 128), "bfloat16"), {"scaling": "blk128", "transposed": True}, HOPPER, 1),
    "blk128, parts": (numbers((10, 130), "float32")[::2], {"scaling": "blk128", "transposed": True}, AMPERE, 1),
    "blk128, several tiles a block": (numbers((3, 1180), "float32"), {"scaling": "blk128"}, HOPPER, 1),
    "nothing": (np.zeros((0, 5), "f4"), {}, HOPPER, 1),
    "zeros and infinity": (np.float32([[0, np.inf, -np.inf, 500]]), {}, HOPPER, 1),
}  # fmt: skip


@pytest.mark.bits
@pytest.mark.parametrize("plan", PLANS)
def test_plans_by_the_simulator_have_the_bits_of_the_host(plan: str) -> None:
    x, options, capability, blocks = PLANS[plan]
    compare(requests.QuantizeRequest(x=x, **options), capability, blocks)


@pytest.mark.parametrize(
    ("dtype", "target", "shape", "scale", "capability"),
    [
        ("float8_e4m3fn", "bfloat16", (128, 128), (128, 1), HOPPER),
        ("float8_e5m2", "float32", (3, 150), (3, 2), AMPERE),
        ("float8_e4m3fn", "float16", (130, 7), (2, 1), AMPERE),
        ("float8_e5m2", "float16", (128 * 128 + 1,), (), HOPPER),
    ],
)
def test_dequantisation_by_the_simulator(
    dtype: str, target: str, shape: tuple[int, ...], scale: tuple[int, ...], capability: tuple[int, int]
) -> None:
    rng = np.random.default_rng(1)
    q = rng.integers(0, 256, shape, np.uint8).view(DTYPES[dtype])
    request = requests.DequantizeRequest(q=q, scale=np.asarray(rng.random(scale) * 1e-3, np.float32), dtype=target)
    spec = request.lowered.spec()
    ours, hosts = (np.zeros(shape, DTYPES[target]) for _ in range(2))
    simulate("float8.quantize", parts_of(request, capability), spec, [q, request.scale, ours])
    run: Any = build_host(spec).run
    run((q, request.scale, hosts), ())
    np.testing.assert_array_equal(ours.astype(np.float64), hosts.astype(np.float64))


X = np.ones((256, 256), DTYPES["bfloat16"])
COMPILED = {
    "now": requests.QuantizeRequest(x=X),
    "delayed": requests.QuantizeRequest(x=X.astype("f4"), dtype="float8_e5m2", state=state(dtype="float8_e5m2")),
    "delayed, narrow": requests.QuantizeRequest(x=X, state=state()),
    "outer": requests.QuantizeRequest(x=X.astype("f2"), scaling="outer", saturate=False),
    "vec128": requests.QuantizeRequest(x=X, scaling="vec128"),
    "blk128": requests.QuantizeRequest(x=X, scaling="blk128", transposed=True),
}


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        *((name, HOPPER) for name in COMPILED if name not in ("now", "delayed")),
        ("now", AMPERE),
        ("delayed", AMPERE),
        ("blk128", (10, 0)),
    ],
)
def test_compilation_needs_no_gpu(tools: None, name: str, capability: tuple[int, int]) -> None:
    parts = parts_of(COMPILED[name], capability)
    made = shipped.machine_code("float8.quantize", parts, capability)
    found = cubin.kernels(made.code.data)
    assert [part for part, _ in made.entries] == [part.name for part in parts]
    for part, (_, entry) in zip(parts, made.entries, strict=True):
        assert found[entry] == (8,) * len(shipped.made("float8.quantize", part)[1])
        assert not cubin.why_no_overlap(made.code.data, entry) or capability < HOPPER
    assert shipped.machine_code("float8.quantize", parts, capability) is made


def test_what_the_machine_code_is_made_of(tools: None) -> None:
    """Whole tiles are loaded by 16 bytes, converted by the GPU, and stay in registers."""
    ptx = linked_ptx("float8.quantize", parts_of(COMPILED["blk128"], HOPPER), HOPPER)
    assert ptx.count("ld.global.v4") + ptx.count("ld.v4") >= 8
    assert ptx.count("cvt.rn.satfinite.e4m3x2.f32") >= 32
    assert "st.global.v2" in ptx or "st.v2" in ptx
    assert ".local .align" not in ptx
    request = requests.DequantizeRequest(
        q=np.ones((8, 8), DTYPES["float8_e5m2"]), scale=np.ones((), "f4"), dtype="float16"
    )
    ptx = linked_ptx("float8.quantize", parts_of(request, HOPPER), HOPPER)
    assert "cvt.rn.f16x2.e5m2x2" in ptx
    assert ".local .align" not in ptx
    ptx = linked_ptx("float8.quantize", parts_of(COMPILED["now"], AMPERE), AMPERE)
    assert "e4m3" not in ptx.replace("float8_e4m3fn", "")


def test_delayed_scaling_is_one_launch(tools: None) -> None:
    """Blocks share words that come with the machine code, and the last of them is told by one ordered count."""
    request = COMPILED["delayed, narrow"]
    parts, spec = parts_of(request, HOPPER), request.lowered.spec()
    shipped = ShippedCode((("record", "record"),), Binary(b""))
    spec = replace(spec, attributes=replace(spec.attributes, shipped=shipped))
    program = build_cuda(spec, Target("sm_90", 1)).run
    assert [launch.function for launch in program.launches] == ["record"]
    assert program.workspace == 0
    ptx = linked_ptx("float8.quantize", parts, HOPPER)
    assert re.search(r"\.global [^;]*launch_words\[16\]", ptx)
    assert ptx.count("atom.acq_rel.gpu.global.inc.u32") == 1
    assert ptx.count("red.relaxed.gpu.global.max.s32") == 2
    assert ptx.count("ld.global.v4") + ptx.count("ld.v4") == 8
    assert ".local .align" not in ptx


def test_a_plan_without_a_matrix_is_refused() -> None:
    x = np.ones((4, 4, 4), np.float32)[::2, ::2, ::2]
    request = requests.QuantizeRequest(x=x, scale=np.ones((), "f4"))
    with pytest.raises(an.Unsupported, match="do not fold into a matrix"):
        simulate("float8.quantize", parts_of(request, HOPPER), request.lowered.spec(), [])


def _imports_numba(words: str) -> bool:
    words += "; import sys; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def test_neither_the_library_nor_a_warm_cache_imports_numba(tools: None) -> None:
    parts = parts_of(COMPILED["vec128"], HOPPER)
    made = shipped.machine_code("float8.quantize", parts, HOPPER)
    words = (
        f"import atomr_native.libraries.float8.actor\nfrom atomr_native.compile.shipped import *; kept = {tuple(parts)}"
    )
    assert not _imports_numba(
        f"{words}; assert machine_code('float8.quantize', kept, {HOPPER}).entries == {made.entries}"
    )
