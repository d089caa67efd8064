"""The errors that are made from what a worker says of a failed message."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import atomr_native as an
from atomr_native._lib import sender
from atomr_native.plans.failures import MessageErrors

pytestmark = [pytest.mark.plain, pytest.mark.alike]


@pytest.mark.parametrize(
    ("lib", "name", "rule"), [("cublaslt", "fp8", "cublaslt.fp8"), ("cublaslt", "", ""), ("", "fp8", ""), ("", "", "")]
)
def test_a_refusal_names_its_rule(lib: str, name: str, rule: str) -> None:
    errors = MessageErrors(cast("Any", SimpleNamespace(name="cuda:0")))
    error = errors.base(sender.UNSUPPORTED, 0, lib, name, "not on this device", 0)
    assert isinstance(error, an.Unsupported)
    assert (error.rule, str(error)) == (rule, "not on this device")
