"""Sources of kernels: equal descriptions have one source, and others differ in it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.libraries.cutlass.kernels import Kernel, Node, Operand, check, render

pytestmark = pytest.mark.plain

LEAVES = [
    Node("acc"), Node("scalar", dtype="float32", name="s0", value="host"),
    Node("scalar", dtype="float32", name="x3", value="pointer"), Node("row", dtype="float32", name="x0", alignment=4),
    Node("column", dtype="bfloat16", name="x1"),
]  # fmt: skip
NODES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(lambda op, x: Node(op, (x,)), st.sampled_from(["relu", "gelu", "exp", "neg"]), inner),
        st.builds(lambda op, x, y: Node(op, (x, y)), st.sampled_from(["add", "mul", "max"]), inner, inner),
    ),
    max_leaves=6,
)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """Return a kernel that a template can compute."""
    family = draw(st.sampled_from(["gemm", "grouped", "convolution"]))
    modern = draw(st.booleans()) and family != "convolution"
    dtype, layouts = draw(st.sampled_from(["float16", "bfloat16"])), st.sampled_from(["row", "column"])
    schedule = draw(st.sampled_from(["cooperative", "pingpong"])) if modern else "multistage"
    shares = family == "gemm" and schedule != "pingpong"
    heights = [128, 256] if schedule == "cooperative" else [64, 128]
    return Kernel(
        family=family,
        arch="sm_90a" if modern else "sm_80",
        a=Operand(dtype, "row" if family == "grouped" else draw(layouts), 8),
        b=Operand(dtype, draw(layouts), 8),
        c=None,
        d=draw(st.sampled_from([Operand("bfloat16", "row", 8), Operand("float32", "row", 4)])),
        accumulator="float32",
        tile=(draw(st.sampled_from(heights)), draw(st.sampled_from([64, 128])), 64),
        tree=draw(NODES),
        cluster=draw(st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 2, 1)])) if modern else (1, 1, 1),
        schedule=schedule,
        stages=draw(st.sampled_from([0, 3, 4])),
        offsets=draw(st.sampled_from(["int32", "int64"])),
        decomposition=draw(st.sampled_from(["tiles", "stream_k"] if shares else ["tiles"])),
        operation=draw(st.sampled_from(["forward", "data_gradient", "filter_gradient"])),
        spatial=draw(st.sampled_from([2, 3])),
        unit_strides=True,
    )


#: Attributes that can be changed alone.
FREE = ("a", "b", "d", "tile", "tree", "cluster", "schedule", "stages", "family", "offsets", "decomposition",
        "operation", "spatial")  # fmt: skip


def is_possible(kernel: Kernel) -> bool:
    try:
        check(kernel)
    except an.Unsupported:
        return False
    return True


def essential(kernel: Kernel) -> Kernel:
    """Return a kernel without what its family has no use for."""
    if kernel.family != "grouped":
        kernel = dataclasses.replace(kernel, offsets="int32")
    if kernel.family != "convolution":
        kernel = dataclasses.replace(kernel, operation="forward", spatial=2, unit_strides=True)
    elif kernel.operation != "data_gradient":
        kernel = dataclasses.replace(kernel, unit_strides=True)
    if kernel.family == "convolution":  # the layouts of its operands are those of images and filters
        kernel = dataclasses.replace(
            kernel, a=dataclasses.replace(kernel.a, layout="row"), b=dataclasses.replace(kernel.b, layout="row")
        )
    return dataclasses.replace(kernel, stages=3) if kernel.arch == "sm_80" and not kernel.stages else kernel


@settings(deadline=None)
@given(kernels(), kernels())
def test_sources_differ_where_descriptions_do(one: Kernel, two: Kernel) -> None:
    first = render(one)
    for changed in FREE:
        other = dataclasses.replace(one, **{changed: getattr(two, changed)})
        if is_possible(other):
            assert (first == render(other)) == (essential(one) == essential(other)), changed
    assert (first == render(two)) == (essential(one) == essential(two))
