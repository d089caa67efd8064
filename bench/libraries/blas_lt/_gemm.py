"""What the cases of matrix products share: operands, the product as each library is asked for it, and its samples.

Operands are the same standard normal numbers for everybody, since the clock of a busy GPU depends on them: a block of
rows that repeats.  Each library has its own copies: as many sets as do not fit into the L2 cache together, which calls
take in turn, as they would in a program whose weights are in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

from bench.harness import Effort, Sample, Setup, Unavailable, describe, gpu_peers
from bench.harness.common import device
from bench.harness.gpu import ordinal
from bench.harness.matrices import block, on_atomr

__all__ = [
    "Product",
    "add_atomr",
    "add_atomr_recorded",
    "add_cupy",
    "add_nvmath",
    "add_torch",
    "add_torch_graph",
    "scaled_mm",
    "small",
]

#: Time that a sample is to take, and calls in it.
_SPAN_US = 8000.0
_FEWEST, _MOST = 2, 400
#: A call takes no less.
_LEAST_US = 4.0
#: What a GPU of the day does, by which the number of calls is chosen: TFLOP/s, and bytes a microsecond.
_RATES = {"bfloat16": 700.0, "float16": 700.0, "float8_e4m3fn": 1300.0, "tf32": 350.0, "float32": 50.0, "float64": 55.0}
_BYTES = 4e6
_QUICK_EXTENT = 128
#: NVIDIA's number of bfloat16.
_CUDA_R_16BF = 14
#: Bytes that the sets of operands have together, which is more than an L2 cache, and how many there are at most.
_CACHE = 128 << 20
_SETS = 16
_BUILD_SECONDS = 80.0


@dataclass(frozen=True)
class Product:
    """A product of an (M, K) and a (K, N) matrix; `turned`: the second one is given as (N, K), as weights are.

    `kind` is a dtype, or ``"tf32"``: float32 that is rounded on its way into the tensor cores.
    """

    m: int
    n: int
    k: int
    kind: str
    turned: bool = False

    @property
    def dtype(self) -> str:
        """Dtype of the operands."""
        return "float32" if self.kind == "tf32" else self.kind

    @property
    def out(self) -> str:
        """Dtype of the product."""
        return "bfloat16" if self.dtype == "float8_e4m3fn" else self.dtype

    @property
    def flops(self) -> float:
        """Operations in one product."""
        return 2.0 * self.m * self.n * self.k

    @property
    def label(self) -> str:
        """How tables call it."""
        extents = f"{self.m}" if self.m == self.n == self.k else f"{self.m} x {self.n} x {self.k}"
        return f"{self.kind.removesuffix('_e4m3fn')} {extents}"

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Shapes of the operands as they are given."""
        return (self.m, self.k), ((self.n, self.k) if self.turned else (self.k, self.n))

    @property
    def nbytes(self) -> int:
        """Bytes of operands and product."""
        size = {"float64": 8, "float32": 4, "float8_e4m3fn": 1}.get(self.dtype, 2)
        return size * (self.m * self.k + self.k * self.n + self.m * self.n)

    @property
    def turns(self) -> int:
        """Calls in a sample."""
        each = max(_LEAST_US, self.flops / _RATES[self.kind] / 1e6, self.nbytes / _BYTES)
        return int(max(_FEWEST, min(_MOST, _SPAN_US / each)))


def small(setup: Setup, product: Product) -> Product:
    """Return the product that is run: of small extents in a quick run, which then only says that it works."""
    if setup.effort is Effort.FULL:
        return product
    m, n, k = (min(extent, _QUICK_EXTENT) for extent in (product.m, product.n, product.k))
    return Product(m, n, 4 * k if product.dtype == "float8_e4m3fn" else k, product.kind, product.turned)


