"""Graphs of a user's own against NumPy in float64, on every kind of device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cudnn_reference import ACTIVATIONS, assert_close, convolved, random_images

import atomr_native as an
from atomr_native.libraries.cudnn.support import is_fusion

RNG = np.random.default_rng(31)
Array = np.ndarray[Any, Any]


def swiglu(x: Any, w: Any, bias: Any, gate: Any) -> Any:
    return (x @ w + bias).apply("silu") * gate


def images(x: Any, w: Any, scale: Any, residual: Any) -> Any:
    return (x.convolve(w, padding=1) * scale + residual).apply("relu")


def both(x: Any, w: Any, v: Any) -> Any:
    return (x @ w).apply("silu") * (x @ v)


def centred(x: Any) -> Any:
    mean = x.reduce("mean", -1)
    return x - mean, (1 - x).reduce("max", (0, 1)) / 2


def flattened(x: Any, w: Any) -> Any:
    return (2 * x).reshape(x.shape[0], 12).maximum(-w)


#: Functions, shapes, and the same in NumPy.
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], Callable[..., Any]]] = {
    "SwiGLU": (
        swiglu,
        ((5, 7), (7, 6), (6,), (5, 6)),
        lambda x, w, b, g: ACTIVATIONS["silu"](x @ w + b) * g,
    ),
    "images": (
        images,
        ((2, 4, 5, 3), (8, 4, 3, 3), (8, 1, 1), (2, 8, 5, 3)),
        lambda x, w, s, r: np.maximum(convolved(x, w, padding=1) * s + r, 0),
    ),
    "two products": (both, ((4, 3, 5), (4, 5, 2), (4, 5, 2)), lambda x, w, v: ACTIVATIONS["silu"](x @ w) * (x @ v)),
    "reductions": (
        centred,
        ((3, 4, 6),),
        lambda x: (x - x.mean(-1, keepdims=True), (1 - x).max((0, 1), keepdims=True) / 2),
    ),
    "reshape": (flattened, ((3, 4, 3), (12,)), lambda x, w: np.maximum((2 * x).reshape(3, 12), -w)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_graphs(device: an.Device, case: str, dtype: str) -> None:
    function, shapes, formula = CASES[case]
    arrays = [random_images(RNG, shape, dtype) for shape in shapes]
    wanted = formula(*(a.astype(np.float64) for a in arrays))
    found = device.cudnn.graph(function, *map(device.put, arrays))
    assert isinstance(found, tuple) is isinstance(wanted, tuple)
    for one, value in zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]:
        assert one.shape == value.shape
        assert str(one.dtype) == dtype
        assert_close(one.numpy(), value, dtype, 4.0)


def test_layouts_and_outputs(device: an.Device) -> None:
    """Views with the channels innermost, steps between elements, and an output that is given."""
    x, w = random_images(RNG, (1, 5, 4, 8), "float32"), random_images(RNG, (8, 3, 3, 8), "float32")
    gx, gw = (device.put(a).transpose(0, 3, 1, 2) for a in (x, w))
    out = device.zeros((1, 8, 6, 4), "float32")[:, :, ::2]
    scale = device.put(np.float32([[[2.0]]]))
    residual = device.zeros((1, 8, 1, 1), "float32")
    how = {"stride": (2, 1), "padding": 1}

    def function(a: Any, b: Any, s: Any, r: Any) -> Any:
        return a.convolve(b, **how) * s + r

    if device.kind != "host":
        plan = device.cudnn.plan(an.GraphRequest(function=function, operands=(gx, gw, scale, residual), out=out))
        assert plan.notes == ("2 steps: cuDNN does not take the operands as they lie in memory",)
    y = device.cudnn.graph(function, gx, gw, scale, residual, out=out)
    assert y is out
    assert_close(y.numpy(), 2 * convolved(np.moveaxis(x, -1, 1), np.moveaxis(w, -1, 1), **how), "float32", 4.0)


@pytest.mark.parametrize("turned", [False, True])
def test_products_of_float32_are_exact(device: an.Device, turned: bool) -> None:
    """Batches, factors that lie by columns, with steps between rows, and anyhow, in float32 and mixed with float16."""
    for left, right in (("float32", "float32"), ("float32", "float16")):
        a, b = random_images(RNG, (3, 2, 5, 40), left), random_images(RNG, (3, 2, 40, 6), right)
        ga, gb = (device.put(x.swapaxes(-1, -2).copy() if turned else x) for x in (a, b))
        ga, gb = (x.mT if turned else x for x in (ga, gb))
        pairs = [(ga, gb, a, b), (ga[:, :, ::2], gb[..., ::2], a[:, :, ::2], b[..., ::2])]
        for x, y, p, q in pairs:
            found = device.cudnn.graph(lambda m, n: m @ n, x, y).numpy()
            wanted = p.astype(float) @ q.astype(float)
            assert_close(found, wanted, left, 8.0)
        loose = device.cudnn.plan(an.GraphRequest(function=lambda m, n: m @ n, operands=(ga, gb)))
        assert device.kind == "host" or "TF32" in loose.notes[0]


@pytest.mark.parametrize(
    ("case", "one"), [("SwiGLU", True), ("images", True), ("two products", False), ("reductions", False)]
)
def test_what_may_be_one_plan(case: str, one: bool) -> None:
    function, shapes, _ = CASES[case]
    request = an.GraphRequest(function=function, operands=tuple(np.zeros(shape, "float32") for shape in shapes))
    assert is_fusion(request.lowered.spec().attributes) is one


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda a, b: a @ b, r"a product of shapes \(2, 3, 4\) and \(4, 4\); allowed: equal axes"),
        (lambda a, b: a @ a, r"a product of shapes \(2, 3, 4\) and \(2, 3, 4\); allowed: \(..., m, k\)"),
        (lambda a, b: a + b, r"add of shapes \(2, 3, 4\) and \(4, 4\); allowed: shapes that broadcast"),
        (lambda a, b: a + "one", "'one' in a graph; allowed: its tensors"),
        (lambda a, b: a.apply("selu"), "function='selu'; allowed: 'relu'"),
        (lambda a, b: a.reduce("sum", 3), "axis=3; allowed: axes of 3"),
        (lambda a, b: a.reshape(5, 5), r"reshape of \(2, 3, 4\) to \(5, 5\); allowed: as many elements"),
        (lambda a, b: a.reshape(2, 3, 2, 2), "reshape to 4 axes; allowed: 3"),
        (lambda a, b: a.convolve(b), "a convolution of shapes"),
        (lambda a, b: 3, "the function's result is 3; allowed: tensors"),
        (lambda a, b: (), "the function has no result"),
    ],
)
def test_bad_graphs(function: Callable[..., Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        an.GraphRequest(function=function, operands=(np.zeros((2, 3, 4)), np.zeros((4, 4))))


def test_bad_options() -> None:
    x = np.zeros((2, 3), "float32")
    for options, text in [
        ({"operands": ()}, r"operands=\(\); allowed: a tuple of one array or more"),
        ({"operands": (x, x.astype(float))}, "operands of dtypes float32, float64; allowed: all float64, or none"),
        ({"operands": (np.zeros((1,) * 6, "float32"),)}, "an operand has 6 axes; allowed: 5"),
        ({"function": 3}, "function=3; allowed: a function of tensors"),
        ({"out": np.zeros((2, 3))}, "out has dtype float64; allowed"),
        ({"function": lambda a: (a, a), "out": np.zeros((2, 3), "float32")}, "the function has 2 results"),
    ]:
        with pytest.raises(an.InvalidRequest, match=text):
            an.GraphRequest(**{"function": lambda *tensors: tensors[0] + 1, "operands": (x,), **options})
    kept: list[Any] = []
    an.GraphRequest(function=lambda a: (kept.append(a), a + 1)[1], operands=(x,))
    with pytest.raises(an.InvalidRequest, match="a tensor of another graph"):
        an.GraphRequest(function=lambda a: a + kept[0], operands=(x,))
