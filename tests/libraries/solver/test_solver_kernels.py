"""The solver's kernels compile for GPUs; NVRTC needs none."""

from __future__ import annotations

from pathlib import Path

import pytest
from solver_checks import DTYPES

from atomr_native.builders.cuda.cubin import compile_cubin
from atomr_native.builders.cuda.prelude import prelude
from atomr_native.libraries.solver.cuda.kernels import source


@pytest.mark.parametrize(("dtype", "arch"), [("float32", "sm_80"), *((dtype, "sm_90a") for dtype in DTYPES)])
def test_kernels_compile(compiler_cache: Path, dtype: str, arch: str) -> None:
    assert compile_cubin(prelude((dtype,), ()) + source(dtype), arch)
