"""Specifications of every operation, as the parent sends them: the worker takes these, and refuses them once malformed.

Messages of all libraries to a host device in this process are recorded where the worker decodes them.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import re
from typing import Any

import msgspec
import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries import OPERATIONS, find_operation
from atomr_native.libraries._contract import FREE
from atomr_native.protocol.binaries import KeptBinaries
from atomr_native.worker import requests
from atomr_native.worker.build import specification

NUMBA = importlib.util.find_spec("numba_cuda") is not None
#: Operations with functions that Numba takes apart.
_COMPILED = ("fft.mapped", "kernel.*", "sparse.semiring_compiled")
#: Operations that no public call of a host device reaches.
UNREACHED = {"quarantined", "test.*", "collective.window", *(() if NUMBA else _COMPILED)}


def send_collectives(device: an.Device) -> None:
    """Send a message of each collective, and a copy between devices."""
    other = device.system.device("host:1")
    comm, arrays = device.system.communicator([device, other]), [d.put([1.0, 2.0]) for d in (device, other)]
    for send in (comm.all_reduce, comm.reduce, comm.reduce_scatter, comm.all_gather, comm.gather, comm.all_to_all):
        send(arrays)
    comm.broadcast(arrays[0])
    comm.scatter(arrays[0])
    comm.send(arrays[0], 1)
    other.copy(arrays[0])
    with comm.group():
        comm.all_reduce(arrays)
        comm.broadcast(arrays[0])
    comm.barrier().result(30)


def send_everything(device: an.Device) -> None:
    """Send at least one message of each operation."""
    rng = np.random.default_rng(5)
    x, y = (device.put(rng.standard_normal((8, 8), dtype=np.float32)) for _ in range(2))
    row, labels = device.put(np.ones(8, np.float32)), device.put(np.arange(8))
    device.full((3,), 2.0)
    device.copy(y)
    lt, blas, fused = device.blas_lt, device.blas, device.fused
    lt.matmul(x, y, epilogue="bias", bias=row, alpha=2.0)
    lt.grouped([x, y], [y, x])
    blas.axpy(row, device.copy(row), alpha=2.0)
    blas.trsm(x, y)
    device.elementwise.run("maximum(x, 0) + b * s", x=x, b=row, s=2.0)
    device.elementwise.reduce("sum", x, axis=0)
    device.elementwise.softmax_cross_entropy(x, labels)
    x.take(labels, axis=0)
    device.arange(3)
    q = device.float8.quantize(x)
    device.float8.dequantize(*q[:2])
    fused.silu(x)
    fused.silu_backward(x, y)
    fused.dropout(x, 0.5, seed=1)
    norm = fused.rms_norm(x, row)
    fused.rms_norm_backward(norm, x, row)
    m, v = (device.zeros((8,), "float32") for _ in range(2))
    fused.adamw(row, device.copy(row), m=m, v=v, step=1)
    fused.sgd_momentum(row, device.copy(row), m)
    fused.adamw([row], [device.copy(row)], [m], [v], step=2)
    fused.sgd_momentum({"row": row}, {"row": device.copy(row)}, {"row": m})
    fused.rope(device.put(np.ones((1, 8, 2, 8), np.float32)), device.put(np.arange(8)))
    device.fft.half("fft", device.zeros((8, 2), "float16"))
    device.random.normal(8, seed=1)
    device.random.permutation(8, seed=1)
    device.random.uniform(8, engine="curand_sobol32")
    device.random.discrete([1.0, 2.0], 8, seed=1)
    xp = device.zeros(4).__array_namespace__()
    xp.sort(device.zeros(4))
    xp.cumulative_sum(device.zeros(4))
    xp.searchsorted(device.zeros(4), device.zeros(2))
    device.fft.irfft2(device.fft.rfft2(device.zeros((4, 6), "float32")), overwrite=True)
    device.fft.fftshift(x)
    device.fft.dct(x)
    signal = device.zeros(64, "float32")
    device.fft.istft(device.fft.stft(signal, 16), 16)
    device.cudnn.softmax(x)
    steps, weights = device.zeros((2, 1, 1), "float32"), device.zeros((4,), "float32")
    ones = device.put(np.ones(1, np.int32))
    device.cudnn.ctc_loss(device.zeros((3, 1, 2), "float32"), ones.reshape(1, 1), ones, ones)
    network = device.cudnn.rnn("tanh", steps, weights, hidden=1, lengths=(2,), training=True)
    device.cudnn.rnn_backward("tanh", steps, weights, network[0], steps, network[2], hidden=1, lengths=(2,))
    device.cudnn.convolution(device.zeros((1, 2, 4, 4), "float32"), device.zeros((2, 2, 3, 3), "float32"), row[:2])
    q, ends = device.zeros((1, 2, 4, 8), "float16"), device.put(np.array([3], "int32"))
    kept = device.cudnn.attention(q, q, q, statistics=True, q_lengths=ends, kv_lengths=ends)
    device.cudnn.attention_backward(q, q, q, *kept, q, q_lengths=ends, kv_lengths=ends)
    device.cutlass.gemm(
        x, y, epilogue="pre = acc + row; out = relu(pre)", operands={"row": row}, outputs={"pre": "float32"}
    )
    device.cutlass.convolution(device.zeros((1, 4, 4, 8), "float32"), device.zeros((8, 3, 3, 8), "float32"))
    device.cutlass.grouped_gemm(x, device.zeros((2, x.shape[1], 2), x.dtype), device.put(np.array([1, 2], "int32")))
    square = device.put(np.eye(3))
    device.solver.solve(square, device.put(np.ones(3)))
    device.solver.qr(square)
    device.solver.qr_multiply(*device.solver.qr_factor(square), device.put(np.eye(3)))
    device.solver.svd(square)
    device.solver.svdvals(square)
    device.solver.eigh(square)
    device.solver.eigvalsh(square)
    device.solver.eig(square)
    device.solver.eigvals(square)
    device.solver.tell(an.EigenRangeRequest(a=square, subset_by_value=(0.0, 2.0)))
    device.solver.solve_refined(square, device.put(np.ones(3)), factor="tf32")
    triangle = device.sparse.matrix(np.tril(np.ones((3, 3))))
    device.sparse.spmv(triangle, device.put(np.ones(3)))
    device.sparse.spmm(triangle, square)
    device.sparse.sddmm(triangle, square, square)
    device.sparse.solve_triangular(triangle, square)
    device.sparse.matmul(triangle, triangle)
    device.sparse.semiring(triangle, device.put(np.ones(3)), multiply=np.add, add=np.minimum, start=1e9)
    device.sparse.add(triangle, triangle)
    device.sparse.ilu0(triangle)
    device.sparse.ic0(triangle)
    solver = device.sparse.direct(triangle)
    solver.factor()
    solver.solve(device.put(np.ones(3)))
    structured = device.sparse.structured(device.zeros((32, 32), "float16"))
    device.sparse.linear_24(device.sparse.prune_24(structured.dense), structured, activation="gelu", route="structured")
    device.sparse.solver(triangle, method="gmres", preconditioner="none", restart=2).tell(device.put(np.ones(3)))
    device.tensor.contract("ij,jk->ik", x, y, c=x, beta=2.0)
    device.tensor.einsum("ij,jk,kl->il", x, y, x, memory_limit=128)
    device.tensor.einsum("ij,jk->ik", square, square, out=square)
    device.tensor.einsum("ij,jk->ik", x, y, tune="known", tail=lambda result, t: result * t + 1, tail_operands={"t": x})
    blocks = an.BlockTensor(device.put(np.ones(6)), [(1, 2), (2, 1)], [(0, 0), (1, 0)])
    device.tensor.block_contract("ij,kj->ik", blocks, blocks)
    device.tensor.reduce("norm2", "ij->i", x)
    device.tensor.reduce("sum", "ij->i", x, route="cutensor")
    device.tensor.einsum("ij,kj->ik", x, y, route="cutensor", compute="3xtf32")
    device.tensor.permute("ij->ji", x, route="cutensor")
    device.tensor.reduce("sum", "ij->i", square, out=square[0])
    device.tensor.permute("ij->ji", x, padding=1)
    device.tensor.permute("ij->ji", square, out=square)
    send_collectives(device)
    state = device.zeros((4,), "float32", durable=True)
    group = device.durable_group({"state": state}, checksum=True)
    group.commit(1).result(30)
    group.restore()
    with device.record() as recording:
        recording.operand("x", x).fill(recording.scalar("value", 1.0))
    recording.plan.tell(x=y)
    device.lane("a").noop().ask().result(30)
    # No library of the host device wants a workspace.
    device.lane("a")._plan(an.PlanSpec("test.workspace", (), (), (("bytes", 256),))).ask().result(30)
    if NUMBA:
        import numba_kernels

        first = device.put(np.ones(3))
        device.fft.transform("fft", x, load="value * 2")
        device.sparse.semiring(triangle, first, multiply=lambda a, x: a if a > x else x, add=np.add, start=0.0)

        device.kernel(numba_kernels.scale).forall(8)(device.empty(8), row, 2.0).result(60)


@pytest.fixture(scope="module")
def recorded() -> dict[str, an.PlanSpec]:
    """One specification of each operation of the registry, as the worker got it."""
    found: dict[str, an.PlanSpec] = {}

    def record(value: object, find: Any) -> an.PlanSpec:
        spec = specification(value, find)
        found.setdefault(registered(spec), spec)
        return spec

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "specification", record)
        with an.System(isolation="thread", allow_crash=True) as system:
            send_everything(system.device("host"))
    return found


def registered(spec: an.PlanSpec) -> str:
    """The name under which the registry has a specification's operation."""
    return find_operation(spec.op).name


