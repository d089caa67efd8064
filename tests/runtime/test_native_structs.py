"""Structs of C that Python fills in by the names of their members: a name too few or too many is refused."""

from __future__ import annotations

import fake_cuda
import scripts

PROGRAM = """
from dataclasses import replace
import numpy as np
from atomr_native._lib.cublas import Blas, Grouped
from atomr_native._lib.cublaslt import Matmul
from atomr_native._lib.cusolver import Decomposition, Solver, Verdict
from atomr_native._lib.cuda import CudaBackend
from atomr_native._lib.cudss import DirectPhase, DirectSolver
from atomr_native._lib.cusparse import SparseProduct
from atomr_native._lib.cusparselt import StructuredProduct
from atomr_native._lib.cutensor import TensorOperation
from atomr_native._lib.cufft import Transform
from atomr_native.errors import InvalidRequest
from atomr_native.libraries.blas.cuda import blas_call
from atomr_native.libraries.blas.request import BlasRequest
from atomr_native.libraries.blas_lt.cuda.description import matmul_description
from atomr_native.libraries.blas_lt.cuda.grouped import GroupDescription, MemberGroup
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.fft.cuda.build import describe_call
from atomr_native.libraries.fft.cuda.planner import plan_steps
from atomr_native.libraries.fft.request import FftRequest
from atomr_native.libraries.sparse.cuda.native import PatternCall, PhaseCall
from atomr_native.libraries.sparse.cuda.products import sparse_call
from atomr_native.libraries.sparse.cuda.structured import Fused, structured_call
from atomr_native.libraries.sparse.request import SparseProductRequest
from atomr_native.libraries.sparse.structured.matrix import compressed_bytes
from atomr_native.libraries.sparse.structured.request import StructuredProductRequest
from atomr_native.libraries.tensor.cuda import cutensor
from atomr_native.libraries.tensor.cuda.arrays import Array
from atomr_native.libraries.solver.cuda.native import DecompositionCall, SolverCall, SolverVerdict

class Given:
    def __init__(self, good, **changed):
        self.good, self.changed = good, changed
        self.groups = getattr(good, "groups", ())
        self.operation = getattr(good, "operation", "")
    def fields(self):
        changed = self.good.fields() | self.changed
        return {name: value for name, value in changed.items() if value is not None}

def refused(make, *given):
    try:
        make(backend, *given)
    except InvalidRequest as error:
        return str(error)
    raise AssertionError("it was taken")

backend = CudaBackend(0)
x = np.ones((4, 4), np.float32)
spec = MatmulRequest(a=x, b=x).lowered.spec()
matmul = matmul_description(spec, version=130102, workspace_bytes=32 << 20)
call = blas_call(BlasRequest(routine="gemm", a=x, b=x).lowered.spec())
group = MemberGroup(0, 0, 4, 4, 4, 4, 4, 4, members=2)
groups = GroupDescription((group,), 0, 68, 2, 2, 0)
(transform,) = plan_steps(FftRequest(transform="rfft", x=x).lowered.spec()).steps
transform = describe_call(transform, 0)
plans = ((Matmul, matmul, "a matmul"), (Blas, call, "a call of cuBLAS"), (Grouped, groups, "products"),
         (Transform, transform, "a transform"))
for make, good, title in plans:
    make(backend, Given(good))
    name = "n_scalars" if make is not Transform else "n_operands"
    said = refused(make, Given(good, **{name: None}))
    assert said.startswith(title) and f"missing ['{name}'], unknown nothing; its members are" in said, said
    said = refused(make, Given(good, **{name: None, name[:-1]: 2}))
    assert f"missing ['{name}'], unknown ['{name[:-1]}']" in said, said
    said = refused(make, Given(good, more=1))
    assert "missing nothing, unknown ['more']" in said, said
assert "step has 2 numbers instead of 3" in refused(Blas, Given(call, step=(1, 2)))
assert "malformed" in refused(Blas, Given(call, scratch=1))
for wrong in ({"rank": 4}, {"batch": 0}, {"n": (4, 0, 4)}, {"alignment": 12}, {"scratch": 1}, {"loop": (0, 1)},
              {"input": 2}, {"dist_out": 0}, {"step_in": (-4, 0)}):
    assert "malformed" in refused(Transform, Given(transform, **wrong)), wrong

places = dict(a=0, b=1, pivots=2, info=3, n_operands=4)
solve = SolverCall(routine=3, type=1, m=4, n=4, k=1, step=(4, 4), batch=1, jump=(0, 0), **places)
Solver(backend, Given(solve))
assert "missing ['routine']" in refused(Solver, Given(solve, routine=None))
wrong_places = {"a": 4}, {"pivots": -1}, {"info": -1}
for wrong in (*wrong_places, {"routine": 4}, {"type": 4}, {"batch": 0}, {"m": -1}, {"jump": (0, -8)}):
    assert "malformed" in refused(Solver, Given(solve, **wrong)), wrong
arrays = [Array(("operand", i), "float32", (0, 1), (4, 1)) for i in range(4)]
cutensor.open_library()
product = cutensor.tensor_call("CONTRACT", arrays, (4, 4), compute=cutensor.compute_of("float32"), limit=1 << 20)
TensorOperation(backend, product)
assert "missing ['operation']" in refused(TensorOperation, Given(product, operation=None))
for wrong in ({"operation": 6}, {"compute": 9}, {"n_modes": 65}, {"count": (3, 0, 0, 0, 0)},
              {"operand": (4, 0, 0, 0, 0)}, {"factor": (0, -1, -1, -1, -1, -1)},
              {"workspace_bytes": -1}, {"offset": (-1, 0, 0, 0, 0)}):
    assert "malformed" in refused(TensorOperation, Given(product, **wrong)), wrong
verdict = SolverVerdict(kind=1, form=0, axes=1, extents=(3,) + (1,) * 7, operation="solver.inv")
Verdict(backend, verdict)
for wrong in ({"kind": 4}, {"axes": 9}, {"form": 2}, {"extents": (0,) * 8}):
    assert "malformed" in refused(Verdict, Given(verdict, **wrong)), wrong

svd = DecompositionCall(routine=3, type=1, job=83, m=4, n=3, a=0, values=1, b=2, c=3, info=4, scratch=5, step=(4, 4, 3),
                        batch=1, jump=(0,) * 4, n_operands=6)
Decomposition(backend, Given(svd))
assert "missing ['values']" in refused(Decomposition, Given(svd, values=None))
for wrong in ({"routine": 11}, {"type": 4}, {"a": 6}, {"b": -1}, {"scratch": -1}, {"n": 5}, {"batch": 0}, {"m": -1},
              {"group": 0}, {"group": 2}):
    assert "malformed" in refused(Decomposition, Given(svd, **wrong)), wrong
assert "malformed" in refused(Decomposition, Given(svd, routine=1, m=2**31)), wrong

whole = np.zeros(2, np.int32), np.ones(1, np.int32)
request = SparseProductRequest(routine="spmv", format="csr", shape=(1, 4), values=np.ones(1, np.float32),
                               indices=whole[1], offsets=whole[0], x=x[0])
product = sparse_call(request.lowered.spec())
SparseProduct(backend, Given(product))
assert "missing ['nnz']" in refused(SparseProduct, Given(product, nnz=None))
for wrong in ({"routine": 3}, {"format": 2}, {"values": 5}, {"x": -1}, {"y": -1}, {"rows": 0}, {"scratch": 1},
              {"factor": (2, 1, -1, -1)}, {"factor_at": (0, -1)}):
    assert "malformed" in refused(SparseProduct, Given(product, **wrong)), wrong
half = np.zeros((32, 32), np.float16)
request = StructuredProductRequest(compressed=np.zeros(compressed_bytes((32, 32), "float16"), np.uint8),
                                   shape=(32, 32), dtype="float16", x=half)
product = structured_call(request.lowered.spec(), Fused(), 1 << 20)
StructuredProduct(backend, Given(product))
assert "missing ['turned_b']" in refused(StructuredProduct, Given(product, turned_b=None))
for wrong in ({"routine": 2}, {"m": 0}, {"a": 3}, {"d": -1}, {"bias": 3}, {"alpha": 2}, {"scratch": 1},
              {"compressed_bytes": 0}, {"configuration": -2}, {"workspace_bytes": -1}):
    assert "malformed" in refused(StructuredProduct, Given(product, **wrong)), wrong
pattern = PatternCall(n=2, nnz=3, batch=1, value_type=0, index_type=10, kind=0, view=0, deterministic=0, columns=4)
phase = PhaseCall(phase=3, columns=1, check=0, bytes=256, more=256)
solver = DirectSolver(backend, Given(pattern))
DirectPhase(backend, solver, Given(phase))
assert "missing ['nnz']" in refused(DirectSolver, Given(pattern, nnz=None))
assert "missing ['check']" in refused(DirectPhase, solver, Given(phase, check=None))
for wrong in ({"n": 0}, {"batch": 0}, {"kind": 5}, {"view": -1}, {"columns": 0}):
    assert "malformed" in refused(DirectSolver, Given(pattern, **wrong)), wrong
for wrong in ({"phase": 4}, {"columns": 5}, {"columns": 0}, {"bytes": 0}, {"more": -1}):
    assert "malformed" in refused(DirectPhase, solver, Given(phase, **wrong)), wrong

class Misspelt:
    def fields(self):
        return {"transa" if name == "trans_a" else name: value for name, value in group.fields().items()}

wrong = Given(groups)
wrong.groups = (Misspelt(),)
assert "missing ['trans_a'], unknown ['transa']" in refused(Grouped, wrong)
wrong.groups = (group, group)
assert "2 groups instead of 1" in refused(Grouped, wrong)
"""


def test_members_go_by_name(fake_environment: dict[str, str]) -> None:
    with fake_cuda.using(fake_environment):
        scripts.run(PROGRAM)
