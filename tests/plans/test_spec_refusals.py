"""What a worker refuses of a plan's specification, as a typed error that names the field."""

from __future__ import annotations

from typing import Any

import pytest

import atomr_native as an
from atomr_native.protocol.binaries import KeptBinaries
from atomr_native.worker.build import specification

NOOP: dict[str, Any] = an.PlanSpec("noop", ()).to_json()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (NOOP | {"speed": 1}, "'speed'"),
        ({name: value for name, value in NOOP.items() if name != "op"}, "lacks the field 'op'"),
        ({name: value for name, value in NOOP.items() if name != "operands"}, "'operands'"),
    ],
)
def test_unknown_and_missing_fields(spec: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        specification(spec, KeptBinaries().find)
