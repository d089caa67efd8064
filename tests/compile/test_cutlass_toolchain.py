"""CUTLASS's headers are changed in memory, kernels compile in helper processes, and builders of parameters run here."""

from __future__ import annotations

import logging
import math
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.compile import nvrtc
from atomr_native.compile.cutlass import compiler, headers, overlay, processes
from atomr_native.compile.cutlass.parameters import Built, parameters
from atomr_native.compile.cutlass.ptx import Function
from atomr_native.compile.nvrtc import arch_of
from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest, LibraryError, Unsupported
from atomr_native.libraries.cutlass.attributes import EXTENTS
from atomr_native.libraries.cutlass.choice import kernel_of, node_names
from atomr_native.libraries.cutlass.cuda import field_values
from atomr_native.libraries.cutlass.kernels import Kernel, Node, Operand, check, render
from atomr_native.libraries.cutlass.precompile import wanted_of

WORD = st.integers(0, 2**64 - 1)
ARITHMETIC = """
.visible .entry f(
\t.param .align 8 .b8 f_param_0[16],
\t.param .u64 f_param_1
)
{
\t.reg .pred %p<2>;
\tld.param.v2.u32 {%r1, %r2}, [f_param_0];
\tld.param.v2.u32 {%r3, %r4}, [f_param_0+8];
\tld.param.u64 %rd1, [f_param_1];
\tcvta.to.global.u64 %rd2, %rd1;
\tadd.cc.u32 %r5, %r1, %r3;
\taddc.u32 %r6, %r2, %r4;
\tst.global.v2.u32 [%rd2], {%r5, %r6};
\tsub.cc.u32 %r7, %r1, %r3;
\tsubc.u32 %r8, %r2, %r4;
\tst.global.v2.u32 [%rd2+8], {%r7, %r8};
\tsetp.lt.s32 %p1, %r1, %r3;
\tmov.u32 %r9, 1;
\t@%p1 bra $L_END;
\tmov.u32 %r9, 0;
$L_END:
\tst.global.u32 [%rd2+16], %r9;
\tret;

}
"""


@pytest.mark.plain
@given(WORD, WORD)
def test_scalar_ptx_carries_and_branches_as_a_gpu_does(a: int, b: int) -> None:
    made = Function(ARITHMETIC, "f")(struct.pack("<QQ", a, b), 20)
    total, difference, less = struct.unpack("<QQI", made)
    mask = 2**64 - 1
    low = [struct.unpack("<i", struct.pack("<I", value & 0xFFFFFFFF))[0] for value in (a, b)]
    assert (total, difference, less) == (a + b & mask, a - b & mask, int(low[0] < low[1]))


@pytest.mark.plain
def test_a_builder_with_a_trap_is_refused() -> None:
    with pytest.raises(Unsupported, match="brkpt"):
        Function(ARITHMETIC.replace("\tret;", "\tbrkpt;"), "f")


@pytest.mark.plain
def test_headers_of_another_version_are_refused(tmp_path: Path) -> None:
    change = overlay.Change("a.h", "old", "new")
    for text in ("", "old old"):
        (tmp_path / "a.h").write_text(text)
        with pytest.raises(Unsupported, match=r"a\.h has [02] times"):
            overlay.changed(tmp_path, [change])
    (tmp_path / "a.h").write_text("one old text")
    assert overlay.changed(tmp_path, [change])["a.h"] == "one new text"


def product(arch: str, **more: object) -> Kernel:
    """A bfloat16 product with a bias, an activation, and alpha."""
    tree = Node("mul", (Node("scalar", dtype="float32", name="s0", value="host"), Node("acc")))
    tree = Node("gelu", (Node("add", (tree, Node("row", dtype="float32", name="x0", alignment=4))),))
    operand = Operand("bfloat16", "row", 8)
    given_ = {"tile": (128, 128, 64), "cluster": (2, 1, 1)} if arch == "sm_90a" else {"tile": (64, 64, 32)}
    schedule = "cooperative" if arch == "sm_90a" else "multistage"
    b = Operand("bfloat16", "column", 8)
    return Kernel(**{"family": "gemm", "arch": arch, "a": operand, "b": b, "c": None, "d": operand, "tree": tree,
                     "accumulator": "float32", "schedule": schedule, **given_, **more})  # fmt: skip


