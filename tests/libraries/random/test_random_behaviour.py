"""The table of waits, capture and failures: its data beside the documentation, and beside recorded programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries.random.behaviour import BEHAVIOUR, ENGINE

pytestmark = [pytest.mark.plain, pytest.mark.alike]
TEXT = (Path(__file__).resolve().parents[3] / "docs" / "libraries" / "random.md").read_text(encoding="utf-8")
CAPTURED = {"always": "yes", "numbers": "yes", "never": "no"}


def test_the_documentation_has_the_table() -> None:
    section = TEXT.partition("## What messages do")[2]
    rows = [[cell.strip() for cell in line.split("|")] for line in section.splitlines() if line.startswith("| ")][2:]
    plain, arrays, engines, *others = rows
    numbers = {name for name, found in BEHAVIOUR.items() if found.captured == "numbers"}
    assert set(re.findall(r"`(\w+)`", plain[1])) == numbers
    assert (plain[3][:3], plain[5], arrays[3][:2]) == ("yes", "no", "no")
    assert (engines[1], engines[3][:2]) == ("numbers of a `CurandEngine`", CAPTURED[ENGINE.captured])
    for _, named, waits, captured, deterministic, fails, _ in rows:
        assert (waits[:2], deterministic[:3]) == ("no", "yes"), named
        if named in (row[1] for row in others):
            for name in re.findall(r"`(\w+)`", named):
                numbers.add(name)
                assert captured.startswith(CAPTURED[BEHAVIOUR[name].captured]), name
                assert (fails != "no") == BEHAVIOUR[name].fails, name
    assert numbers == set(BEHAVIOUR)


def test_every_method_has_a_row() -> None:
    public = {name for name in dir(an.Random) if not name.startswith("_")}
    assert public - {"ask", "plan", "tell"} == set(BEHAVIOUR)


def sends(device: an.Device) -> dict[str, tuple[Callable[[], object], str]]:
    """Return messages of each kind, with whether a program has them in its graph."""
    random, x = device.random, device.put(np.ones(4))
    made: dict[str, tuple[Callable[[], object], str]] = {
        name: (lambda name=name: getattr(random, name)(4, seed=1), "yes")
        for name, found in BEHAVIOUR.items()
        if found.captured == "numbers"
    }
    return made | {
        "array": (lambda: random.normal(mean=x, seed=1), "no"),
        "discrete": (lambda: random.discrete(x, 4, seed=1), "no"),
        "permutation": (lambda: random.permutation(4, seed=1), "yes"),
        "shuffle": (lambda: random.shuffle(x, seed=1), "yes"),
    }


@pytest.mark.parametrize("place", ["host", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_programs_have_what_the_table_says(place: str) -> None:
    with an.System(standby="off") as system:
        device = system.device(place)
        for name, (send, captured) in sends(device).items():
            with device.record() as g:
                send()
            g.plan.wait(60)
            notes = " ".join(g.plan.notes)
            assert ("not as a CUDA graph" in notes) == (captured == "no" and place != "host"), name
