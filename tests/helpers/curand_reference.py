"""The host generators of the real cuRAND, called without this project's code."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import pytest
from cuda_wheels import find

__all__ = ["ENGINES", "drawn", "library"]

#: ``curandRngType_t`` of each engine.
ENGINES = {
    "xorwow": 101, "mrg32k3a": 121, "mtgp32": 141, "mt19937": 142, "sobol32": 201, "scrambled_sobol32": 202,
    "sobol64": 203, "scrambled_sobol64": 204,
}  # fmt: skip
#: ``curandOrdering_t``.
_ORDERINGS = {"best": 100, "default": 101, "seeded": 102, "legacy": 103}
_REALS = {"float32": ctypes.c_float, "float64": ctypes.c_double}


@functools.cache
def library() -> Any:
    """Return the library, or skip."""
    found = find("libcurand.so.10")
    if not found:
        pytest.skip("libcurand not found; pip install nvidia-curand, or set ATOMR_NATIVE_CUDA_WHEELS")
    return ctypes.CDLL(str(found[0]))


def drawn(
    engine: str, kind: str, n: int, dtype: str, parameters: tuple[float, ...] = (), *, seed: int = 0, offset: int = 0,
    dimensions: int = 1, ordering: str = "default",
) -> np.ndarray:  # fmt: skip
    """Return numbers of a generator that is made for them; `parameters` are those that cuRAND takes."""
    curand, generator = library(), ctypes.c_void_p()
    out = np.zeros(n, dtype)
    name = {"integers": "LongLong" if dtype == "uint64" else "", "lognormal": "LogNormal"}.get(kind, kind.capitalize())
    name += "Double" if dtype == "float64" else ""
    real = ctypes.c_double if kind == "poisson" else _REALS.get(dtype, ctypes.c_double)
    assert curand.curandCreateGeneratorHost(ctypes.byref(generator), ENGINES[engine]) == 0
    if engine.endswith(("32", "64")) and "sobol" in engine:
        assert curand.curandSetQuasiRandomGeneratorDimensions(generator, dimensions) == 0
    else:
        assert curand.curandSetGeneratorOrdering(generator, _ORDERINGS[ordering]) == 0
        assert curand.curandSetPseudoRandomGeneratorSeed(generator, ctypes.c_ulonglong(seed)) == 0
    if offset:
        assert curand.curandSetGeneratorOffset(generator, ctypes.c_ulonglong(offset)) == 0
    where = out.ctypes.data_as(ctypes.c_void_p)
    given = [real(value) for value in parameters]
    status = getattr(curand, f"curandGenerate{name}")(generator, where, ctypes.c_size_t(n), *given)
    assert curand.curandDestroyGenerator(generator) == 0
    assert status == 0
    return out