@pytest.mark.plain
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"family": "attention"}, "family='attention'"),
        ({"tile": (96, 128, 64)}, r"tile\[0\]=96"),
        ({"d": Operand("bfloat16", "row", 4)}, "d.alignment=4"),
        ({"accumulator": "int32"}, "accumulator='int32'"),
        ({"tree": Node("cube", (Node("acc"),))}, "node 'cube'"),
        ({"tree": Node("add", (Node("acc"),))}, "has 1 arguments; allowed: 2"),
        ({"tree": Node("source")}, "without the operand c"),
    ],
)
def test_a_kernel_without_template_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        check(product("sm_90a", **change))


@pytest.fixture
def _cutlass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))
    try:
        headers.headers()
    except Unsupported as missing:
        pytest.skip(str(missing))


VALUES = {
    "m": 1000, "n": 776, "k": 520, "batch": 1, "lda": 520, "ldb": 520, "ldd": 776, "batch_a": 0, "batch_b": 0,
    "batch_d": 0, "batch_x0": 0, "sm_count": 132, "swizzle": 1, "raster": 0,
}  # fmt: skip


def built(kernel: Kernel, **changed: int) -> Built:
    rendered = render(kernel)
    made = compiler.compile_kernel(rendered)
    return parameters(made.builder, rendered.fields, rendered.pointers, rendered.scalars, VALUES | changed)


@pytest.mark.usefixtures("_cutlass")
def test_a_multistage_kernel_and_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    found = built(product("sm_80"))
    assert found.can_implement
    assert found.grid == (16, 13, 1)
    assert {name for _, name, _ in found.relocations} == {"a", "b", "d", "x0"}
    assert [scalar[1:] for scalar in found.scalars] == [("s0", "float32")]
    monkeypatch.setattr(compiler, "run", None)  # a second time the cache has it
    assert not built(product("sm_80"), k=519).can_implement
    with pytest.raises(InvalidRequest, match="m="):
        built(product("sm_80"), m=2**40)


def built_alone(kernel: Kernel) -> Built:
    """Build parameters by code that is compiled without the kernel's, as that of a kernel with functions is."""
    rendered = render(kernel)
    flags = (f"--gpu-architecture={kernel.arch.replace('sm', 'compute')}", *compiler._flags(rendered))
    (ptx,) = compiler._compiled(rendered, (*flags, compiler._BUILDER_ONLY), ("PTX",), "parameters", None)
    code = compiler._entry(ptx, rendered.builder)
    return parameters(code, rendered.fields, rendered.pointers, rendered.scalars, VALUES)


@pytest.mark.usefixtures("_cutlass")
@pytest.mark.parametrize("build", [built_alone, pytest.param(built, marks=pytest.mark.slow)])
def test_a_warp_specialised_kernel_and_its_parameters(build: Callable[[Kernel], Built]) -> None:
    """The kernel's own code takes the compiler twice as long as that of its parameters."""
    found = build(product("sm_90a"))
    assert found.can_implement
    assert found.cluster == (2, 1, 1)
    assert [(one.pointer, one.rank, one.dims[:2]) for one in found.maps] == [
        ("a", 3, (520, 1000)), ("b", 3, (520, 776)), ("d", 3, (776, 1000)),
    ]  # fmt: skip
    assert all(len(one.strides) == one.rank - 1 and not any(s % 16 for s in one.strides) for one in found.maps)


