"""Every public call tells the nearest name of a misspelt option."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native import array_api, observe, patterns, testing
from atomr_native._lib.told import ToldFunction
from atomr_native._support.options import named_options

_FACES = {
    "atomr_native": an, "array_api": array_api, "array_api.fft": array_api.fft,
    "array_api.linalg": array_api.linalg, "observe": observe, "patterns": patterns, "testing": testing,
}  # fmt: skip
_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

#: Calls that take further names, and are not called here.
_FREE = {
    "CommunicatorProgram.ask": "in tests/communicators/test_recorded.py",
    "CommunicatorProgram.tell": "in tests/communicators/test_recorded.py",
    "CudaKernel.__init__": "made by Device.cuda_kernel",
    "Context.pool": "the check of System.pool",
    "Context.spawn": "the check of System.spawn",
}


def _calls() -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the function and the class of each public call with options."""
    for face, module in _FACES.items():
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, types.ModuleType) or not callable(value):
                continue
            if not isinstance(value, type):
                yield f"{face}.{name}", value, None
            elif not issubclass(value, BaseException | dict | str | tuple | an.MessageCall | an.Suspect):
                for member in dir(value):
                    found = inspect.getattr_static(value, member)
                    if member == "__init__" or not member.startswith("_"):
                        plain = getattr(found, "__func__", found)
                        if callable(plain) and not isinstance(plain, type) and hasattr(plain, "__code__"):
                            yield f"{name}.{member}", plain, value


CALLS = {name: (function, owner) for name, function, owner in _calls()}


def _options(function: Any) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]


def _free(function: Any) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in _options(function))


def test_every_call_tells_the_nearest_option() -> None:
    seen = 0
    for name, (function, owner) in CALLS.items():
        options = [] if _free(function) else [p.name for p in _options(function) if p.kind in _NAMED]
        made = isinstance(function, ToldFunction)
        for option in options if made or any(p.default is not p.empty for p in _options(function)) else ():
            with pytest.raises(an.UnknownOption) as caught:  # self is refused later, if at all
                function(*([object.__new__(object)] if owner else []), **{option + option[-1]: 1})
            assert caught.value.nearest == option or len(option) == 1, name
            assert caught.value.nearest is not None, name
            seen += 1
            del caught
    assert seen > 600


def test_options_by_name_alone_are_not_taken_by_position() -> None:
    seen = 0
    for function, _ in CALLS.values():
        parameters = list(inspect.signature(function).parameters.values())
        kinds = [p.kind for p in parameters]
        if not isinstance(function, ToldFunction) or inspect.Parameter.KEYWORD_ONLY not in kinds:
            continue
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            places = sum(kind is not inspect.Parameter.KEYWORD_ONLY for kind in kinds)
            with pytest.raises(TypeError, match=r"takes .*positional argument"):
                function(*[object()] * (places + 1))
            seen += 1
    assert seen > 100


def test_calls_bind_their_arguments_as_the_function_does() -> None:
    seen: list[int] = []

    def plain(a: int, b: int = 2, *, c: int = 3, d: int = 4) -> tuple[int, ...]:
        seen.append(a)
        return a, b, c, d

    told = named_options(plain)
    assert told(1) == (1, 2, 3, 4)
    assert told(1, d=9, b=7) == (1, 7, 3, 9)
    assert told(*(1, 5), c=6) == (1, 5, 6, 4)
    for args, options in (((), {"c": 1}), ((1,), {"a": 1}), ((1, 2, 3), {}), ((1, 2, 3, 4, 5), {"d": 1})):
        with pytest.raises(TypeError) as expected:
            plain(*args, **options)
        with pytest.raises(TypeError) as caught:
            told(*args, **options)
        assert str(caught.value) == str(expected.value)
    assert seen == [1, 1, 1]


@pytest.fixture(scope="module")
def dev() -> Iterator[an.Device]:
    with an.System(isolation="thread") as system:
        yield system.device("host")


def _x(dev: an.Device) -> an.GpuRef:
    return dev.put(np.ones((2, 2), np.float32))


def _bound(d: an.Device) -> an.BoundGemm:
    return d.cutlass.bind("layer", _x(d), _x(d), epilogue="acc + bias", operands={"bias": _x(d)})


