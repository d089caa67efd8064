"""Each promise of `promises.toml` is in its page, and the tests that prove it exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atomr_native as an

ROOT = Path(__file__).resolve().parents[2]
PROMISES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "promises.toml").read_text())["promise"]

pytestmark = pytest.mark.plain


def words(text: str) -> str:
    return " ".join(text.split()).lower()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise["text"][:40])
def test_a_promise_is_made_and_proved(promise: dict[str, Any]) -> None:
    assert words(promise["text"]) in words((ROOT / promise["page"]).read_text())
    assert promise["tests"]
    for test in promise["tests"]:
        file, name = test.split("::")
        assert re.search(rf"^ *(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test


def test_a_told_message_allocates_nothing() -> None:
    with an.System(standby="off") as system:
        dev = system.device("host")
        x = dev.put(np.ones((4, 4), np.float32))
        y = dev.empty((4, 4), "float32")
        plan = dev.blas_lt.plan(x, x)
        plan.ask(x, x, out=y).result(60)

        def allocations() -> tuple[int, ...]:
            pools = dev.stats()["memory"]["pools"].values()
            return tuple(pool["in_use"] for pool in pools)

        before = allocations()
        for _ in range(100):
            plan.tell(x, x, out=y)
        assert allocations() == before
        y.wait()
        assert (y.numpy() == 4).all()
