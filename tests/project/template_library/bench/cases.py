"""Blends on the host device: cost to the caller."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.harness import Case, Setup
from bench.harness.calls import Operation, add_calls

__all__ = ["CASES"]


def _mix(dev: Any) -> Operation:
    import atomr_native as an

    x, y, out = (dev.zeros((1024,), "float32") for _ in range(3))
    plan = dev.blend.plan(an.MixRequest(x=x, y=y, weight=0.5, out=out))
    return Operation(plan, {"x": x, "y": y, "out": out}, partial(dev.blend.mix, x, y, 0.5, out=out), out)


def host(setup: Setup) -> None:
    """A weighted mean of 1024 float32 on the host device: told, called, asked and sustained."""
    add_calls(setup, "mix, 1024", _mix)


CASES = (Case("blend", "Weighted means", host),)