#: Calls that take further names: with the arguments that they cannot do without, and an option.
OPEN: dict[str, tuple[Callable[[an.Device], Any], str]] = {
    **{
        f"Blas.{name}": (lambda d, name=name: lambda **o: getattr(d.blas, name)(_x(d), _x(d), **o), "alpha")
        for name in ("geam", "gemm", "gemv", "symm", "syrk", "trmm", "trsm")
    },
    "Blas.plan": (lambda d: lambda **o: d.blas.plan("gemm", a=_x(d), b=_x(d), **o), "alpha"),
    "BlasLt.grouped": (lambda d: lambda **o: d.blas_lt.grouped([_x(d)], [_x(d)], **o), "epilogue"),
    "BlasLt.grouped_plan": (lambda d: lambda **o: d.blas_lt.grouped_plan([_x(d)], [_x(d)], **o), "bias"),
    "BlasLt.plan": (lambda d: lambda **o: d.blas_lt.plan(_x(d), _x(d), **o), "progress"),
    **{
        f"BoundGemm.{name}": (lambda d, name=name: lambda **o: getattr(_bound(d), name)(_x(d), **o), "out")
        for name in ("ask", "tell")
    },
    "BoundGemm.refit": (lambda d: lambda **o: _bound(d).refit(**o), "bias"),
    "Cutlass.bind": (lambda d: lambda **o: d.cutlass.bind("layer", _x(d), _x(d), **o), "epilogue"),
    "Cutlass.plan": (lambda d: lambda **o: d.cutlass.plan(_x(d), _x(d), **o), "epilogue"),
    "Cutlass.plan_grouped": (lambda d: lambda **o: d.cutlass.plan_grouped(_x(d), _x(d), _x(d), **o), "epilogue"),
    "Cutlass.refit": (lambda d: lambda **o: (_bound(d), d.cutlass.refit("layer", **o)), "bias"),
    "ElementwiseActor.run": (lambda d: lambda **o: d.elementwise.run("x", x=_x(d), **o), "out"),
    "ElementwiseActor.plan": (lambda d: lambda **o: d.elementwise.plan("x", x=_x(d), **o), "out"),
    "Float8.outputs": (lambda d: lambda **o: d.float8.outputs(_x(d), **o), "scaling"),
    "Float8.plan": (lambda d: lambda **o: d.float8.plan(_x(d), **o), "scaling"),
    **{f"Plan.{name}": (lambda d, name=name: lambda **o: getattr(_plan(d), name)(_x(d), **o), "out")
       for name in ("ask", "tell", "offer")},
    "Plan.send_async": (lambda d: lambda **o: asyncio.run(_plan(d).send_async(_x(d), **o)), "retry"),
    **{
        f"RecordedPlan.{name}": (
            lambda d, name=name: functools.partial(getattr(_graph(d).plan(_x(d)), name), _x(d)), "rate",
        )
        for name in ("ask", "tell", "offer")
    },
    "RecordedPlan.send_async": (
        lambda d: lambda **o: asyncio.run(_graph(d).plan(_x(d)).send_async(_x(d), **o)), "retry",
    ),
    "GraphFunction.plan": (lambda d: lambda **o: _graph(d).plan(_x(d), **o), "rate"),
    **{
        f"Random.{name}": (lambda d, name=name: lambda **o: getattr(d.random, name)(**o), "generator")
        for name in ("bernoulli", "beta", "binomial", "cauchy", "exponential", "gamma", "geometric", "integers",
                     "lognormal", "normal", "poisson", "truncated_normal")
    },
    "Random.uniform": (lambda d: lambda **o: d.random.uniform((2,), **o), "high"),
    "Random.permutation": (lambda d: lambda **o: d.random.permutation(3, **o), "dtype"),
    "Random.shuffle": (lambda d: lambda **o: d.random.shuffle(_x(d), **o), "seed"),
    "Random.discrete": (lambda d: lambda **o: d.random.discrete([1.0, 2.0], (3,), **o), "replace"),
    "Tensor.einsum_path": (lambda d: lambda **o: d.tensor.einsum_path("ij->ji", _x(d), **o), "route"),
    "Tensor.einsum_gradient": (
        lambda d: lambda **o: d.tensor.einsum_gradient("ij->ji", _x(d), grad=_x(d), **o), "route",
    ),
    "System.spawn": (lambda d: lambda **o: d.system.spawn(patterns.Batcher, print, **o), "max_size"),
    "System.pool": (lambda d: lambda **o: d.system.pool(patterns.Batcher, print, size=1, **o), "max_size"),
    "Deterministic.__init__": (lambda _: testing.Deterministic, "mailbox_size"),
    "FaultyDevice.__init__": (lambda _: testing.FaultyDevice, "mailbox_size"),
}  # fmt: skip


def _graph(dev: an.Device) -> an.GraphFunction[..., Any]:
    @dev.graph
    def step(x: an.GpuRef, rate: float = 1.0) -> None:
        dev.elementwise.run("x *= rate", x=x, rate=rate)

    return step


def _plan(dev: an.Device) -> an.Plan:
    return dev.elementwise.plan("a * x", a=2.0, x=_x(dev))


@pytest.mark.parametrize("call", OPEN)
def test_calls_that_take_further_names(dev: an.Device, call: str) -> None:
    made, nearest = OPEN[call]
    option = nearest + nearest[-1]
    with pytest.raises(an.UnknownOption) as caught:
        made(dev)(**{option: 1})
    assert (caught.value.option, caught.value.nearest) == (option, nearest)
    del caught


def test_no_other_call_takes_further_names() -> None:
    assert {name for name, (function, _) in CALLS.items() if _free(function)} - set(_FREE) == set(OPEN)


def test_a_told_function_is_its_function() -> None:
    def scale(x: float, *, by: float = 2.0) -> float:
        """Scale a number."""
        if x < 0:
            raise TypeError("negative")
        return x * by

    told = named_options(scale)
    assert (told(3, by=3), told(2), told.__name__, told.__doc__) == (9, 4, "scale", "Scale a number.")
    assert inspect.signature(told) == inspect.signature(scale)
    assert inspect.unwrap(told) is scale
    assert pickle.loads(pickle.dumps(an.gather)) is an.gather
    for wrong in (lambda: told(-1, by=2), lambda: told(), lambda: told(1, 2), lambda: told(1, x=2)):  # type: ignore
        with pytest.raises(TypeError) as caught:
            wrong()
        assert not isinstance(caught.value, an.AtomrError)
        del caught


def test_a_call_has_one_frame_of_python() -> None:
    import sys

    class Deep:
        def depth(self, *, out: int = 0) -> tuple[int, Any]:
            return out, sys._getframe(1)

    Deep.depth = named_options(Deep.depth)  # type: ignore[method-assign]
    assert Deep().depth(out=7) == (7, sys._getframe())
