"""What the cases of matrix products share: operands, the product as each library is asked for it, and its samples.

Operands are the same standard normal numbers for everybody, since the clock of a busy GPU depends on them: a block of
rows that repeats.  Each library has its own copy, and uses one set of operands again and again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from bench.cases._common import device
from bench.cases._gpu import ordinal
from bench.cuda import peers
from bench.harness import Effort, Sample, Setup, Unavailable, describe

__all__ = [
    "Product",
    "add_atomr",
    "add_cupy",
    "add_torch",
    "on_atomr",
    "scaled_mm",
]

#: Time that a sample is to take, and calls in it.
_SPAN_US = 2500.0
_FEWEST, _MOST = 2, 400
#: A call takes no less.
_LEAST_US = 4.0
#: What a GPU of the day does, by which the number of calls is chosen: TFLOP/s, and bytes a microsecond.
_RATES = {"bfloat16": 700.0, "float16": 700.0, "float8_e4m3fn": 1300.0, "tf32": 350.0, "float32": 50.0, "float64": 55.0}
_BYTES = 4e6
_QUICK_EXTENT = 128
#: Numbers in the block of rows that repeats.
_TILE = 1 << 20
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
    def turns(self) -> int:
        """Calls in a sample."""
        size = {"float64": 8, "float32": 4, "float8_e4m3fn": 1}.get(self.dtype, 2)
        moved = size * (self.m * self.k + self.k * self.n + self.m * self.n)
        each = max(_LEAST_US, self.flops / _RATES[self.kind] / 1e6, moved / _BYTES)
        return int(max(_FEWEST, min(_MOST, _SPAN_US / each)))


def _small(setup: Setup, product: Product) -> Product:
    """Return the product that is run: of small extents in a quick run, which then only says that it works."""
    if setup.effort is Effort.FULL:
        return product
    m, n, k = (min(extent, _QUICK_EXTENT) for extent in (product.m, product.n, product.k))
    return Product(m, n, 4 * k if product.dtype == "float8_e4m3fn" else k, product.kind, product.turned)


@cache
def _numbers() -> Any:
    import numpy as np

    return np.random.default_rng(11).standard_normal(_TILE, dtype=np.float32)


def _block(rows: int, columns: int) -> Any:
    """The rows that a matrix repeats, float32."""
    rows = max(1, min(rows, _TILE // columns))
    return _numbers()[: rows * columns].reshape(rows, columns)


def _sample(
    setup: Setup, product: Product, call: Callable[[], object], wait: Callable[[], object], before: Callable[[], object]
) -> Sample:
    """Sample: microseconds for each of several calls that are waited for together."""
    turns = product.turns if setup.effort is Effort.FULL else 2
    warm = 1 + min(turns // 4, 10)

    def sample() -> float:
        before()
        for _ in range(warm):
            call()
        wait()
        start = time.perf_counter_ns()
        for _ in range(turns):
            call()
        wait()
        return (time.perf_counter_ns() - start) / 1e3 / turns

    return sample


def _nothing() -> None:
    """Do nothing before a sample."""


# ---------------------------------------------------------------------------------------------- the library


def on_atomr(dev: Any, shape: tuple[int, int], dtype: str) -> Any:
    """A matrix on a device of the library."""
    matrix = dev.empty(shape, dtype)
    block = dev.put(_block(*shape), dtype)
    for first in range(0, shape[0], block.shape[0]):
        rows = min(block.shape[0], shape[0] - first)
        dev.copy(block[:rows], out=matrix[first : first + rows])
    return matrix


def _atomr_operands(setup: Setup, product: Product) -> tuple[Any, Any]:
    """The operands of a product; made once a case."""
    dev = device(setup, "process")

    def make() -> tuple[Any, Any]:
        a, b = (on_atomr(dev, shape, product.dtype) for shape in product.shapes)
        return a, b

    found: tuple[Any, Any] = setup.shared(("atomr", product), lambda: nullcontext(make()))
    return found


def _planned(dev: Any, options: Mapping[str, Any]) -> tuple[Callable[[], object], Callable[[], object], str]:
    """Return what sends a planned matmul, what waits for it, and what is to be known of its plan.

    Outputs are allocated; handles go by position.
    """
    from atomr_native import MatmulRequest, Unsupported
    from atomr_native.blas_lt import matmul_shape

    shape = matmul_shape(MatmulRequest(**options))
    fresh = {"out": shape.out, "aux": shape.aux, "bias_grad": shape.bias_grad}
    outputs = {name: dev.empty(*made) for name, made in fresh.items() if made is not None and name not in options}
    try:
        plan = dev.blas_lt.plan(**options).wait(_BUILD_SECONDS)
    except Unsupported as error:
        raise Unavailable(str(error)) from error
    operands = {**options, **outputs}
    refs = [operands[name] for name in plan.signature.operands]
    remark = "; ".join(filter(None, [*plan.notes, plan.tuning]))
    return partial(plan.tell, *refs), outputs["out"].wait, remark


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
        one = _small(setup, product)
        a, b = _atomr_operands(setup, one)
        given = {"a": a, "b": b, "trans_b": one.turned, **options, **make(dev, one)}
        if one.kind == "tf32":
            given["compute"] = "tf32"
        if one.dtype == "float8_e4m3fn":
            given.setdefault("a_scale", dev.full((), 1.0))
            given.setdefault("b_scale", dev.full((), 1.0))
        tell, wait, remark = _planned(dev, given)
        setup.add(name, _sample(setup, one, tell, wait, _nothing), flops=one.flops, remark=remark)


# ---------------------------------------------------------------------------------------------- peers


def _on_torch(torch: Any, shape: tuple[int, int], dtype: str) -> Any:
    """The same matrix as a tensor."""
    block = torch.from_numpy(_block(*shape)).to("cuda")
    wide = getattr(torch, "bfloat16" if dtype == "float8_e4m3fn" else dtype)
    whole = block.to(wide).repeat(-(-shape[0] // block.shape[0]), 1)[: shape[0]].contiguous()
    return whole.to(getattr(torch, dtype))


def _torch_operands(setup: Setup, torch: Any, product: Product) -> tuple[Any, Any]:
    """The operands of a product as tensors, the second one as (K, N), a view where it is turned; made once a case."""

    def make() -> tuple[Any, Any]:
        a, b = (_on_torch(torch, shape, product.dtype) for shape in product.shapes)
        return a, (b.t() if product.turned else b)

    found: tuple[Any, Any] = setup.shared(("torch", product), lambda: nullcontext(make()))
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

    `make` gets torch, the product that is run, and its operands.  What torch refuses is a gap in the table.
    """
    with setup.attempt(name, kind="peer"):
        setup.need()
        torch = peers.torch(ordinal(setup))
        one = _small(setup, product)
        before = _torch_precision(torch, one.kind)
        if before is not _nothing:
            setup.stack.callback(_torch_precision(torch, "float32"))
        try:
            call = (make or _torch_call)(torch, one, *_torch_operands(setup, torch, one))
            before()
            call()
            torch.cuda.synchronize()
        except Exception as error:
            raise Unavailable(f"torch refuses it: {describe(error)}") from error
        setup.add(name, _sample(setup, one, call, torch.cuda.synchronize, before), flops=one.flops)


def add_cupy(setup: Setup, name: str, product: Product) -> None:
    """Add ``cupy.matmul`` with ``out=``; what CuPy refuses is a gap in the table."""
    with setup.attempt(name, kind="peer"):
        setup.need()
        cupy = peers.cupy(ordinal(setup))
        one = _small(setup, product)
        wait = cupy.cuda.Device(ordinal(setup)).synchronize
        try:
            a, b = (_on_cupy(cupy, shape, one.dtype) for shape in one.shapes)
            call = partial(cupy.matmul, a, b.T if one.turned else b, out=cupy.empty((one.m, one.n), one.out))
            call()
            wait()
        except Exception as error:
            raise Unavailable(f"CuPy refuses it: {describe(error)}") from error
        setup.add(name, _sample(setup, one, call, wait, _nothing), flops=one.flops)


def _on_cupy(cupy: Any, shape: tuple[int, int], dtype: str) -> Any:
    block = cupy.asarray(_block(*shape).astype(dtype))
    matrix = cupy.empty(shape, dtype)
    for first in range(0, shape[0], block.shape[0]):
        rows = min(block.shape[0], shape[0] - first)
        matrix[first : first + rows] = block[:rows]
    return matrix
