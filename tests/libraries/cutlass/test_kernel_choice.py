"""The kernels that products get by themselves: tiles, schedules, pipelines, and the order of tiles."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries.cutlass.choice import Chosen, kernel_of
from atomr_native.libraries.cutlass.kernels import check, render, walk

pytestmark = [pytest.mark.plain, pytest.mark.alike]


def chosen(m: int, n: int, k: int, dtype: Any = np.float16, capability: tuple[int, int] = (9, 0), **how: Any) -> Chosen:
    """Return the kernel of a product whose operands are contiguous along K, and check that it has a source."""
    a, b = np.empty((m, k), dtype), np.empty((n, k), dtype).T
    found = kernel_of(an.GemmRequest(a=a, b=b, **how).lowered.spec(), capability)
    check(found.kernel)
    render(found.kernel)
    return found


BIAS: dict[str, Any] = {"epilogue": "relu(acc + bias)", "operands": {"bias": np.empty(4096, "f2")}}


@pytest.mark.parametrize(
    ("how", "tile", "schedule"),
    [
        ({"epilogue": "acc"}, (128, 128), "pingpong"),
        ({"alpha": 2.0}, (128, 128), "pingpong"),
        (BIAS, (128, 128), "pingpong"),
        ({"epilogue": lambda acc: acc / (1.0 + acc)}, (128, 128), "pingpong"),
        ({"epilogue": "acc", "dtype": ml_dtypes.float8_e4m3fn, "fast_accum": True}, (128, 256), "cooperative"),
        ({"epilogue": "relu(acc)", "dtype": ml_dtypes.float8_e4m3fn, "fast_accum": True}, (64, 256), "pingpong"),
        ({**BIAS, "config": an.GemmConfig(schedule="cooperative")}, (128, 256), "cooperative"),
        ({**BIAS, "config": an.GemmConfig(decomposition="stream_k")}, (128, 256), "cooperative"),
        ({"epilogue": "silu(gelu(tanh(acc * 2 + 1) * 3))"}, (128, 128), "pingpong"),
    ],
)
def test_epilogues_are_hidden_behind_short_sums(how: dict[str, Any], tile: tuple[int, int], schedule: str) -> None:
    kernel = chosen(4096, 4096, 2048, **how).kernel
    assert (kernel.tile[:2], kernel.schedule) == (tile, schedule)
    kernel = chosen(4096, 4096, 4096, **how).kernel
    assert (kernel.tile[:2], kernel.schedule) == ((128, 256), "cooperative")


@pytest.mark.parametrize(
    ("m", "n", "how", "tile"),
    [
        (16, 14336, {}, (64, 16)),
        (1, 4096, {}, (64, 16)),
        (1, 4032, {}, (128, 16)),
        (16, 4096, BIAS, (128, 16)),
        (17, 4096, {"alpha": 2.0}, (128, 32)),
        (64, 4096, BIAS, (128, 64)),
        (65, 4096, {}, None),
        (64, 192, {}, None),
        (16, 4096, {"config": an.GemmConfig(schedule="cooperative")}, None),
        (16, 4096, {"config": an.GemmConfig(arch="sm_80")}, None),
    ],
)
def test_a_product_of_few_rows_is_that_of_the_transposes(
    m: int, n: int, how: dict[str, Any], tile: tuple[int, int] | None
) -> None:
    found = chosen(m, n, 4096, **how)
    assert found.turned == (tile is not None)
    assert found.kernel.d.layout == ("column" if found.turned else "row")
    assert (found.problem.m, found.problem.n) == ((n, m) if found.turned else (m, n))
    if tile is not None:
        assert (found.kernel.tile[:2], found.kernel.cluster) == (tile, (1, 1, 1))
    if found.turned and how == BIAS:
        assert "column" in {node.op for node in walk(found.kernel.tree)}  # the bias


@pytest.mark.parametrize(
    ("epilogue", "names", "c", "source"),
    [
        ("acc * gate", ("gate",), False, "gate"),
        ("acc * gate + c", ("gate",), True, "c"),
        ("acc * wide + gate", ("wide", "gate"), False, "gate"),  # of D's size
        ("acc * wide", ("wide",), False, "wide"),
        ("acc + bias", ("bias",), False, ""),
    ],
)
def test_a_matrix_of_the_epilogue_takes_the_way_of_c(
    epilogue: str, names: tuple[str, ...], c: bool, source: str
) -> None:
    arrays = {"gate": np.empty((512, 256), "f2"), "wide": np.empty((512, 256), "f4"), "bias": np.empty(256, "f2")}
    how: dict[str, Any] = {"c": np.empty((512, 256), "f2")} if c else {}
    how |= {"epilogue": epilogue, "operands": {name: arrays[name] for name in names}}
    found = chosen(512, 256, 128, **how)
    assert found.source == source
    assert (found.kernel.c is not None) == bool(source)
    if source and source != "c":
        assert found.kernel.c is not None
        assert found.kernel.c.dtype == str(arrays[source].dtype)
    older = chosen(512, 256, 128, capability=(8, 0), **how)
    assert older.source == ("c" if c else "")


@pytest.mark.parametrize(("fast", "tile"), [(True, (128, 256)), (False, (128, 128))])
def test_exact_sums_of_float8_leave_room_for_their_second_accumulator(fast: bool, tile: tuple[int, int]) -> None:
    kernel = chosen(4096, 4096, 4096, ml_dtypes.float8_e4m3fn, fast_accum=fast, epilogue="acc").kernel
    assert kernel.tile[:2] == tile


@pytest.mark.parametrize(
    ("m", "n", "how", "swizzle"),
    [
        (8192, 8192, {}, 8),  # 32 rows of clusters, 64 columns of tiles
        (8192, 128 * 12, {}, 4),
        (8192 + 1, 8192, {}, 1),  # 33 rows
        (64, 128, {}, 1),
        (8192, 8192, {"config": an.GemmConfig(swizzle=2)}, 2),
        (8192, 8192, {"config": an.GemmConfig(decomposition="stream_k")}, 1),
    ],
)
def test_neighbouring_rows_of_tiles_add_no_empty_tiles(m: int, n: int, how: dict[str, Any], swizzle: int) -> None:
    assert chosen(m, n, 512, epilogue="acc", **how).swizzle == swizzle


@pytest.mark.parametrize(
    ("m", "n", "k", "decomposition"),
    [(128, 128, 8192, "stream_k"), (128, 128, 1024, "tiles"), (16, 4096, 14336, "tiles"),
     (16, 2048, 14336, "stream_k"), (32, 4096, 14336, "stream_k"),
     (4096, 4096, 14336, "tiles"), (16, 14336, 4096, "tiles")],
)  # fmt: skip
def test_blocks_share_few_tiles_with_long_sums_by_themselves(m: int, n: int, k: int, decomposition: str) -> None:
    kernel = chosen(m, n, k).kernel
    assert kernel.decomposition == decomposition
    assert chosen(m, n, k, config=an.GemmConfig(decomposition="tiles")).kernel.decomposition == "tiles"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize(("k", "stages"), [(127, 2), (126, 0), (124, 0), (64, 0)])
def test_operands_of_any_alignment_have_a_kernel(dtype: Any, k: int, stages: int) -> None:
    for m in (1, 33):
        kernel = chosen(m, 65, k, dtype, (8, 0), epilogue="acc").kernel
        few = np.dtype(dtype).itemsize * kernel.a.alignment < 4
        assert kernel.stages == (2 if few else kernel.stages)
        assert few == (stages == 2 or (dtype is np.int8 and k == 126))
        assert k % kernel.a.alignment == 0


def test_few_stages_are_refused_where_they_cannot_be() -> None:
    with pytest.raises(an.Unsupported, match=r"a\.alignment=1 of a CUTLASS kernel; allowed: 2, 4, 8"):
        chosen(33, 65, 127, config=an.GemmConfig(stages=4))
    x, w = np.empty((1, 8, 8, 16), "f2"), np.empty((8, 3, 3, 16), "f2")
    request = an.FusedConvolutionRequest(a=x, b=w, operation="forward", config=an.GemmConfig(stages=2))
    with pytest.raises(an.Unsupported, match="stages=2 of a CUTLASS kernel for sm_80; allowed: 0, 3 to 8"):
        check(kernel_of(request.lowered.spec(), (8, 0)).kernel)


def test_threads_are_spread_for_wider_elements_where_few_int8_are_stored() -> None:
    for n, element in ((64, "int8_t"), (66, "int32_t"), (65, "int32_t")):
        kernel = chosen(64, n, 64, np.int8, (8, 0), epilogue="acc * 0.5", out_dtype="int8").kernel
        assert f"OutputTileThreadLayout<Block, Warp, {element}, {kernel.d.alignment}, 1>" in render(kernel).source


@pytest.mark.parametrize(
    ("dtype", "how", "brief"),
    [
        (np.float16, {}, True),
        (np.float16, {"out_dtype": "float32"}, False),
        (np.float16, {"epilogue": "pre = acc; out = exp(pre)", "outputs": {"pre": "float16"}}, True),
        (np.float16, {"epilogue": "pre = acc; out = exp(pre)", "outputs": {"pre": "float32"}}, False),
        (np.float16, {"epilogue": "s = sum(acc, 0); out = exp(acc)", "outputs": {"s": "float32"}}, False),
        (np.int8, {"epilogue": "exp(acc)", "out_dtype": "int8"}, True),
        (np.int8, {"epilogue": "acc"}, False),
        (np.float64, {}, False),
    ],
)
def test_arithmetic_is_short_where_all_results_are(dtype: Any, how: dict[str, Any], brief: bool) -> None:
    for capability in ((9, 0), (8, 0)):
        a, b = np.empty((64, 32), dtype), np.empty((256, 32), dtype).T
        found = render(kernel_of(an.GemmRequest(a=a, b=b, **how).lowered.spec(), capability).kernel)
        assert found.brief == brief
