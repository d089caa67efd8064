"""The kernels of sparse operations compile for GPUs; NVRTC needs none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native.builders.cuda.context import CudaContext
from atomr_native.builders.cuda.target import Target
from atomr_native.libraries import builder
from atomr_native.libraries.sparse.combine import CombineRequest
from atomr_native.libraries.sparse.cuda.short_rows import FEWEST, LONGEST
from atomr_native.libraries.sparse.gmres import BasisRequest, SolutionRequest

INT, PLACES = np.arange(3, dtype="i4"), np.zeros(2, "i8")


def requests(dtype: str) -> list[Any]:
    values, x = np.ones(2, dtype), np.ones((2, 3), dtype)
    csr: dict[str, Any] = {"format": "csr", "shape": (2, 2), "values": values, "indices": INT[:2], "offsets": INT}
    blocks = {**csr, "format": "bsr", "values": np.ones((2, 2, 2), dtype), "shape": (4, 4)}
    found: list[Any] = [
        an.SparseProductRequest(**blocks, routine="spmv", x=np.ones(4, dtype), beta=1.0, out=np.ones(4, dtype)),
        an.SparseProductRequest(**csr, routine="spmm", x=x),
        an.SparseProductRequest(**csr, routine="spmm", x=x, trans=True, conj=True, beta=1.0, out=x.copy()),
        an.SparseProductRequest(
            **{**csr, "format": "coo", "offsets": None, "rows": INT[:2], "ordered": True}, routine="spmm", x=x
        ),
        an.SparseProductRequest(
            **{**csr, "format": "coo", "offsets": None, "rows": INT[:2], "ordered": True}, routine="sddmm", x=x, y=x.T
        ),
    ]
    many = {**csr, "shape": (FEWEST, 2), "offsets": np.zeros(FEWEST + 1, "i4"), "longest": LONGEST}
    found += [
        an.SparseProductRequest(**many, routine="spmv", x=x[:, 0], conj=True, beta=1.0, out=np.ones(FEWEST, dtype)),
    ]
    sliced = {**csr, "format": "sliced_ell", "values": values.reshape(1, 2), "indices": INT[:2].reshape(1, 2),
              "offsets": 2 * INT[:2]}  # fmt: skip
    blocked = {"format": "blocked_ell", "shape": (4, 4), "values": np.ones((2, 2, 1, 2), dtype),
               "indices": INT[:2].reshape(2, 1)}  # fmt: skip
    found += [
        an.SparseProductRequest(**sliced, routine="spmm", x=x, conj=True, beta=1.0, out=x.copy()),
        an.SparseProductRequest(**blocked, routine="spmv", x=np.ones(4, dtype)),
    ]
    for routine in ("product", "sum"):
        found.append(CombineRequest(routine=routine, a=values, b=values, left=PLACES, right=PLACES, starts=PLACES))
    if dtype not in ("float16", "bfloat16"):
        bare = {name: part for name, part in csr.items() if name != "format"}
        found += [an.SparseFactorRequest(routine=routine, **bare) for routine in ("ilu0", "ic0")]
        found += [an.SparseSolveRequest(**csr, b=b, lower=lower) for b in (x, x[:, 0]) for lower in (True, False)]
    if dtype in ("float32", "float64"):
        one, three, row = np.ones((), dtype), np.ones((3, 2), dtype), np.ones(3, dtype)
        square = {"triangle": three[:2].copy(), "rest": row, "place": np.zeros((), "i8")}
        found += [
            BasisRequest(**square, w=values, parts=row.copy(), norm=one, basis=three, v=x[0, :2].copy(),
                         rotations=np.ones((2, 2), dtype), left=one.copy()),
            SolutionRequest(**square, weights=row.copy()),
        ]  # fmt: skip
    if not dtype.startswith("complex"):
        del csr["format"]
        found.append(an.SparseSemiringRequest(
            **csr, x=x, add=np.minimum, start=np.inf,
            multiply=lambda a, x: np.where(a > x, a**2, np.hypot(a, np.log1p(x))),
        ))  # fmt: skip
    return found


def test_each_matrix_of_a_batch_has_its_own_turn(compiler_cache: Path) -> None:
    """Turns are numbers of 8 bytes in the workspace."""
    for count, workspace in ((32, 256), (33, 512)):
        batch = {"shape": (2, 2), "values": np.ones((count, 2)), "indices": INT[:2], "offsets": INT}
        for request in (
            an.SparseFactorRequest(routine="ilu0", **batch),
            an.SparseSolveRequest(format="csr", b=np.ones((count, 2)), **batch),
        ):
            build = builder(request.lowered.op, "cuda")
            assert build is not None
            assert build(request.lowered.spec(), CudaContext(Target("sm_90a"))).workspace == workspace


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_kernels_compile(compiler_cache: Path, dtype: str) -> None:
    context = CudaContext(Target("sm_90a"))
    for request in requests(dtype):
        spec = request.lowered.spec()
        build = builder(spec.op, "cuda")
        assert build is not None
        assert build(spec, context).run.cubin.startswith(b"\x7fELF"), spec.op
