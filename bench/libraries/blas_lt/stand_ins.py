"""Products where a kernel of CUTLASS may stand in for cuBLASLt, each by both; rules of `stand_in` need the figures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bench.harness import Case, Setup
from bench.harness.common import device
from bench.harness.matrices import on_atomr
from bench.libraries.blas_lt._gemm import Product, add_atomr, small

__all__ = ["CASES"]

_LAYER = Product(8192, 4096, 4096, "bfloat16", turned=True)
#: Products, with their epilogues: some that store aux, gradients, some of one's own by their names in `epilogues`, of
#: float8 with scales, too, and rows that are no multiples of 16 bytes.
PRODUCTS = (
    (_LAYER, "gelu_aux_bias"),
    (_LAYER, "dgelu"),
    (_LAYER, "silu"),
    (_LAYER, "bias_residual"),
    (_LAYER, "silu_forward"),
    (_LAYER, "relu_gradient"),
    (Product(8192, 4096, 4096, "float8_e4m3fn", turned=True), "silu"),
    (Product(4095, 4095, 4095, "bfloat16", turned=True), "default"),
    (Product(4095, 4095, 4095, "bfloat16", turned=True), "bias"),
    (Product(4094, 4094, 4094, "float16", turned=True), "default"),
)
ROUTES = ("cublaslt", "cutlass")


def _operands(epilogue: str, dev: Any, product: Product) -> dict[str, Any]:
    from atomr_native.libraries.blas_lt import epilogues

    if epilogue in epilogues.__all__:
        own = getattr(epilogues, epilogue)
        arrays = {
            name: dev.full((product.n,), 0.5, product.out)
            if kind == "row"
            else on_atomr(dev, (product.m, product.n), product.out)
            for name, kind in own.kinds.items()
        }
        scales = {name: dev.full((), 1.0) for name in ("a_scale", "b_scale") if product.dtype == "float8_e4m3fn"}
        return {"epilogue": own, "operands": arrays or None, **scales}
    given: dict[str, Any] = {"epilogue": epilogue}
    if epilogue.endswith("bias"):
        given["bias"] = dev.full((product.n,), 0.5, product.out)
    if epilogue == "dgelu":
        given["aux"] = on_atomr(dev, (product.m, product.n), product.out)
    return given


def _compile(setup: Setup) -> None:
    """Compile the kernels, all at once."""
    dev = device(setup, "process")

    def plan(product: Product, epilogue: str) -> None:
        one = small(setup, product)
        a, b = (dev.empty(shape, one.dtype) for shape in one.shapes)
        dev.blas_lt.plan(a, b, trans_b=one.turned, route="cutlass", **_operands(epilogue, dev, one))

    with ThreadPoolExecutor(len(PRODUCTS)) as pool:
        for job in [pool.submit(plan, *one) for one in PRODUCTS]:
            job.exception()  # which its contender shows


def stand_ins(setup: Setup) -> None:
    """Time per product by cuBLASLt, with what the library adds to it, and by one kernel of CUTLASS; M x N x K."""
    if not setup.dry:
        _compile(setup)
    for product, epilogue in PRODUCTS:
        names = [f"{route}, {epilogue}, {product.label}" for route in ROUTES]
        for name, route in zip(names, ROUTES, strict=True):
            add_atomr(setup, name, product, partial(_operands, epilogue), route=route)
        setup.ratio(*names)


CASES = (
    Case("gpu_cutlass_stand_ins", "Products by cuBLASLt, and by CUTLASS in its place", stand_ins, devices=("cuda",)),
)