def decoded(value: object, spec: an.PlanSpec) -> an.PlanSpec:
    """What the worker makes of JSON, with the binaries of a specification at hand."""
    kept = KeptBinaries()
    kept.take([binary.reference for binary in spec.binaries], b"".join(b.data for b in spec.binaries), ())
    return specification(value, kept.find)


OPS = [name for name in OPERATIONS if name not in UNREACHED]
TYPED = [name for name in OPS if OPERATIONS[name][1].attributes not in ("", FREE)]


@pytest.mark.parametrize("op", OPS)
def test_the_worker_gets_what_the_parent_sends(recorded: dict[str, an.PlanSpec], op: str) -> None:
    assert op in recorded, f"no message of {op} is sent: add one to send_everything"
    spec = recorded[op]
    crossed = json.loads(json.dumps(spec.to_json()))
    assert decoded(crossed, spec) == spec
    assert decoded(crossed, spec).to_json() == spec.to_json()


@pytest.mark.parametrize("op", OPS)
def test_malformed_operands_are_refused(recorded: dict[str, an.PlanSpec], op: str) -> None:
    spec = recorded[op]
    for place, wrong in [("operands", {"x": 1}), ("operands", [7]), ("scalars", ["float7"]), ("scalars", 3)]:
        with pytest.raises(an.InvalidRequest, match=f"the specification of {re.escape(repr(spec.op))}: {place}"):
            decoded(spec.to_json() | {place: wrong}, spec)
    if spec.operands:
        for name, wrong in [("dtype", "float7"), ("shape", [-1]), ("strides", ["8"]), ("access", 999), ("name", 5)]:
            malformed = copy.deepcopy(spec.to_json())
            malformed["operands"][0][name] = wrong
            with pytest.raises(an.InvalidRequest, match=rf"operands\[0\]\.{name}"):
                decoded(malformed, spec)


@pytest.mark.parametrize("op", TYPED)
def test_malformed_attributes_are_refused(recorded: dict[str, an.PlanSpec], op: str) -> None:
    spec = recorded[op]
    given = spec.to_json()
    with pytest.raises(an.InvalidRequest, match="attributes has the field 'surplus'"):
        decoded(given | {"attributes": given["attributes"] | {"surplus": 1}}, spec)
    for field in msgspec.structs.fields(type(spec.attributes)):
        others = {name: value for name, value in given["attributes"].items() if name != field.name}
        if field.required:
            with pytest.raises(an.InvalidRequest, match=f"attributes lacks the field '{field.name}'"):
                decoded(given | {"attributes": others}, spec)
        else:
            decoded(given | {"attributes": others}, spec)
        with pytest.raises(an.InvalidRequest, match=rf"attributes\.{field.name}"):
            decoded(given | {"attributes": others | {field.name: {"no": "such value"}}}, spec)
