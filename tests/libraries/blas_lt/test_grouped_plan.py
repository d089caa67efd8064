"""How a group becomes native plans, against the emulated library."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_emulate import Emulator
from lt_emulator import Address, Prepared, Rig
from plan_builds import received

from atomr_native.builders.cuda.addresses import address_bytes
from atomr_native.builders.cuda.target import Target
from atomr_native.errors import Unsupported
from atomr_native.libraries.blas_lt.cuda.grouped import GroupDescription, grouped_program
from atomr_native.libraries.blas_lt.grouped import GroupedRequest

ALIKE = ((16, 32, 48),) * 5
UNLIKE = ((16, 8, 32), (48, 24, 16), (48, 24, 16), (5, 8, 7), (64, 16, 128))


SHAPES = {"a": (0, 2), "b": (2, 1), "c": (0, 1)}


def operands(seed: int, extents: tuple[tuple[int, int, int], ...]) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {n: [rng.standard_normal((e[i], e[j])).astype(np.float32) for e in extents] for n, (i, j) in SHAPES.items()}


def program(rig: Rig, arrays: dict[str, list[np.ndarray]], **options: Any) -> Any:
    way = options.pop("way", "batched")
    request = GroupedRequest(a=arrays["a"], b=arrays["b"], out=arrays["c"], way=way)

    def refuse(description: GroupDescription) -> Any:
        raise Unsupported("no cuBLAS here")

    spec = received(request.lowered.spec())
    prepare = options.pop("prepare", lambda description: Prepared(rig, description))
    return grouped_program(
        spec, Target("sm_90a"), version=130102, prepare=prepare, group=options.pop("group", refuse), **options
    )


@pytest.mark.usefixtures("no_compiler")
def test_the_plan_chooses_by_the_alignment_of_all_members(rig: Rig, emulator: Emulator) -> None:
    count, space = 33, np.zeros(1 << 20, np.uint8)  # more addresses than one unit of alignment holds
    base = -(-space.ctypes.data // 256) * 256 - space.ctypes.data
    given = operands(3, ((8, 8, 16),) * count)
    at = base
    for name in "abc":
        for i, x in enumerate(given[name]):
            given[name][i] = np.ndarray(x.shape, x.dtype, space.data, at)
            given[name][i][...] = x
            at += -(-x.nbytes // 256) * 256 + (16 if (name, i) == ("b", count - 1) else 0)
    made = program(rig, given)
    write, multiply = made.steps
    assert made.workspace >= multiply.run.workspace + 4 * address_bytes(count)
    scratch = np.zeros(made.workspace + 256, np.uint8)
    start = -(-scratch.ctypes.data // 256) * 256
    flat = [x.ctypes.data for triple in zip(given["a"], given["b"], given["c"], strict=True) for x in triple]
    assert list(multiply.operands) == list(write.operands)
    places = [flat[v] if kind == "operand" else start + v for kind, v in multiply.operands]
    emulator.run(write.run, tuple(map(Address, places)))
    want = [x @ y for x, y in zip(given["a"], given["b"], strict=True)]
    assert rig.run(multiply.run.plan, places, (1.0, 0.0), (start, made.workspace)) == 0, rig.failure.text
    for x, y in zip(given["c"], want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
    record = rig.records[-1]
    assert (record.d.mode, record.d.count, record.algo) == (1, count, 16)  # not 256, for one member's sake
    rig.delete(multiply.run.plan)


@pytest.mark.usefixtures("no_compiler")
def test_an_older_library_has_no_arrays_of_addresses(rig: Rig) -> None:
    given = operands(4, ALIKE)
    knob = rig.knob("fake_pointer_arrays", ctypes.c_int)
    knob.value = 0
    try:
        with pytest.raises(Unsupported, match="not supported"):
            program(rig, given)
        made = program(rig, given, way="auto")
    finally:
        knob.value = 1
    assert "not grouped: no cuBLAS here" in made.notes[0]
    assert len(made.steps) == 5
    for step in made.steps:
        rig.delete(step.run.plan)


@pytest.mark.usefixtures("no_compiler")
def test_a_malformed_plan_is_refused(rig: Rig) -> None:
    seen: list[Any] = []

    def prepare(description: Any) -> Any:
        seen.append(description)
        raise Unsupported("stop")

    with pytest.raises(Unsupported, match="stop"):
        program(rig, operands(5, ALIKE), prepare=prepare)
    good = seen[0]
    for change in (
        {"batch": 1}, {"a": 12}, {"pointers": 99}, {"batch": 99}, {"bias": 2}, {"members": 0}, {"members": 2},
        {"members": 99, "batch": 99}, {"apart": -16},
    ):  # fmt: skip
        assert rig.new(replace(good, **change))[0] != 0
        assert b"malformed" in rig.failure.text


@pytest.mark.usefixtures("no_compiler")
def test_members_that_are_alike_make_one_group(rig: Rig) -> None:
    seen: list[GroupDescription] = []

    def group(description: GroupDescription) -> Any:
        seen.append(description)
        return object()

    made = program(rig, operands(6, UNLIKE), way="grouped", group=group, workspace_bytes=1 << 20)
    description = seen[0]
    assert [g.members for g in description.groups] == [1, 2, 1, 1]
    assert (description.fields()["n_members"], description.fields()["n_groups"]) == (5, 4)
    assert made.workspace <= 1 << 20
    assert description.workspace % 256 == 0


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(("k", "grouped"), [(1 << 12, True), (1 << 13, False)])
def test_large_members_are_computed_apart_unless_one_asks(rig: Rig, k: int, grouped: bool) -> None:
    sizes = ((512, 512, k), (512, 1024, k))
    given = {name: [np.zeros((e[i], e[j]), np.float32) for e in sizes] for name, (i, j) in SHAPES.items()}
    made = program(rig, given, way="auto", group=lambda _: object())
    assert len(made.steps) == 2
    assert ("GroupedBatchedEx" in made.notes[0]) is grouped
    if not grouped:
        assert "one after the other" in made.notes[0]
        assert "not grouped: products of 6 GFLOP" in made.notes[0]
        for step in made.steps:
            rig.delete(step.run.plan)
        assert "GroupedBatchedEx" in program(rig, given, way="grouped", group=lambda _: object()).notes[0]