def grouped(arch: str, **more: object) -> Kernel:
    """A grouped bfloat16 product with all that its epilogue may read."""
    tree = Node("mul", (Node("scalar", dtype="float32", name="s0", value="host"), Node("acc")))
    tree = Node("gelu", (Node("add", (tree, Node("row", dtype="float32", name="x0", alignment=4))),))
    tree = Node("mul", (tree, Node("column", dtype="float32", name="x1")))
    tree = Node("mul", (tree, Node("scalar", dtype="float32", name="x2", value="pointer")))
    tree = Node("add", (tree, Node("source", dtype="bfloat16")))
    return product(arch, family="grouped", tree=tree, c=Operand("bfloat16", "row", 8), **more)


GROUPED = {"groups": 5, "ldc": 776, "batch_c": 0, "batch_x0": 776, "batch_x1": 0, "batch_x2": 1, "batch_b": 520 * 776}


@pytest.mark.slow
@pytest.mark.usefixtures("_cutlass")
def test_a_grouped_multistage_kernel_finds_its_group_itself() -> None:
    found = built(grouped("sm_80"), **GROUPED)
    assert found.can_implement
    assert found.grid == (1000 // 64 + 5, 13, 1)  # tiles of rows that 5 groups have at most
    assert {name for _, name, _ in found.relocations} == {"a", "b", "c", "d", "offsets", "x0", "x1", "x2"}
    assert found.workspace_bytes == 0


@pytest.mark.slow
@pytest.mark.usefixtures("_cutlass")
@pytest.mark.parametrize("schedule", ["cooperative", "pingpong"])
def test_a_grouped_warp_specialised_kernel_reads_arrays_of_the_workspace(schedule: str) -> None:
    tile = (64 if schedule == "pingpong" else 128, 128, 64)
    found = built(grouped("sm_90a", schedule=schedule, tile=tile, offsets="int64"), **GROUPED)
    assert found.can_implement
    assert {name for _, name, _ in found.relocations} == {"workspace", "x0", "x2"}
    assert [one.pointer for one in found.maps] == ["workspace"] * 4  # which the kernel changes for each group
    assert found.workspace_bytes > 512


def convolved(operation: str, spatial: int, dtype: str, **more: object) -> Kernel:
    """A convolution with a bias and what is added to it."""
    k = {"float16": (8, 32), "float32": (4, 16), "tfloat32": (4, 16), "float64": (1, 16), "int8": (16, 64)}[dtype]
    a = Operand(dtype, "row", k[0])
    b = Operand(dtype, "column" if dtype == "int8" else "row", k[0])
    compute = "float64" if dtype == "float64" else "float32"
    d = Operand({"float16": "float16", "float64": "float64"}.get(dtype, "float32"), "row", 2)
    tree = Node("add", (Node("acc"), Node("row", dtype=compute, name="x0", alignment=2)))
    tree = Node("add", (Node("relu", (tree,)), Node("source", dtype=d.dtype)))
    accumulator = {"int8": "int32"}.get(dtype, compute)
    return Kernel(**{"family": "convolution", "arch": "sm_80", "a": a, "b": b, "c": d, "d": d, "tree": tree,
                     "accumulator": accumulator, "schedule": "multistage", "tile": (64, 64, k[1]),
                     "operation": operation, "spatial": spatial, **more})  # fmt: skip


#: Images of 2 x 14 x 12 with 64 channels, and 128 filters of 3 x 3.
IMAGES = dict.fromkeys(EXTENTS, 1) | {
    "images": 2, "height": 14, "width": 12, "channels": 64, "filters": 128, "filter_height": 3, "filter_width": 3,
    "out_height": 14, "out_width": 12, "pad_height": 1, "pad_width": 1, "pad_depth": 0,
    "ldd": 128, "batch_d": 0, "ldc": 128, "batch_c": 0, "batch_x0": 0, "splits": 1,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("_cutlass")
def test_a_convolution_and_its_parameters() -> None:
    kernel = convolved("forward", 2, "float16")
    found = built(kernel, **IMAGES)
    assert found.can_implement
    assert (found.grid, found.workspace_bytes, found.zeroed_bytes) == ((6, 2, 1), 0, 0)  # 336 pixels, 128 filters
    assert {name for _, name, _ in found.relocations} == {"a", "b", "c", "d", "x0", "workspace"}
    shared = built(kernel, **IMAGES | {"splits": 3})
    assert (shared.grid, shared.zeroed_bytes) == ((6, 2, 3), 256)
    assert shared.workspace_bytes == 256 + 12 * 64 * 64 * 4  # sums of 12 tiles
    assert not built(kernel, **IMAGES | {"channels": 63}).can_implement


OTHERS = [
    ("data_gradient", 2, "float16", {}), ("data_gradient", 3, "float16", {"unit_strides": False}),
    ("data_gradient", 3, "float32", {}), ("filter_gradient", 2, "float32", {}), ("filter_gradient", 3, "float16", {}),
    ("forward", 3, "tfloat32", {}), ("forward", 2, "float64", {}), ("filter_gradient", 2, "float64", {}),
    ("data_gradient", 3, "float64", {"unit_strides": False}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("_cutlass")
@pytest.mark.parametrize(("operation", "spatial", "dtype", "more"), OTHERS)
def test_other_convolutions(operation: str, spatial: int, dtype: str, more: dict[str, object]) -> None:
    ld = {"ldd": 576, "ldc": 576} if operation == "filter_gradient" else {}
    assert built(convolved(operation, spatial, dtype, **more), **IMAGES | ld).can_implement


@pytest.mark.slow
@pytest.mark.usefixtures("_cutlass")
def test_a_convolution_of_int8() -> None:
    kernel = convolved("forward", 2, "int8", tree=Node("acc"), c=None, d=Operand("int32", "row", 4))
    assert built(kernel, **IMAGES).can_implement


@pytest.mark.slow
@pytest.mark.usefixtures("_cutlass")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_blocks_that_share_a_product(arch: str) -> None:
    few = {"m": 128, "n": 128, "k": 65536, "lda": 65536, "ldb": 65536, "ldd": 128}
    found = built(product(arch, decomposition="stream_k"), **few, splits=1)
    assert found.can_implement
    assert found.grid[0] * found.grid[1] * found.grid[2] > 64  # many blocks for one or four tiles
    assert 0 < found.zeroed_bytes <= found.workspace_bytes
    even = built(product(arch, decomposition="stream_k"), **few, splits=4)
    assert even.data != found.data


@pytest.mark.slow
@pytest.mark.usefixtures("_cutlass")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_reductions_of_an_epilogue(arch: str) -> None:
    tree = Node("reduce_row", (Node("acc"),), "float32", "x1", "add", 4)
    tree = Node("reduce_column", (Node("relu", (tree,)),), "float32", "x2", "add", 4)
    tree = Node("exp", (Node("reduce_scalar", (tree,), "float32", "x3", "max", 4),))
    strides = {"batch_x1": 0, "batch_x2": 0, "batch_x3": 0}
    found = built(product(arch, tree=tree), **strides)
    assert found.can_implement
    assert {"x1", "x2", "x3"} <= {name for _, name, _ in found.relocations}
    assert render(product(arch, tree=tree)).setup == ("x1", "count_x1", "x2", "count_x2", "x3", "count_x3")


@pytest.mark.slow
@pytest.mark.usefixtures("_cutlass")
@pytest.mark.parametrize(("dtype", "scale"), [("int8", "bfloat16"), ("float8_e4m3fn", "")])
def test_an_operand_that_is_converted(dtype: str, scale: str) -> None:
    wide = Operand("bfloat16", "column", 8)
    tree = Node(
        "add", (Node("mul", (Node("acc"), Node("column", dtype="float32", name="x0"))), Node("source", (), wide.dtype))
    )
    kernel = product("sm_90a", a=Operand(dtype, "row", 16), b=wide, c=wide, d=wide, tree=tree, scale=scale)
    columns = {
        "ldc": 1000,
        "ldd": 1000,
        "batch_c": 0,
        "ld_scale": 1000,
        "batch_scale": 0,
        "k": 512,
        "lda": 512,
        "ldb": 512,
    }
    found = built(kernel, **columns, group=128)
    assert found.can_implement
    assert {one.pointer for one in found.maps} == {"a", "b", "c", "d", *(["scale"] if scale else [])}
    if scale:
        assert not built(kernel, **columns, group=96).can_implement  # no multiple of a step of K


#: Operands, capability, and what is asked of products that get kernels by themselves.
PRODUCTS: list[tuple[str, tuple[int, int], tuple[int, int, int], dict[str, Any]]] = [
    ("float64", (8, 0), (200, 96, 120), {}),
    ("float32", (8, 0), (200, 96, 120), {}),
    ("float32", (8, 0), (200, 96, 120), {"compute": "tf32"}),
    ("bfloat16", (8, 0), (33, 65, 127), {}),
    ("float16", (8, 0), (33, 65, 127), {"config": an.GemmConfig(splits=2)}),
    ("int8", (8, 0), (33, 65, 127), {"epilogue": "acc"}),
    ("int8", (8, 0), (33, 66, 126), {"out_dtype": "int8"}),
    ("int8", (9, 0), (256, 256, 256), {"epilogue": "acc"}),
    ("float32", (9, 0), (8192, 8192, 256), {"compute": "tf32", "epilogue": "gelu_tanh(acc)"}),
    ("float16", (9, 0), (8192, 8192, 256), {"epilogue": "sqrt(relu(acc)) / (1 + erf(acc))"}),
    ("float16", (9, 0), (8192, 8192, 256), {"config": an.GemmConfig(tile=(256, 128, 64), cluster=(2, 1, 1))}),
    ("float16", (9, 0), (64, 256, 16384), {}),
    ("float16", (9, 0), (16, 4096, 256), {}),
    (
        "bfloat16",
        (9, 0),
        (16, 4096, 256),
        {
            "epilogue": "pre = acc + bias; most = max(pre, 0); out = relu(pre) * gate",
            "out_dtype": "float32",
            "operands": {"bias": np.empty(4096, "f4"), "gate": np.empty((16, 4096), "f2")},
            "outputs": {"most": "float32"},
        },
    ),
    ("float8_e4m3fn", (9, 0), (8192, 8192, 256), {}),
    ("float8_e4m3fn", (9, 0), (8192, 8192, 256), {"fast_accum": True, "epilogue": "relu(acc)"}),
]


@pytest.mark.slow
@pytest.mark.usefixtures("_cutlass")
@pytest.mark.parametrize(("dtype", "capability", "shape", "how"), PRODUCTS)
def test_kernels_that_products_get(
    dtype: str, capability: tuple[int, int], shape: tuple[int, int, int], how: dict[str, Any]
) -> None:
    m, n, k = shape
    a, b = np.empty((m, k), DTYPES[dtype]), np.empty((n, k), DTYPES[dtype]).T
    (wanted,) = wanted_of([an.GemmRequest(a=a, b=b, **how)])
    chosen = kernel_of(wanted.spec, capability)
    check(chosen.kernel)
    rendered = render(chosen.kernel)
    made = compiler.compile_kernel(rendered, arch=arch_of(capability))
    names = node_names(wanted.spec.attributes)
    values = field_values(chosen.problem, names, 132, chosen.swizzle, chosen.splits, chosen.source)
    given_ = {name: values[name] for name, _ in rendered.fields if name in values}
    found = parameters(made.builder, rendered.fields, rendered.pointers, rendered.scalars, given_)
    assert found.can_implement
    assert found.shared_bytes <= 227 << 10
    assert any(one.pointer == "a" for one in found.maps) == (chosen.kernel.arch == "sm_90a")


def fraction(x: float) -> float:
    return x * (0.5 + 0.25 * x) / (1.0 + math.exp(-x))


@pytest.mark.slow
@pytest.mark.usefixtures("_cutlass")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_python_function_is_inlined(arch: str) -> None:
    pytest.importorskip("numba_cuda")
    kernel = product(arch, tree=Node("function", (Node("acc"),), name="users_function"))
    rendered = render(kernel)
    capability = {"sm_80": (8, 0), "sm_90a": (9, 0)}[arch]
    code = compiler.function_ltoir(fraction, 1, "users_function", capability, brief=rendered.brief)
    made = compiler.compile_kernel(rendered, {"users_function": code}, arch)
    assert made.builder
    assert b"users_function" not in made.cubin
    assert b"$atomr_kernel$" not in made.cubin  # functions that the assembler itself would call, as for quotients


def growth(x: float) -> float:
    return math.exp(2.0 * x)


def odds(x: float) -> float:
    return x / (x + 3.0)


@pytest.mark.parametrize(("kind", "brief"), [("float32", False), ("float32", True), ("float64", False)])
@pytest.mark.parametrize(
    ("function", "short"), [(growth, ["add", "mul", "ex2"]), (odds, ["add", "div"])]  # 2 x is a sum
)  # fmt: skip
def test_arithmetic_of_python_functions_is_short_where_results_are(
    function: Any, short: list[str], kind: str, brief: bool
) -> None:
    pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")
    nvjitlink = pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")
    code = compiler.function_ltoir(function, 1, "f0", (9, 0), kind, brief)
    type_ = {"float32": "float", "float64": "double"}[kind]
    caller = f'extern "C" __device__ {type_} f0({type_}); extern "C" __global__ void k({type_} *p) {{ *p = f0(*p); }}'
    kernel = nvrtc.compile_program(caller, "sm_90a", output="ltoir").code
    handle = nvjitlink.create(3, ["-arch=sm_90a", "-lto", "-ptx"])
    for part in (code, kernel):
        nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, part, len(part), "part")
    nvjitlink.complete(handle)
    text = bytearray(nvjitlink.get_linked_ptx_size(handle))
    nvjitlink.get_linked_ptx(handle, text)
    nvjitlink.destroy(handle)
    assert b"f0" not in text  # it is inlined
    lines = [line.split()[0] for line in text.decode().splitlines() if line.endswith(";")]
    steps = [one for one in lines if one.startswith(("mul.f", "mul.rn", "fma.", "ex2.", "add.", "div."))]
    if brief:
        assert [one.partition(".")[0] for one in steps] == short
    else:
        assert len(steps) > 5 or any(one.startswith("div.rn.") for one in steps)
    assert any(one.startswith("div.approx.ftz.") for one in steps) == (brief and function is odds)


class Broken:
    """A source that does not compile."""

    source = "int broken = absent;\n" * 200
    entry = builder = "broken"
    brief = False


@pytest.mark.usefixtures("_cutlass")
def test_errors_of_the_compiler_are_whole_and_nothing_is_cached(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(LibraryError, match='identifier "absent" is undefined') as caught:
            compiler.compile_kernel(Broken())
        assert "(199)" in str(caught.value) or "(100)" in str(caught.value)
    assert not list(tmp_path.rglob("*.cutlass"))


def test_a_job_that_fills_a_pipe_ends_with_an_event_too() -> None:
    job = {"kind": "compile", "source": "absent " * 4_000_000, "headers": {}, "flags": [], "outputs": []}
    with pytest.raises((LibraryError, Unsupported)):  # for a missing compiler, Unsupported
        processes.run(job, [], "much text", threading.Event())


@pytest.mark.usefixtures("_cutlass")
def test_a_compilation_can_be_cancelled(tmp_path: Path) -> None:
    cancel = threading.Event()

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("compiling "):
                running.extend(processes.compilations())
                cancel.set()

    running: list[processes.Compilation] = []
    log = logging.getLogger("atomr_native")
    level, handler = log.level, Seen()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        for _ in range(2):  # the second time before a process begins
            with pytest.raises(processes.Cancelled):
                compiler.compile_kernel(render(product("sm_90a")), cancel=cancel)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert [one.label for one in running] == ["atomr_kernel for sm_90a"]
    assert processes.compilations() == ()
    assert not list(tmp_path.rglob("*.cutlass"))
