"""Steps of plans without a device: which kernels turn by tiles, how modes merge, and where buffers lie."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.builders.cuda.context import CudaContext
from atomr_native.builders.cuda.target import Target
from atomr_native.libraries.tensor.cuda.arrays import Array, dense, folded
from atomr_native.libraries.tensor.cuda.einsum import Einsum
from atomr_native.libraries.tensor.cuda.product import find_product
from atomr_native.libraries.tensor.cuda.scratch import Scratch
from atomr_native.libraries.tensor.cuda.task import Task
from atomr_native.libraries.tensor.cuda.tiles import sides_of, tiled_kernel
from atomr_native.libraries.tensor.path import Contraction
from atomr_native.libraries.tensor.products import groups_of, route_of

TARGET = Target("sm_90a", 132)


@pytest.mark.parametrize(
    ("modes", "extents", "turns"),
    [((1, 0), (64, 64), True), ((0, 1), (64, 64), False), ((2, 1, 0), (64, 3, 64), True), ((1, 0), (8, 64), False),
     ((1, 0, 2), (64, 64, 4), False)],
)  # fmt: skip
def test_tensors_that_are_dense_along_another_mode_turn_by_tiles(
    modes: tuple[int, ...], extents: tuple[int, ...], turns: bool
) -> None:
    source, target = dense(0, "float32", tuple(range(len(extents))), extents), dense(1, "float32", modes, extents)
    task = Task((source,), (), target, modes, (), "float32", ("float v = x0;",))
    assert (tiled_kernel(task, extents, TARGET) is not None) == turns


@pytest.mark.parametrize(
    ("dtypes", "extents", "strides", "pairs"),
    [
        (("bfloat16", "bfloat16"), (64, 66), (66, 1), True),
        (("bfloat16", "float16"), (64, 66), (66, 1), True),
        (("float32", "float32"), (64, 66), (66, 1), False),
        (("bfloat16", "float32"), (64, 66), (66, 1), False),
        (("bfloat16", "bfloat16"), (64, 65), (66, 1), False),  # the last one has no neighbour
        (("bfloat16", "bfloat16"), (65, 64), (64, 1), False),
        (("bfloat16", "bfloat16"), (64, 66), (67, 1), False),  # every other row begins in the middle of a pair
        (("bfloat16", "bfloat16"), (64, 66), (-66, 1), False),
    ],
)
def test_pairs_turn_where_none_are_cut_apart(
    dtypes: tuple[str, str], extents: tuple[int, int], strides: tuple[int, int], pairs: bool
) -> None:
    source, target = Array(("operand", 0), dtypes[0], (0, 1), strides), dense(1, dtypes[1], (1, 0), extents)
    task = Task((source,), (), target, (1, 0), (), "float32", ("float v = bfloat16_float(x0);",))
    made = tiled_kernel(task, extents, TARGET)
    assert made is not None
    assert ("pair[" in made[0]) == pairs


@pytest.mark.parametrize(
    ("shape", "order"),
    [((8192, 4096), (1, 0)), ((64, 96, 64, 96), (3, 2, 1, 0)), ((32,) * 5, (4, 2, 0, 3, 1)),
     ((2,) * 20, tuple(range(19, -1, -1))), ((16, 16, 16, 16, 24, 24), (5, 4, 3, 2, 1, 0)),
     ((7, 3, 5, 24, 11), (4, 2, 1, 0, 3))],
)  # fmt: skip
def test_tiles_are_full(shape: tuple[int, ...], order: Sequence[int]) -> None:
    """Their sides have enough axes, each once, and begin where the input and the output are dense."""
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    into = [math.prod(shape[i] for i in order[order.index(axis) + 1 :]) for axis in range(len(shape))]
    sides = sides_of(shape, steps, into, 64)
    assert (sides[0][0], sides[1][0]) == (len(shape) - 1, order[-1])
    assert len({*sides[0], *sides[1]}) == len(sides[0]) + len(sides[1])
    sizes = [math.prod(shape[axis] for axis in side) for side in sides]
    assert math.prod(n / (-(-n // 64) * 64) for n in sizes) > 0.75


@pytest.mark.parametrize(
    ("inputs", "output", "copied"),
    [
        (((0, 1, 2, 3), (2, 3, 4, 5)), (0, 1, 4, 5), (False, False, False)),
        (((0, 1, 2, 3), (3, 2, 4, 5)), (0, 1, 4, 5), (False, True, False)),
        (((0, 1, 2), (2, 3)), (0, 3, 1), (False, False, True)),
        (((2, 0, 1), (2, 1, 3)), (2, 0, 3), (False, False, False)),
        (((0, 2, 1), (2, 1, 3)), (0, 2, 3), (False, False, False)),
        (((0, 1), (2, 1)), (2, 0), (False, False, False)),
    ],
)
def test_only_tensors_whose_modes_do_not_merge_are_copied(
    inputs: tuple[tuple[int, ...], ...], output: tuple[int, ...], copied: tuple[bool, ...]
) -> None:
    extents = (4, 6, 5, 7, 8, 3)
    arrays = [dense(i, "float32", modes, extents) for i, modes in enumerate((*inputs, output))]
    groups = groups_of(Contraction((0, 1), inputs, output))
    assert groups is not None
    found = find_product(groups, *arrays, extents, conj=(False, False), dtype="float32")
    assert found.copied == copied


@pytest.mark.parametrize(
    ("inputs", "output", "extents", "copied", "layouts"),
    [
        # A batch of b, whose copies of B would not have b ...
        (((1, 3, 0), (3, 2)), (0, 1, 2), (64, 99, 64, 70), (False, False, False), [(1, 0, 3), (2, 3), (1, 0, 2)]),
        # ... but not of smaller matrices or few, nor where nothing is copied anyway.
        (((1, 3, 0), (3, 2)), (0, 1, 2), (63, 99, 64, 70), (True, False, False), [(0, 1, 3), (2, 3), (0, 1, 2)]),
        (((1, 3, 0), (3, 2)), (0, 1, 2), (64, 95, 64, 70), (True, False, False), [(0, 1, 3), (2, 3), (0, 1, 2)]),
        (((0, 1, 3), (3, 2)), (0, 1, 2), (64, 99, 64, 70), (False, False, False), [(0, 1, 3), (2, 3), (0, 1, 2)]),
    ],
)
def test_rows_of_one_operand_are_a_batch_where_copies_are_saved(
    inputs: tuple[tuple[int, ...], ...], output: tuple[int, ...], extents: tuple[int, ...], copied: tuple[bool, ...],
    layouts: list[tuple[int, ...]],
) -> None:  # fmt: skip
    arrays = [dense(i, "float32", modes, extents) for i, modes in enumerate((*inputs, output))]
    groups = groups_of(Contraction((0, 1), inputs, output))
    assert groups is not None
    found = find_product(groups, *arrays, extents, conj=(False, False), dtype="float32")
    assert (found.copied, [found.layout(which) for which in range(3)]) == (copied, layouts)


def test_a_conjugate_is_copied_unless_it_is_transposed() -> None:
    extents = (30, 40, 50)
    groups = groups_of(Contraction((0, 1), ((0, 1), (1, 2)), (0, 2)))
    assert groups is not None
    b, d = dense(1, "complex64", (1, 2), extents), dense(2, "complex64", (0, 2), extents)
    for modes, copies in (((0, 1), True), ((1, 0), False)):
        a = dense(0, "complex64", modes, extents)
        found = find_product(groups, a, b, d, extents, conj=(True, False), dtype="complex64")
        assert found.copied[0] == copies


def test_routes_are_a_function_of_modes_and_extents() -> None:
    step = Contraction((0, 1), ((0, 1), (1, 2)), (0, 2))
    assert route_of(step, (64, 64, 64), "float32") == "blas_lt"
    assert route_of(step, (64, 64, 64), "float32", "kernel") == "kernel"
    assert route_of(step, (64, 64, 64), "int32") == "kernel"
    assert route_of(step, (64, 1, 64), "float32") == "kernel"
    assert route_of(step, (4, 4, 4), "float32") == "kernel"
    assert route_of(step, (4, 4, 4), "float32", "blas_lt") == "blas_lt"
    assert route_of(step, (4, 0, 4), "float32", "blas_lt") == "kernel"


def test_modes_merge_where_their_strides_do() -> None:
    array = Array(("operand", 0), "float32", (0, 1, 2), (20, 5, 1))
    assert folded(array, (0, 1), (3, 4, 5)) == 5
    assert folded(array, (1, 0), (3, 4, 5)) is None
    assert folded(array, (0,), (1, 4, 5)) == 0
    assert folded(array, (3,), (3, 4, 5, 6)) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=9))
def test_buffers_that_are_used_together_lie_apart(buffers: list[tuple[int, int, int]]) -> None:
    scratch = Scratch("tensor.einsum", 1 << 30)
    uses: list[list[int]] = [[] for _ in range(7)]
    for nbytes, first, last in buffers:
        number = scratch.take(nbytes)
        for step in range(min(first, last), max(first, last) + 1):
            uses[step].append(number)
    for held in uses:
        scratch.add("run", tuple(("workspace", number) for number in held), own=100)
    program = scratch.program(())
    for step, held in zip(program.steps, uses, strict=True):
        spans = sorted((at, at + buffers[number][0]) for (_, at), number in zip(step.operands, held, strict=True))
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert all(start >= 256 and start % 256 == 0 and end <= program.workspace for start, end in spans)
    assert program.workspace <= 256 + sum(-(-nbytes // 256) * 256 for nbytes, *_ in buffers)


@pytest.mark.parametrize(
    ("subscripts", "options", "more"),
    [("ij,jk->ik", {}, 32 << 20), ("ij,jk,kl->il", {}, 0), ("ij,jk->ik", {"memory_limit": 8 * 8 * 4}, 32 << 20),
     ("ij,jk,kl->il", {"memory_limit": 8 * 4, "optimize": "left"}, 0)],
)  # fmt: skip
def test_workspaces_of_libraries_hold_copies_of_tensors(subscripts: str, options: dict[str, Any], more: int) -> None:
    """And 32 MiB besides, where no other step shares the workspace."""
    operands = [np.ones((8, 8), "float32") for _ in subscripts.split(",")]
    spec = an.EinsumRequest(subscripts=subscripts, operands=operands, **options).lowered.spec()
    for most in (1 << 40, 1 << 16):
        builder = Einsum(spec, CudaContext(TARGET, 1 << 10, most_workspace=most))
        nbytes = 2 * 8 * 8 * 4
        assert builder.library_limit(builder.inputs[:2]) == min(nbytes + more, most)
        assert builder.library_limit(builder.inputs[:2], 100) == 100
    assert Einsum(spec, CudaContext(TARGET, 64)).library_limit(builder.inputs[:2]) == 64
