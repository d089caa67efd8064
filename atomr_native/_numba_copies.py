"""Copies of Python functions in which the compiled functions that they call are made again, or are Python."""

from __future__ import annotations

import io
import types as python_types
from collections.abc import Callable, Mapping
from typing import Any, Final

from ._numba import CPUDispatcher, CUDADispatcher, ExternFunction, FakeCUDAKernel, cloudpickle, cuda, random
from ._simulated_cuda import SimulatedModule

__all__ = ["as_python", "copied", "members", "pickled", "simulated_copy", "twin"]

_SIMULATED: Final = (CUDADispatcher, CPUDispatcher)
#: What stands in for things of a GPU, by their identity; with the thing itself, which must stay alive for that.
_twins: Final[dict[int, tuple[Any, Callable[..., Any]]]] = {}

_Again = Callable[[python_types.FunctionType, Any], Any]


def copied(
    function: python_types.FunctionType,
    again: _Again,
    done: dict[int, Any],
    kinds: tuple[type, ...] = (CUDADispatcher,),
    stand_in: Callable[[Any], Any] | None = None,
    other: Callable[[Any], Any] | None = None,
) -> python_types.FunctionType:
    """Return a copy of a function in which each compiled function that it calls is made `again` of a copy."""
    if id(function) in done:
        return done[id(function)]  # type: ignore[no-any-return]

    def renewed(value: Any) -> Any:
        if CPUDispatcher in kinds and id(value) in _twins:
            return _twins[id(value)][1]
        if isinstance(value, kinds):
            return again(copied(value.py_func, again, done, kinds, stand_in, other), value)  # type: ignore[attr-defined]
        if stand_in is not None and isinstance(value, ExternFunction):
            return stand_in(value)
        if value is random and CPUDispatcher in kinds:
            return python_types.SimpleNamespace(**{name: renewed(v) for name, v in vars(random).items()})
        return value if other is None else other(value)

    names = dict(function.__globals__)
    closure = function.__closure__ and tuple(
        python_types.CellType(renewed(c.cell_contents)) for c in function.__closure__
    )
    made = python_types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure)
    done[id(function)] = made
    for name in function.__code__.co_names:
        if name in names:
            names[name] = renewed(names[name])
    return made


def as_python(function: object) -> Callable[..., Any]:
    """Return a device function as plain Python, with those that it calls, for one thread and its numbers."""
    python = function.py_func if isinstance(function, CUDADispatcher) else function
    return copied(python, lambda copy, _: copy, {}, _SIMULATED)  # type: ignore[arg-type]


def simulated_copy(
    function: python_types.FunctionType, other: Callable[[Any], Any]
) -> tuple[Callable[..., Any], tuple[python_types.FunctionType, ...]]:
    """Return a kernel as Python, and all functions it is made of; `other` says what stands in for what else they name.

    What has a `twin` is replaced by that, and compiled functions by their Python.
    """
    done: dict[int, Any] = {}
    made = copied(function, lambda copy, _: copy, done, _SIMULATED, other=other)
    return made, tuple(done.values())


def twin(python: Callable[..., Any], *, cooperates: bool = False) -> Callable[[Any], Any]:
    """Decorate what only a GPU has (an intrinsic, a device function) with the Python that a simulated kernel calls.

    With `cooperates` that is written as a device function: it uses `cuda`, and every thread calls it.
    """

    def register(made: Any) -> Any:
        _twins[id(made)] = made, (FakeCUDAKernel(python, device=True) if cooperates else python)
        return made

    return register


#: What kernels ask of `cuda` and its simulator has too, by identity.
members: Final = {
    id(getattr(cuda, name)): name
    for name in dir(SimulatedModule((1, 1, 1), (1, 1, 1), 0))
    if not name.startswith("_") and hasattr(cuda, name)
}


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions by value, and kernels as their functions."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CUDADispatcher):
            return _again, (obj.py_func,)
        if id(obj) in members:  # which would arrive as a copy that nothing knows any more
            return getattr, (cuda, members[id(obj)])
        return super().reducer_override(obj)


def _again(function: python_types.FunctionType) -> Any:
    """Decorate a device function that has arrived."""
    return cuda.jit(device=True)(function)


def pickled(
    function: python_types.FunctionType, stand_ins: Mapping[str, python_types.FunctionType] | None = None
) -> bytes:
    """Return a function with all that it refers to, for `pickle.loads` in a worker of this version.

    Functions that it declares (``cuda.declare_device``) become their stand-ins, where they have any.
    """

    def again(copy: python_types.FunctionType, _: object) -> Any:
        copy.__module__ = "__main__"
        return cuda.jit(device=True)(copy)

    done: dict[int, Any] = {}

    def stand_in(declared: ExternFunction) -> Any:
        python = (stand_ins or {}).get(declared.name)
        return declared if python is None else again(copied(python, again, done, stand_in=stand_in), declared)

    # By value, whatever module it is from: the worker may not be able to import that.
    copy = copied(function, again, done, stand_in=stand_in)
    copy.__module__ = "__main__"
    stream = io.BytesIO()
    _Pickler(stream).dump(copy)
    return stream.getvalue()
