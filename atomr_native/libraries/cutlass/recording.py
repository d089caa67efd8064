"""Recordings of the plans that a program compiles kernels for, to compile them ahead of time elsewhere."""

from __future__ import annotations

import base64
import json
import os
from types import FunctionType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...plans.spec import PlanSpec
    from .attributes import GemmAttributes

__all__ = ["VARIABLE", "record"]

#: Names the file, to which each plan is appended as a line of JSON.
VARIABLE: Final = "ATOMR_NATIVE_CUTLASS_RECORD"


def record(spec: PlanSpec[GemmAttributes], functions: tuple[FunctionType, ...]) -> None:
    """Append a plan to the recording, if the environment names one."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    codes = [base64.b64encode(_pickled(function)).decode("ascii") for function in functions]
    line = json.dumps({"spec": spec.to_json(), "functions": codes}) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, line.encode())  # at once: other threads and programs append, too
    finally:
        os.close(file)


def _pickled(function: FunctionType) -> bytes:
    from ...compile.linker import pickled  # needs Numba, which plans without functions do not

    return pickled(function)
