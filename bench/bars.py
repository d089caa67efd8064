"""The bars of the design, and an honest verdict for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bench.cases._bandwidth import TORCH_COPY
from bench.cases.gpu_float8 import KINDS as FLOAT8
from bench.cases.gpu_fused import KINDS as FUSED
from bench.cases.gpu_gemm import LARGE
from bench.cases.gpu_gemm_epilogues import EPILOGUES, SHAPES, name_of
from bench.cuda.copies import BARS as COPIES
from bench.cuda.copies import SIZES, case_name

__all__ = ["BARS", "Bar", "Verdict", "judge"]


@dataclass(frozen=True)
class Bar:
    """An upper limit for the median of one series, or of one ratio when `under` is given."""

    work: str
    case: str
    series: str
    limit: float
    unit: str
    under: str = ""


@dataclass(frozen=True)
class Verdict:
    """A bar beside what was measured; `sure` when the whole interval is on the verdict's side."""

    bar: Bar
    state: Literal["met", "missed", "not measured"]
    median: float | None = None
    low: float | None = None
    high: float | None = None
    sure: bool = False


_PLACES = ("process", "thread")
_GEMMS = ("bfloat16", "float16", "float8")

BARS: tuple[Bar, ...] = (
    *(Bar(f"planned tell, lane awake, {p}", "tell", f"atomr {p}, lane awake", 0.2, "us") for p in _PLACES),
    *(Bar(f"immediate matmul call, {p}", "immediate", f"atomr matmul, {p}", 1.5, "us") for p in _PLACES),
    *(
        Bar(f"immediate {name} call", "immediate_library", f"atomr {name}", 1.5, "us")
        for name in ("fused.rms_norm", "fused.adamw", "float8.quantize", "blas.axpy", "elementwise.reduce")
    ),
    *(Bar(f"no-op ask, spinning, {p}", "ask", f"atomr {p}", 1.0, "us") for p in _PLACES),
    *(Bar(f"no-op ask, parked, {p}", "ask_parked", f"atomr {p}", 20.0, "us") for p in _PLACES),
    *(Bar(f"await, {p}", "await", f"atomr {p}", 40.0, "us") for p in _PLACES),
    Bar("allocate + free", "alloc", "atomr empty + del, 1 MiB", 0.3, "us"),
    Bar("death known to first good answer", "restart", "atomr warm standby: known to answer", 600.0, "ms"),
    Bar("ask of a Python actor over Pykka's", "actor_ask", "atomr", 0.333, "x", under="Pykka"),
    *(
        Bar(
            f"counters of a Python actor, {what}",
            "actor_tracing",
            f"{what}, as it is",
            1.02,
            "x",
            under=f"{what}, without counters",
        )
        for what in ("ask", "tell")
    ),
    *(
        Bar(
            f"process over thread, {work}",
            "placement",
            f"process, {work}",
            1.10,
            "x",
            under=f"thread, {work}",
        )
        for work in ("ask", "batch of 100", "planned tell")
    ),
    # ---- on a GPU
    *(
        Bar(f"planned tell of a {work}, {p}", "gpu_tell", f"atomr planned {work}, {p}", 0.2, "us")
        for work in ("kernel", "matmul")
        for p in _PLACES
    ),
    *(Bar(f"immediate matmul call, {p}", "gpu_tell", f"atomr immediate matmul, {p}", 1.5, "us") for p in _PLACES),
    *(
        Bar(f"{work}, sustained, {lanes}, {p}", f"gpu_{work}", f"atomr {p}, {lanes}", limit, "x", under=f"C {call}")
        for work, lanes, limit, call in (
            ("kernel", "1 lane", 1.15, "cuLaunchKernel"),
            ("matmul", "1 lane", 1.05, "cublasLtMatmul"),
            ("matmul", "4 lanes", 0.6, "cublasLtMatmul"),
        )
        for p in _PLACES
    ),
    *(
        Bar(
            f"Numba kernel, 3 arguments, sustained, {p}",
            "gpu_arguments",
            f"atomr Numba kernel, {p}, 3 arguments",
            1.15,
            "x",
            under="C, 3 arguments",
        )
        for p in _PLACES
    ),
    *(
        Bar(f"ask a {work}, GPU finished, {p}", "gpu_ask", f"atomr {work}, {p}", 1.10, "x", f"C {call} + synchronize")
        for work, call in (("kernel", "cuLaunchKernel"), ("matmul", "cublasLtMatmul"))
        for p in _PLACES
    ),
    *(Bar(f"allocate + free, {p}", "gpu_alloc", f"atomr empty + del, 1 MiB, {p}", 0.3, "us") for p in _PLACES),
    *(
        Bar(f"{kind} {n}, over torch", f"gpu_gemm_{kind}", f"atomr, {kind} {n}", 1.02, "x", under=f"torch, {kind} {n}")
        for kind in _GEMMS
        for n in LARGE
    ),
    *(
        Bar(
            f"{kind}, {who}, geometric mean, over torch",
            f"gpu_gemm_{kind}",
            f"{who}, mean of 1024 to 16384",
            limit,
            "x",
            under="torch, mean of 1024 to 16384",
        )
        for who, limit in (("atomr", 1.0), ("atomr tuned", 0.971))
        for kind in _GEMMS
    ),
    *(
        Bar(
            f"epilogue {epilogue}, {product.label}, over the plain product",
            "gpu_gemm_epilogues",
            name_of(epilogue, product),
            1.03,
            "x",
            under=name_of("default", product),
        )
        for product in SHAPES
        for epilogue in EPILOGUES
    ),
    *(
        Bar(
            f"{case_name(nbytes, bar.way)}: {bar.over}", case_name(nbytes, bar.way), bar.over, bar.limit, "x", bar.under
        )
        for bar in COPIES
        for nbytes in SIZES
        if nbytes in bar.sizes
    ),
    *(
        Bar(f"{name.removeprefix('atomr ')}, time of a copy", case, name, 1.176, "x", under=TORCH_COPY)
        for case, names in (("gpu_float8", [name for name, _, _ in FLOAT8]), ("gpu_fused", FUSED))
        for name in names
    ),
    *(
        Bar(f"eager loop, memory {what}, {p}", "gpu_eager", f"atomr {p}: {what}", 1.0, "x", under=f"torch: {what}")
        for what in ("reserved", "held")
        for p in _PLACES
    ),
    *(
        Bar(
            f"{what}: death known to first good answer, {standby} standby",
            "gpu_restart",
            f"atomr {what}, {standby} standby: known to answer",
            limit,
            "ms",
        )
        for what in ("kill", "GPU fault")
        for standby, limit in (("warm", 600.0), ("hot", 150.0))
    ),
)


def _figure(bar: Bar, case: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if bar.under:
        rows = [r for r in case["ratios"] if (r["over"], r["under"]) == (bar.series, bar.under)]
    else:
        rows = [c for c in case["contenders"] if c["name"] == bar.series]
    figure = rows[0].get("summary") if rows else None
    return figure if isinstance(figure, Mapping) else None


def judge(cases: Sequence[Mapping[str, Any]], bars: Sequence[Bar] = BARS) -> list[Verdict]:
    """Hold the bars against the cases of a result document; a bar whose case did not run is left out."""
    by_name = {case["name"]: case for case in cases}
    verdicts = []
    for bar in bars:
        if bar.case not in by_name:
            continue
        figure = _figure(bar, by_name[bar.case])
        if figure is None:
            verdicts.append(Verdict(bar, "not measured"))
            continue
        met = figure["median"] <= bar.limit
        sure = figure["high"] <= bar.limit if met else figure["low"] > bar.limit
        verdicts.append(Verdict(bar, "met" if met else "missed", figure["median"], figure["low"], figure["high"], sure))
    return verdicts
