"""Each operation of every library, recorded, and replayed with other arrays and numbers, has its messages' bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from placements import Placement
from recorded_cases import Case, case, of_libraries, values

import atomr_native as an
from atomr_native.libraries import OPERATIONS, find_operation

#: Operations that no recording holds; `test_recording_refusals` says so of those that users can reach.
NEVER = {
    "noop", "quarantined", "test.*", "memory.workspace", "group.commit", "group.restore", "program.replay",
    *(name for name in OPERATIONS if name.startswith("collective.")),
}  # fmt: skip
MEMORY: dict[str, Case] = {
    "copy": case(lambda d, _, x, y: d.copy(x.T, out=y), "x y"),
    "fill": case(lambda d, _, x, value: x[::2].fill(value), "x", value=(2.0, 3.0)),
}
#: Cases by library and name.
CASES: dict[str, Case] = {
    **{f"memory, {name}": one for name, one in MEMORY.items()},
    **{f"{library}, {name}": one for library, module in of_libraries().items() for name, one in module.CASES.items()},
}


def named(what: str) -> set[str]:
    """Return the cases that the libraries name."""
    return {f"{library}, {name}" for library, module in of_libraries().items() for name in getattr(module, what, ())}


def marked(name: str) -> Any:
    """Return a case as a parameter, with its marks."""
    library, _, own = name.partition(", ")
    marks = getattr(of_libraries().get(library), "MARKS", {})
    return pytest.param(name, marks=marks.get(own, ()))


def flat(found: Any) -> list[an.GpuRef]:
    """Return the arrays of a result."""
    if isinstance(found, an.GpuRef):
        return [found]
    parts = found.values() if isinstance(found, dict) else found
    return [ref for part in parts for ref in flat(part)] if isinstance(parts, Iterable) else []


def results(found: Any, arrays: list[an.GpuRef]) -> list[an.GpuRef]:
    """Return the arrays of a result but for those that lie in given ones, which are compared anyway."""
    given = [array.allocation for array in arrays]
    return [ref for ref in flat(found) if ref.allocation not in given]


def record(device: an.Device, one: Case, kept: Any, arrays: list[an.GpuRef]) -> tuple[an.RecordedPlan, list[an.GpuRef]]:
    """Return the plan of a case, with all its arrays and numbers as parameters, and its results."""
    with device.record() as g:
        given = [g.operand(f"array{i}", array) for i, array in enumerate(arrays)]
        numbers = {name: g.scalar(name, several[0]) for name, several in one.numbers}
        found = results(one.call(device, kept, *given, **numbers), given)
    return g.plan, found


def put(device: an.Device, one: Case, seed: int) -> list[an.GpuRef]:
    return [device.put(values(name, 10 * i + seed)) for i, name in enumerate(one.arrays.split())]


@pytest.fixture(scope="module")
def device(worker_process: Placement) -> Iterator[an.Device]:
    with worker_process.system(standby="off") as system:
        yield system.device()


@pytest.mark.fake_only(name=[name for name in CASES if name not in named("NOT_ON_FAKE")])
@pytest.mark.parametrize("name", list(map(marked, CASES)))
def test_an_operation(device: an.Device, name: str) -> None:
    one = CASES[name]
    kept, twin = one.prepare(device), one.prepare(device)
    pairs = [[put(device, one, seed) for seed in range(2)] for _ in range(2)]
    plan, found = record(device, one, kept, pairs[0][0])
    assert found or pairs[0][0]
    for turn in (0, 0, 1, 1, 0):
        numbers = {name: several[turn] for name, several in one.numbers}
        arrays, twins = (side[turn] for side in pairs)
        wanted = results(one.call(device, twin, *twins, **numbers), twins)
        plan.ask(**{f"array{i}": array for i, array in enumerate(arrays)}, **numbers).result(60)
        for got, want in zip(found + arrays + flat(kept), wanted + twins + flat(twin), strict=True):
            np.testing.assert_array_equal(got.numpy(), want.numpy())
    if device.kind == "cuda":
        late = any("reports failures by a word" in note for note in plan.notes)
        assert name in named("STEPWISE") or plan.replays.launched == (0 if late else 4), plan.notes


def test_every_operation_has_a_case() -> None:
    """A library that joins, and an operation that is added, is recorded here, too."""
    seen = set()
    with an.System(isolation="thread", standby="off") as system:
        device = system.device("host")
        for one in CASES.values():
            plan, _ = record(device, one, one.prepare(device), put(device, one, 0))
            seen |= {find_operation(step.operation).name for step in plan.steps if not step.bodies}
    never = NEVER.union(*(getattr(module, "NEVER", ()) for module in of_libraries().values()))
    lacking = sorted(set(OPERATIONS) - seen - never)
    assert not lacking, f"no case of {lacking}: add one to tests/libraries/<name>/recorded_cases.py"
    assert not seen & never