def _sets(setup: Setup, product: Product) -> int:
    """Return how many sets of operands there are."""
    return min(_SETS, -(-_CACHE // product.nbytes)) if setup.effort is Effort.FULL else 2


def _turns(setup: Setup, product: Product) -> int:
    """Return how many calls a sample has."""
    return product.turns if setup.effort is Effort.FULL else 2


def _sample(
    setup: Setup,
    product: Product,
    calls: Sequence[Callable[[], object]],
    waits: Sequence[Callable[[], object]],
    before: Callable[[], object],
) -> Sample:
    """Sample: microseconds for each of several calls, taken in turn; only the last one is waited for."""
    turns = _turns(setup, product)
    warm = 1 + min(turns // 4, 10)
    ready, done = (waits[(count - 1) % len(waits)] for count in (warm, warm + turns))

    def sample() -> float:
        before()
        turn = cycle(calls)
        for call in islice(turn, warm):
            call()
        ready()
        start = time.perf_counter_ns()
        for call in islice(turn, turns):
            call()
        done()
        return (time.perf_counter_ns() - start) / 1e3 / turns

    return sample


def _nothing() -> None:
    """Do nothing before a sample."""


# ---------------------------------------------------------------------------------------------- the library


def _atomr_operands(setup: Setup, product: Product) -> list[tuple[Any, Any]]:
    """The sets of operands of a product; made once a case."""
    dev = device(setup, "process")

    def make() -> list[tuple[Any, Any]]:
        first, second = product.shapes
        sets = range(_sets(setup, product))
        return [(on_atomr(dev, first, product.dtype), on_atomr(dev, second, product.dtype)) for _ in sets]

    found: list[tuple[Any, Any]] = setup.shared(("atomr", product), lambda: nullcontext(make()))
    return found


def _planned(
    dev: Any, operands: Sequence[tuple[Any, Any]], options: Mapping[str, Any]
) -> tuple[list[Callable[[], object]], list[Callable[[], object]], str]:
    """Return what sends a planned matmul for each set of operands, what waits for it, and remarks on the plan.

    Outputs are allocated; handles go by position.
    """
    from atomr_native import MatmulRequest, Unsupported
    from atomr_native.libraries.blas_lt.spec import resolve_matmul

    given = {"a": operands[0][0], "b": operands[0][1], **options}
    shape = resolve_matmul(MatmulRequest(**given))
    fresh = {"out": shape.out, "aux": shape.aux, "bias_grad": shape.bias_grad}
    try:
        plan = dev.blas_lt.plan(**given).wait(_BUILD_SECONDS)
    except Unsupported as error:
        raise Unavailable(str(error)) from error
    calls: list[Callable[[], object]] = []
    waits: list[Callable[[], object]] = []
    for a, b in operands:
        outputs = {name: dev.empty(*made) for name, made in fresh.items() if made is not None and name not in given}
        refs = {**given, **(given.get("operands") or {}), "a": a, "b": b, **outputs}
        calls.append(partial(plan.tell, *(refs[name] for name in plan.signature.operands)))
        waits.append(outputs["out"].wait)
    return calls, waits, "; ".join(filter(None, [*plan.notes, plan.tuning]))


def add_atomr(
    setup: Setup,
    name: str,
    product: Product,
    make: Callable[[Any, Product], Mapping[str, Any]] = lambda *_: {},
    **options: Any,
) -> None:
    """Add the library's product, by a plan.

    `options` are further ones of the plan, and so are those that `make` returns, which gets the device and the product
    that is run.
    """
    with setup.attempt(name):
        dev = device(setup, "process")
        one = small(setup, product)
        given = {"trans_b": one.turned, **options, **make(dev, one)}
        if one.kind == "tf32":
            given["compute"] = "tf32"
        if one.dtype == "float8_e4m3fn":
            given.setdefault("a_scale", dev.full((), 1.0))
            given.setdefault("b_scale", dev.full((), 1.0))
        calls, waits, remark = _planned(dev, _atomr_operands(setup, one), given)
        setup.add(name, _sample(setup, one, calls, waits, _nothing), flops=one.flops, remark=remark)


def add_atomr_recorded(
    setup: Setup,
    name: str,
    product: Product,
    make: Callable[[Any, Product], Mapping[str, Any]] = lambda *_: {},
    *,
    tune: bool = False,
) -> None:
    """Add the library's product, in a recorded plan of as many as a sample has; `make` as for `add_atomr`.

    The products share an output, so that they run one after the other, as those in torch's graph do.
    """
    with setup.attempt(name):
        dev = device(setup, "process")
        one = small(setup, product)
        operands, turns = _atomr_operands(setup, one), _turns(setup, one)
        given = {"out": dev.empty((one.m, one.n), one.out), "trans_b": one.turned, "tune": tune, **make(dev, one)}
        with dev.record() as g:
            for a, b in islice(cycle(operands), turns):
                dev.blas_lt.matmul(a, b, **given)
        plan = g.plan
        plan.ask().result(_BUILD_SECONDS)

        def sample() -> float:
            plan.ask().result()
            start = time.perf_counter_ns()
            plan.ask().result()
            return (time.perf_counter_ns() - start) / 1e3 / turns

        setup.add(name, sample, flops=one.flops)


# ---------------------------------------------------------------------------------------------- peers


def _on_torch(torch: Any, shape: tuple[int, int], dtype: str) -> Any:
    """The same matrix as a tensor."""
    rows = torch.from_numpy(block(*shape)).to("cuda")
    wide = getattr(torch, "bfloat16" if dtype == "float8_e4m3fn" else dtype)
    whole = rows.to(wide).repeat(-(-shape[0] // rows.shape[0]), 1)[: shape[0]].contiguous()
    return whole.to(getattr(torch, dtype))


def _torch_operands(setup: Setup, torch: Any, product: Product) -> list[tuple[Any, Any]]:
    """The same sets as tensors, the second one as (K, N), a view where it is turned; made once a case."""

    def pair() -> tuple[Any, Any]:
        a, b = (_on_torch(torch, shape, product.dtype) for shape in product.shapes)
        return a, (b.t() if product.turned else b)

    def make() -> list[tuple[Any, Any]]:
        return [pair() for _ in range(_sets(setup, product))]

    found: list[tuple[Any, Any]] = setup.shared(("torch", product), lambda: nullcontext(make()))
    return found


def scaled_mm(torch: Any, a: Any, b: Any, out: Any, scale_a: Any, scale_b: Any, fast_accum: bool) -> Callable[[], Any]:
    """A call of ``torch._scaled_mm``."""
    return partial(
        torch._scaled_mm,
        a,
        b,
        scale_a=scale_a,
        scale_b=scale_b,
        out_dtype=out.dtype,
        use_fast_accum=fast_accum,
        out=out,
    )


def _torch_call(torch: Any, product: Product, a: Any, b: Any) -> Callable[[], Any]:
    out = torch.empty((product.m, product.n), dtype=getattr(torch, product.out), device="cuda")
    if product.dtype != "float8_e4m3fn":
        return partial(torch.mm, a, b, out=out)
    one = torch.ones((), dtype=torch.float32, device="cuda")
    return scaled_mm(torch, a, b, out, one, one, True)


def _torch_precision(torch: Any, kind: str) -> Callable[[], object]:
    """What says how float32 is multiplied, which holds for the whole process."""
    if kind not in ("float32", "tf32"):
        return _nothing
    return partial(torch.set_float32_matmul_precision, "high" if kind == "tf32" else "highest")


def add_torch(
    setup: Setup,
    name: str,
    product: Product,
    make: Callable[[Any, Product, Any, Any], Callable[[], object]] | None = None,
) -> None:
    """Add torch's product, ``mm`` or ``_scaled_mm`` with ``out=``, or the call that `make` returns.

    `make` gets torch, the product that is run, and a set of operands.  What torch refuses is a gap in the table.
    """
    with setup.attempt(name, kind="peer"):
        setup.need()
        torch = gpu_peers.torch(ordinal(setup))
        one = small(setup, product)
        before = _torch_precision(torch, one.kind)
        if before is not _nothing:
            setup.stack.callback(_torch_precision(torch, "float32"))
        try:
            calls = [(make or _torch_call)(torch, one, a, b) for a, b in _torch_operands(setup, torch, one)]
            before()
            calls[0]()
            torch.cuda.synchronize()
        except Exception as error:
            raise Unavailable(f"torch refuses it: {describe(error)}") from error
        setup.add(name, _sample(setup, one, calls, [torch.cuda.synchronize], before), flops=one.flops)


def add_torch_graph(
    setup: Setup,
    name: str,
    product: Product,
    make: Callable[[Any, Product, Any, Any], Callable[[], object]] | None = None,
) -> None:
    """Add torch's product, or the call that `make` returns, in a CUDA graph of as many calls as a sample has.

    It is launched once a sample: no host code is in between.
    """
    with setup.attempt(name, kind="peer"):
        setup.need()
        torch = gpu_peers.torch(ordinal(setup))
        one = small(setup, product)
        turns = _turns(setup, one)
        try:
            calls = [(make or _torch_call)(torch, one, a, b) for a, b in _torch_operands(setup, torch, one)]
            for call in calls:  # else their workspaces would be made while the graph is recorded
                call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for call in islice(cycle(calls), turns):
                    call()
        except Exception as error:
            raise Unavailable(f"torch refuses it: {describe(error)}") from error
        setup.stack.callback(calls.clear)  # the graph names the memory of their operands
        setup.stack.callback(graph.reset)

        def sample() -> float:
            graph.replay()
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            graph.replay()
            torch.cuda.synchronize()
            return (time.perf_counter_ns() - start) / 1e3 / turns

        setup.add(name, sample, flops=one.flops)


def add_nvmath(setup: Setup, name: str, product: Product, *, tuned: bool = False) -> None:
    """Add nvmath-python's product of torch's operands: `Matmul` objects that are planned, and tuned if asked to.

    It has no output of the caller's: each call allocates one.  What it refuses is a gap in the table.
    """
    with setup.attempt(name, kind="peer"):
        setup.need()
        torch, advanced = gpu_peers.torch(ordinal(setup)), gpu_peers.nvmath()
        one = small(setup, product)
        try:
            operands = _torch_operands(setup, torch, one)
            planned = [_nvmath_plan(setup, torch, advanced, one, a, b, tuned) for a, b in operands]
            calls = [plan.execute for plan in planned]
            calls[0]()
            torch.cuda.synchronize()
        except Exception as error:
            raise Unavailable(f"nvmath refuses it: {describe(error)}") from error
        setup.add(name, _sample(setup, one, calls, [torch.cuda.synchronize], _nothing), flops=one.flops)


def _nvmath_plan(setup: Setup, torch: Any, advanced: Any, product: Product, a: Any, b: Any, tuned: bool) -> Any:
    options: dict[str, Any] = {}
    if product.dtype == "float8_e4m3fn":
        one = torch.ones((), dtype=torch.float32, device="cuda")
        options["quantization_scales"] = {"a": one, "b": one}
        options["options"] = {"fast_accumulation": True, "result_type": _CUDA_R_16BF}
    plan = advanced.Matmul(a, b, **options)
    setup.stack.callback(plan.free)
    plan.plan()
    if tuned:
        plan.autotune()
    return plan


def add_cupy(setup: Setup, name: str, product: Product) -> None:
    """Add ``cupy.matmul`` with ``out=``; what CuPy refuses is a gap in the table."""
    with setup.attempt(name, kind="peer"):
        setup.need()
        cupy = gpu_peers.cupy(ordinal(setup))
        one = small(setup, product)
        wait = cupy.cuda.Device(ordinal(setup)).synchronize
        try:
            calls = [_cupy_call(cupy, one) for _ in range(_sets(setup, one))]
            calls[0]()
            wait()
        except Exception as error:
            raise Unavailable(f"CuPy refuses it: {describe(error)}") from error
        setup.add(name, _sample(setup, one, calls, [wait], _nothing), flops=one.flops)


def _cupy_call(cupy: Any, product: Product) -> Callable[[], object]:
    a, b = (_on_cupy(cupy, shape, product.dtype) for shape in product.shapes)
    out = cupy.empty((product.m, product.n), product.out)
    return partial(cupy.matmul, a, b.T if product.turned else b, out=out)


def _on_cupy(cupy: Any, shape: tuple[int, int], dtype: str) -> Any:
    repeated = cupy.asarray(block(*shape).astype(dtype))
    matrix = cupy.empty(shape, dtype)
    for first in range(0, shape[0], repeated.shape[0]):
        rows = min(repeated.shape[0], shape[0] - first)
        matrix[first : first + rows] = repeated[:rows]
    return matrix
