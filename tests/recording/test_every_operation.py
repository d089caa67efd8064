"""Each operation of every library, recorded, and replayed with other arrays and numbers, has its messages' bits."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from placements import Placement

import atomr_native as an
from atomr_native.libraries import OPERATIONS, find_operation

NUMBA = importlib.util.find_spec("numba_cuda") is not None
#: Operations that no recording holds; `test_recording_refusals` says so of those that users can reach.
NEVER = {
    "sparse.broken_24", "cudnn.rnn_reserve",  # whose answers their calls read
    "sparse.direct",  # whose factors are the state of a solver
    "noop", "quarantined", "test.*", "memory.workspace", "group.commit", "group.restore", "program.replay",
    *(name for name in OPERATIONS if name.startswith("collective.")),
    *(() if NUMBA else ("kernel.*", "sparse.semiring_compiled")),
}  # fmt: skip

#: Arrays by name: their shapes and dtypes.
SHAPES: dict[str, tuple[tuple[int, ...], str]] = {
    "x": ((8, 8), "float32"), "y": ((8, 8), "float32"), "row": ((8,), "float32"), "other": ((8,), "float32"),
    "wide": ((8, 8), "float64"), "column": ((8,), "float64"), "half": ((8, 2), "float16"),
    "signal": ((64,), "float32"), "heads": ((1, 8, 2, 8), "float32"), "image": ((1, 2, 4, 4), "float32"),
    "filters": ((2, 2, 3, 3), "float32"), "group": ((2, 8, 2), "float32"), "narrow": ((1, 2, 4, 8), "float16"),
    "crowd": ((32, 32), "float16"), "weights": ((4,), "float32"), "sounds": ((3, 1, 2), "float32"),
    "steps": ((2, 1, 1), "float32"), "entries": ((36,), "float64"), "definite": ((64,), "float64"),
}  # fmt: skip
PLACES = np.array([3, 0, 7, 1, 6, 2, 5, 4])


def values(name: str, seed: int) -> np.ndarray[Any, Any]:
    """Return small numbers above 0, so that every operation is defined; another seed gives others."""
    shape, dtype = SHAPES[name]
    rng = np.random.default_rng([seed, *name.encode()])
    found = rng.integers(1, 9, shape) / 4
    if name in ("x", "y", "wide"):  # far from singular
        found = found + 8 * np.eye(len(found))
    elif name == "definite":
        found = (np.ones((8, 8)) + np.diag(8 * found[:8])).ravel()
    return found.astype(dtype)


@dataclass(frozen=True)
class Case:
    """One message, or a few: `call` gets the device, what `prepare` has made, the arrays, and the numbers by name."""

    call: Callable[..., Any]
    arrays: str
    numbers: tuple[tuple[str, tuple[float, float]], ...] = ()
    prepare: Callable[[an.Device], Any] = lambda _: None


def case(call: Callable[..., Any], arrays: str, prepare: Any = lambda _: None, **numbers: tuple[float, float]) -> Case:
    return Case(call, arrays, tuple(numbers.items()), prepare)


def _places(device: an.Device) -> an.GpuRef:
    return device.put(PLACES)


def _triangle(device: an.Device) -> Any:
    return device.sparse.matrix(np.tril(np.ones((8, 8))) + 7 * np.eye(8))


def _moments(device: an.Device) -> tuple[an.GpuRef, an.GpuRef]:
    return device.zeros(8, "float32", durable=True), device.zeros(8, "float32", durable=True)


def _namespace(device: an.Device) -> Any:
    return device.zeros(1).__array_namespace__()


def _symmetric(a: an.GpuRef) -> an.GpuRef:
    return a + a.T


def _attention(device: an.Device, ends: an.GpuRef, q: an.GpuRef) -> Any:
    kept = device.cudnn.attention(q, q, q, statistics=True, q_lengths=ends, kv_lengths=ends)
    return kept, device.cudnn.attention_backward(q, q, q, *kept, q, q_lengths=ends, kv_lengths=ends)


def _loss(device: an.Device, ones: an.GpuRef, sounds: an.GpuRef) -> Any:
    return device.cudnn.ctc_loss(sounds, ones.reshape(1, 1), ones, ones)


def _reserve(device: an.Device) -> int:
    x, weights = (device.zeros(*SHAPES[name]) for name in ("steps", "weights"))
    return device.cudnn.rnn_reserve("tanh", x, weights, hidden=1, lengths=(2,))


def _recurrent(device: an.Device, _: Any, steps: an.GpuRef, weights: an.GpuRef) -> Any:
    how: dict[str, Any] = {"hidden": 1, "lengths": (2,)}
    y, hy, reserve, *_ = device.cudnn.rnn("tanh", steps, weights, training=True, **how)
    return y, hy, device.cudnn.rnn_backward("tanh", steps, weights, y, steps, reserve, **how)


def _structured(device: an.Device, _: Any, crowd: an.GpuRef, w: an.GpuRef) -> Any:
    pruned = device.sparse.structured(w, prune="tile")
    return device.sparse.linear_24(crowd, pruned, activation="gelu", route="structured")


def _scale(device: an.Device, _: Any, out: an.GpuRef, x: an.GpuRef, *, factor: float) -> None:
    import numba_kernels

    device.kernel(numba_kernels.scale).forall(8)(out, x, factor)


def _compiled(device: an.Device, triangle: Any, column: an.GpuRef) -> Any:
    return device.sparse.semiring(triangle, column, multiply=lambda a, x: a if a > x else x, add=np.add, start=0.0)


SEED = {"seed": (3, 2**40 + 5), "offset": (0, 7)}
CASES: dict[str, Case] = {
    "copy": case(lambda d, _, x, y: d.copy(x.T, out=y), "x y"),
    "fill": case(lambda d, _, x, value: x[::2].fill(value), "x", value=(2.0, 3.0)),
    "matmul": case(
        lambda d, _, x, y, row, alpha: d.blas_lt.matmul(x, y, bias=row, epilogue="gelu_aux_bias", alpha=alpha),
        "x y row", alpha=(1.0, 2.5),
    ),
    "gradient": case(
        lambda d, _, x, y, aux: d.blas_lt.matmul(x, y, aux=aux, epilogue="dgelu_bgrad"), "x y x",
    ),
    "grouped": case(lambda d, _, x, y: d.blas_lt.grouped([x, y[:4]], [y, x]), "x y"),
    "axpy": case(lambda d, _, row, other, alpha: d.blas.axpy(row, other, alpha=alpha), "row other", alpha=(2.0, 3.0)),
    "trsm": case(lambda d, _, x, y, alpha: d.blas.trsm(x, y, alpha=alpha), "x y", alpha=(1.0, 2.0)),
    "dot": case(lambda d, _, row, other: d.blas.dot(row, other), "row other"),
    "elementwise": case(
        lambda d, _, x, row, s: d.elementwise.run("maximum(x, 0) + b * s", x=x, b=row, s=s), "x row", s=(2.0, 0.25)
    ),
    "reduce": case(lambda d, _, x: d.elementwise.reduce("sum", x, axis=0), "x"),
    "cross entropy": case(lambda d, labels, x: d.elementwise.softmax_cross_entropy(x, labels), "x", _places),
    "take": case(lambda _, places, x: x.take(places, axis=0), "x", _places),
    "sequence": case(lambda d, _, row: d.arange(8, dtype="float32") + row, "row"),
    "sort": case(lambda _, xp, x: xp.sort(x), "x", _namespace),
    "scan": case(lambda _, xp, x: xp.cumulative_sum(x, axis=0), "x", _namespace),
    "search": case(lambda _, xp, row, other: xp.searchsorted(xp.sort(row), other), "row other", _namespace),
    "quantize": case(lambda d, _, x: d.float8.quantize(x), "x"),
    "dequantize": case(lambda d, _, x: d.float8.dequantize(*d.float8.quantize(x)[:2]), "x"),
    "activation": case(lambda d, _, x, y: d.fused.swiglu(x, y), "x y"),
    "gradient of an activation": case(lambda d, _, x, y: d.fused.silu_backward(x, y), "x y"),
    "dropout": case(
        lambda d, _, x, p, seed, offset: d.fused.dropout(x, p, seed=seed, offset=offset), "x", p=(0.5, 0.25), **SEED
    ),
    "norm": case(lambda d, _, x, row, eps: d.fused.rms_norm(x, row, eps=eps), "x row", eps=(1e-5, 0.5)),
    "gradient of a norm": case(lambda d, _, x, y, row: d.fused.rms_norm_backward(x, y, row), "x y row"),
    "adamw": case(
        lambda d, kept, row, other, step, lr: d.fused.adamw(row, other, *kept, step=step, lr=lr), "row other",
        _moments, step=(1, 9), lr=(0.5, 0.125),
    ),
    "adamw, list": case(
        lambda d, kept, row, other, step, lr: d.fused.adamw(
            [row], [other], *([one] for one in kept), step=step, lr=lr
        ),
        "row other", _moments, step=(1, 9), lr=(0.5, 0.125),
    ),
    "sgd": case(
        lambda d, kept, row, other, lr: d.fused.sgd_momentum(row, other, kept[0], lr=lr), "row other", _moments,
        lr=(0.5, 0.125),
    ),
    "sgd, list": case(
        lambda d, kept, row, other, lr: d.fused.sgd_momentum({"w": row}, {"w": other}, {"w": kept[0]}, lr=lr),
        "row other", _moments, lr=(0.5, 0.125),
    ),
    "rope": case(
        lambda d, places, heads, theta: d.fused.rope(heads, places, theta=theta), "heads", _places, theta=(1e4, 50.0)
    ),
    "normal": case(
        lambda d, _, row, seed, offset: d.random.normal(8, "float32", 0.5, row, seed=seed, offset=offset), "row", **SEED
    ),
    "generator of cuRAND": case(
        lambda d, _, offset: d.random.uniform(8, engine="curand_sobol32", seed=0, offset=offset), "", offset=(0, 7)
    ),
    "permutation": case(lambda d, _, seed, offset: d.random.permutation(8, seed=seed, offset=offset), "", **SEED),
    "discrete": case(
        lambda d, _, row, seed, offset: d.random.discrete(row, 8, seed=seed, offset=offset), "row", **SEED
    ),
    "transform": case(lambda d, _, x: d.fft.irfft(d.fft.rfft(x), n=8), "x"),
    "mapped transform": case(lambda d, _, x: d.fft.transform("fft", x, load="value * 2"), "x"),
    "half transform": case(lambda d, _, half: d.fft.half("fft", half), "half"),
    "cosines": case(lambda d, _, x: d.fft.dct(x), "x"),
    "frames": case(lambda d, _, signal: d.fft.istft(d.fft.stft(signal, 16), 16), "signal"),
    "shift": case(lambda d, _, x: d.fft.fftshift(x), "x"),
    "solve": case(lambda d, _, wide, column: d.solver.solve(wide, column), "wide column"),
    "solve, indefinite": case(
        lambda d, _, wide, column: d.solver.solve(_symmetric(wide), column, assume="symmetric"), "wide column"
    ),
    "refined solve": case(
        lambda d, _, wide, column: d.solver.tell(an.RefinementRequest(a=wide, b=column, factor="tf32")), "wide column"
    ),
    "qr": case(lambda d, _, wide: d.solver.qr(wide), "wide"),
    "qr, factors": case(lambda d, _, a, b: d.solver.qr_multiply(*d.solver.qr_factor(a), b), "wide wide"),
    "svd": case(lambda d, _, wide: (d.solver.svd(wide), d.solver.svdvals(wide)), "wide"),
    "eigh": case(
        lambda d, _, wide: (d.solver.eigh(_symmetric(wide)), d.solver.eigvalsh(_symmetric(wide))), "wide"
    ),
    "eig": case(lambda d, _, wide: (d.solver.eig(wide), d.solver.eigvals(wide)), "wide"),
    "spmv": case(lambda d, a, column, alpha: d.sparse.spmv(a, column, alpha=alpha), "column", _triangle,
                 alpha=(2.0, 0.5)),
    "spmm": case(lambda d, a, wide: d.sparse.spmm(a, wide), "wide", _triangle),
    "sddmm": case(lambda d, a, wide: d.sparse.sddmm(a, wide, wide), "wide", _triangle),
    "sparse solve": case(lambda d, a, wide: d.sparse.solve_triangular(a, wide), "wide", _triangle),
    "semiring": case(
        lambda d, a, column: d.sparse.semiring(a, column, multiply=np.add, add=np.minimum, start=1e9), "column",
        _triangle,
    ),
    "sparse product": case(
        lambda d, pattern, entries, more, beta: pattern.tell(entries, more, beta=beta).values, "entries entries",
        lambda d: d.sparse.matmul_pattern(_triangle(d), _triangle(d)), beta=(9.0, 0.5),
    ),
    "sparse sum": case(
        lambda d, pattern, entries, more, beta: pattern.tell(entries, more, beta=beta).values, "entries entries",
        lambda d: d.sparse.add_pattern(_triangle(d), _triangle(d)), beta=(9.0, 0.5),
    ),
    "incomplete factors": case(
        lambda d, a, entries: d.sparse.ilu0(a.with_values(entries)).values, "entries", _triangle
    ),
    "incomplete factor": case(
        lambda d, a, definite: d.sparse.ic0(a.with_values(definite)).values, "definite",
        lambda d: d.sparse.matrix(np.ones((8, 8))),
    ),
    "sparse solver": case(
        lambda d, solver, column: solver.tell(column), "column",
        lambda d: d.sparse.solver(_triangle(d), method="gmres", preconditioner="none", restart=2),
    ),
    "contraction": case(
        lambda d, _, x, y, c, beta: d.tensor.contract("ij,jk->ik", x, y, c=c, beta=beta), "x y x", beta=(2.0, 0.5)
    ),
    "contraction over": case(lambda d, _, wide: d.tensor.einsum("ij,jk->ik", wide, wide, out=wide), "wide"),
    "tensor reduction": case(lambda d, _, x: d.tensor.reduce("norm2", "ij->i", x), "x"),
    "tensor reduction over": case(lambda d, _, wide: d.tensor.reduce("sum", "ij->i", wide, out=wide[0]), "wide"),
    "tensor permutation": case(lambda d, _, x: d.tensor.permute("ij->ji", x, padding=1), "x"),
    "tensor permutation over": case(lambda d, _, wide: d.tensor.permute("ij->ji", wide, out=wide), "wide"),
    "softmax": case(lambda d, _, x: d.cudnn.softmax(x), "x"),
    "convolution": case(lambda d, _, image, filters, row: d.cudnn.convolution(image, filters, row[:2]),
                        "image filters row"),
    "attention": case(_attention, "narrow", lambda d: d.put(np.array([3], "int32"))),
    "recurrent network": case(_recurrent, "steps weights", _reserve),
    "connectionist loss": case(_loss, "sounds", lambda d: d.put(np.ones(1, "int32"))),
    "structured product": case(_structured, "crowd crowd"),
    "fused convolution": case(
        lambda d, _, heads, x, s: d.cutlass.convolution(
            heads, x.reshape(8, 1, 1, 8), epilogue="relu(acc * s)", operands={"s": s}
        ),
        "heads x", s=(2.0, 0.5),
    ),
    "gemm with a tree": case(
        lambda d, _, x, y, row, s: d.cutlass.gemm(
            x, y, epilogue="pre = acc + row * s; out = relu(pre)", operands={"row": row, "s": s},
            outputs={"pre": "float32"},
        ),
        "x y row", s=(2.0, 0.5),
    ),
    "grouped gemm": case(
        lambda d, ends, x, group: d.cutlass.grouped_gemm(x, group, ends), "x group",
        lambda d: d.put(np.array([1, 8], "int32")),
    ),
    **({"kernel": case(_scale, "row other", factor=(2.0, 3.0)),
        "compiled semiring": case(_compiled, "column", _triangle)} if NUMBA else {}),
}  # fmt: skip


def flat(found: Any) -> list[an.GpuRef]:
    """Return the arrays of a result."""
    if isinstance(found, an.GpuRef):
        return [found]
    parts = found.values() if isinstance(found, dict) else found
    return [ref for part in parts for ref in flat(part)] if isinstance(parts, Iterable) else []


def results(found: Any, arrays: list[an.GpuRef]) -> list[an.GpuRef]:
    """Return the arrays of a result but for those that lie in given ones, which are compared anyway."""
    given = [array.allocation for array in arrays]
    return [ref for ref in flat(found) if ref.allocation not in given]


def record(device: an.Device, one: Case, kept: Any, arrays: list[an.GpuRef]) -> tuple[an.RecordedPlan, list[an.GpuRef]]:
    """Return the plan of a case, with all its arrays and numbers as parameters, and its results."""
    with device.record() as g:
        given = [g.operand(f"array{i}", array) for i, array in enumerate(arrays)]
        numbers = {name: g.scalar(name, several[0]) for name, several in one.numbers}
        found = results(one.call(device, kept, *given, **numbers), given)
    return g.plan, found


def put(device: an.Device, one: Case, seed: int) -> list[an.GpuRef]:
    return [device.put(values(name, 10 * i + seed)) for i, name in enumerate(one.arrays.split())]


@pytest.fixture(scope="module")
def device(worker_process: Placement) -> Iterator[an.Device]:
    with worker_process.system(standby="off") as system:
        yield system.device()


#: What the fake driver cannot run: kernels that are compiled for a GPU, and cuRAND.
COMPILED = {
    "quantize", "dequantize", "activation", "gradient of an activation", "dropout", "norm", "gradient of a norm",
    "adamw", "sgd", "rope", "normal", "permutation", "discrete", "mapped transform", "gemm with a tree", "grouped gemm",
    "kernel", "compiled semiring", "fused convolution", "generator of cuRAND",
}  # fmt: skip


#: Calls of libraries that may not be captured, as the fake's are not: their programs are launched step by step.
STEPWISE = {"recurrent network", "generator of cuRAND"}
#: Of small matrices the call computes on the host, and waits.
MARKS = {"eig": pytest.mark.host_only}


@pytest.mark.fake_only(name=[name for name in CASES if name not in COMPILED])
@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in CASES])
def test_an_operation(device: an.Device, name: str) -> None:
    one = CASES[name]
    kept, twin = one.prepare(device), one.prepare(device)
    pairs = [[put(device, one, seed) for seed in range(2)] for _ in range(2)]
    plan, found = record(device, one, kept, pairs[0][0])
    assert found or pairs[0][0]
    for turn in (0, 0, 1, 1, 0):
        numbers = {name: several[turn] for name, several in one.numbers}
        arrays, twins = (side[turn] for side in pairs)
        wanted = results(one.call(device, twin, *twins, **numbers), twins)
        plan.ask(**{f"array{i}": array for i, array in enumerate(arrays)}, **numbers).result(60)
        for got, want in zip(found + arrays + flat(kept), wanted + twins + flat(twin), strict=True):
            np.testing.assert_array_equal(got.numpy(), want.numpy())
    if device.kind == "cuda":
        late = any("reports failures by a word" in note for note in plan.notes)
        assert name in STEPWISE or plan.replays.launched == (0 if late else 4), plan.notes


def test_every_operation_has_a_case() -> None:
    """A library that joins, and an operation that is added, is recorded here, too."""
    seen = set()
    with an.System(isolation="thread", standby="off") as system:
        device = system.device("host")
        for one in CASES.values():
            plan, _ = record(device, one, one.prepare(device), put(device, one, 0))
            seen |= {find_operation(step.operation).name for step in plan.steps if not step.bodies}
    assert seen | NEVER == set(OPERATIONS)
    assert not seen & NEVER
