"""The epilogues of a matrix product on a GPU, beside the plain product and torch's separate kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup
from bench.harness.matrices import on_atomr
from bench.libraries.blas_lt._gemm import Product, add_atomr, add_atomr_recorded, add_torch, add_torch_graph

__all__ = ["BARS", "CASES"]

#: The layers at which epilogues are measured.
SHAPES = (Product(4096, 8192, 8192, "bfloat16", turned=True), Product(1024, 4096, 4096, "bfloat16", turned=True))
#: All but ``default``, which they are compared with.
EPILOGUES = (
    "bias", "relu", "relu_bias", "gelu", "gelu_bias", "relu_aux", "relu_aux_bias", "gelu_aux", "gelu_aux_bias",
    "drelu", "drelu_bgrad", "dgelu", "dgelu_bgrad", "bgrada", "bgradb",
)  # fmt: skip


def _name_of(epilogue: str, product: Product) -> str:
    """What an epilogue of the library is called in the table."""
    return f"atomr {epilogue}, {product.label}"


def _operands(epilogue: str, dev: Any, product: Product) -> dict[str, Any]:
    """Return what an epilogue reads."""
    given: dict[str, Any] = {"epilogue": epilogue}
    if "bias" in epilogue.split("_"):
        given["bias"] = dev.full((product.n,), 0.5, product.out)
    if epilogue.startswith("dgelu"):
        given["aux"] = on_atomr(dev, (product.m, product.n), product.out)
    if epilogue.startswith("drelu"):  # every other bit of the mask
        given["aux"] = dev.full((product.m, -(-product.n // 128) * 16), 0x55, "uint8")
    return given


def _layer(how: str, torch: Any, product: Product, a: Any, b: Any) -> Callable[[], object]:
    """Return a call of torch: a layer with an activation after it, or in one."""
    functional = torch.nn.functional
    w, bias = b.t(), torch.full((product.n,), 0.5, dtype=torch.bfloat16, device="cuda")
    calls: dict[str, Callable[[], object]] = {
        "linear": lambda: functional.linear(a, w, bias),
        "linear, gelu": lambda: functional.gelu(functional.linear(a, w, bias), approximate="tanh"),
        "linear, relu": lambda: functional.relu(functional.linear(a, w, bias)),
        "_addmm_activation, gelu": lambda: torch._addmm_activation(bias, a, b, use_gelu=True),
        "_addmm_activation, relu": lambda: torch._addmm_activation(bias, a, b),
    }
    return calls[how]


#: The library's epilogue, and torch's ways to the same.
LAYERS = {
    "bias": ("linear",),
    "gelu_bias": ("linear, gelu", "_addmm_activation, gelu"),
    "relu_bias": ("linear, relu", "_addmm_activation, relu"),
}


def epilogues(setup: Setup) -> None:
    """Time per product in bfloat16 with each of the sixteen epilogues, M x N x K, weights as (N, K).

    Planned messages with algorithms of the heuristic, counted as in bfloat16 products. What is computed otherwise than
    in one call of cuBLASLt says so in the last column. torch: ``linear`` and a kernel for the activation (GELU by
    tanh), and its own fused function.
    """
    for product in SHAPES:
        plain = _name_of("default", product)
        add_atomr(setup, plain, product)
        add_torch(setup, f"torch mm, {product.label}", product)
        setup.ratio(plain, f"torch mm, {product.label}")
        for epilogue in EPILOGUES:
            add_atomr(setup, _name_of(epilogue, product), product, partial(_operands, epilogue))
            setup.ratio(_name_of(epilogue, product), plain)
        for epilogue, ways in LAYERS.items():
            for how in ways:
                add_torch(setup, f"torch {how}, {product.label}", product, partial(_layer, how))
                setup.ratio(_name_of(epilogue, product), f"torch {how}, {product.label}")


#: Layers of small training steps, and the epilogues that cost most there.
STEPS = (Product(128, 512, 512, "bfloat16", turned=True), Product(512, 2048, 2048, "bfloat16", turned=True))
GRADIENTS = ("dgelu", "dgelu_bgrad", "bgradb")


def _separate(epilogue: str, torch: Any, product: Product, a: Any, b: Any) -> Callable[[], object]:
    """Return a call of torch: the product, and kernels after it for what the epilogue does."""
    aux = torch.full((product.m, product.n), 0.5, dtype=torch.bfloat16, device="cuda")
    gelu = torch.ops.aten.gelu_backward

    def after(grad: Any) -> object:
        if epilogue == "bgradb":
            return b.sum(0)
        grad = gelu(grad, aux, approximate="tanh")
        return grad.sum(0) if epilogue == "dgelu_bgrad" else grad

    return lambda: after(torch.mm(a, b))


def gradients(setup: Setup) -> None:
    """Time per product of a small training step, with the part of a gradient that comes with it, bfloat16.

    Counted as in bfloat16 products. *tuned*: ``tune=True``, which also measures the epilogue in the call and as a
    kernel after it. *recorded*: all products of a sample in one recorded plan. torch: the product and its own kernels,
    eager; *graph*: all products of a sample in one CUDA graph, so no launch of a graph is counted.
    """
    for product in STEPS:
        for epilogue in GRADIENTS:
            operands = partial(_operands, epilogue)
            theirs = (f"torch {epilogue}, {product.label}", f"torch graph {epilogue}, {product.label}")
            for name, add in zip(theirs, (add_torch, add_torch_graph), strict=True):
                add(setup, name, product, partial(_separate, epilogue))
            for tune in (False, True):
                told, recorded = (f"{name}{', tuned' if tune else ''}" for name in _own_names(epilogue, product))
                add_atomr(setup, told, product, operands, tune=tune)
                add_atomr_recorded(setup, recorded, product, operands, tune=tune)
                for other in theirs:
                    setup.ratio(told, other)
                setup.ratio(recorded, theirs[1])


def _own_names(epilogue: str, product: Product) -> tuple[str, str]:
    """What messages one by one and those of a recorded plan are called in the table."""
    name = _name_of(epilogue, product)
    return name, name.replace("atomr ", "atomr recorded ")


BARS = (
    *(
        Bar(
            f"{kind} of small steps over torch's graph",
            "gpu_gradients",
            f"{name}{way}",
            1.0,
            "x",
            f"torch graph {epilogue}, {product.label}",
            part=f"{epilogue}, {product.label}{way}",
        )
        for product in STEPS
        for epilogue in GRADIENTS
        for kind, name in zip(("gradients", "recorded gradients"), _own_names(epilogue, product), strict=True)
        for way in ("", ", tuned")[: 2 if kind.startswith("recorded") else 1]
    ),
    *(
        Bar(
            f"epilogues over the plain product, {product.label}",
            "gpu_gemm_epilogues",
            _name_of(epilogue, product),
            1.03,
            "x",
            under=_name_of("default", product),
            part=epilogue,
        )
        for product in SHAPES
        for epilogue in EPILOGUES
    ),
)
_ON = ("cuda",)
CASES = (
    Case("gpu_gemm_epilogues", "Matrix products with epilogues", epilogues, devices=_ON),
    Case("gpu_gradients", "Small matrix products with parts of gradients", gradients, devices=_ON),
)
