"""Copies of Python functions in which the compiled functions that they call are made again, or are Python."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import site
import sys
import sysconfig
import threading
import types as python_types
from collections.abc import Callable, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

from ._bytecode import all_names
from ._kernel_survey import is_recursive
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
            copy = copied(value.py_func, again, done, kinds, stand_in, other)  # type: ignore[attr-defined]
            if not is_recursive(value):
                return again(copy, value)
            if id(value) not in done:  # one for all that call it, itself among them
                done[id(value)] = again(copy, value)
            return done[id(value)]
        if isinstance(value, tuple):
            return _with_members(value, list(map(renewed, value)))
        if stand_in is not None and isinstance(value, ExternFunction):
            return stand_in(value)
        if CPUDispatcher in kinds and (value is random or type(value) is python_types.SimpleNamespace):
            return python_types.SimpleNamespace(**{name: renewed(v) for name, v in vars(value).items()})
        return value if other is None else other(value)

    names = dict(function.__globals__)
    closure = function.__closure__ and tuple(python_types.CellType() for _ in function.__closure__)
    made = python_types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    done[id(function)] = made
    for cell, old in zip(closure or (), function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it has none yet
            cell.cell_contents = renewed(old.cell_contents)
    for name in all_names(function.__code__):
        if name in names:
            names[name] = renewed(names[name])
    return made


def _with_members(value: tuple[Any, ...], members: list[Any]) -> tuple[Any, ...]:
    """Return a tuple with other members; the same one if they are the same."""
    if all(new is old for new, old in zip(members, value, strict=True)):
        return value
    return value._make(members) if hasattr(value, "_make") else tuple(members)


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


def _folders(*paths: str) -> tuple[str, ...]:
    return tuple({f"{Path(path).resolve()}/" for path in paths if path})


#: Where modules are that a worker can import as well as the program: it has the same interpreter and environment.
_INSTALLED: Final = _folders(
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *site.getsitepackages(),
    site.getusersitepackages(),
)
_PATH: Final = _folders(*os.environ.get("PYTHONPATH", "").split(os.pathsep))


@functools.cache
def _distributed() -> frozenset[str]:
    """Return the modules and packages that distributions have brought, wherever they are installed."""
    return frozenset(packages_distributions())


def _is_users(module: object) -> bool:
    """Whether a module is a file of the program's own, which a worker may not find."""
    file = getattr(module, "__file__", None)
    if not isinstance(module, python_types.ModuleType) or not file or module.__name__ == "__main__":
        return False
    named, place = module.__name__.partition(".")[0], str(Path(file).resolve())
    if named == __package__ or place.startswith(_INSTALLED):
        return False
    return not (place.startswith(_PATH) and named in _distributed())


_pickling: Final = threading.Lock()  # what is pickled by value is known to a whole process


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what is the program's own by value, kernels as their functions, and of modules what is asked of them.

    Parameters
    ----------
    stream : io.BytesIO
    names : set of str
        What the functions may ask of modules.
    """

    def __init__(self, stream: io.BytesIO, names: set[str]) -> None:
        super().__init__(stream)
        self._names = names

    def reducer_override(self, obj: Any) -> Any:
        module = sys.modules.get(getattr(obj, "__module__", None) or "")
        if isinstance(obj, CUDADispatcher) or (isinstance(obj, CPUDispatcher) and _is_users(module)):
            return _again, (obj.py_func,)
        if id(obj) in members:  # which would arrive as a copy that nothing knows any more
            return getattr, (cuda, members[id(obj)])
        if _is_users(obj):
            return _namespace, ({name: value for name, value in vars(obj).items() if name in self._names},)
        if isinstance(obj, python_types.FunctionType | type) and module is not None and _is_users(module):
            cloudpickle.register_pickle_by_value(module)
            try:
                return super().reducer_override(obj)
            finally:
                cloudpickle.unregister_pickle_by_value(module)
        return super().reducer_override(obj)


def _namespace(values: dict[str, Any]) -> python_types.SimpleNamespace:
    """Return what has arrived of a module."""
    return python_types.SimpleNamespace(**values)


def _again(function: python_types.FunctionType) -> Any:
    """Decorate a device function that has arrived."""
    return cuda.jit(device=True)(function)


def _reachable_names(function: python_types.FunctionType) -> set[str]:
    """Return the names in a function and in those of the program's own that it can reach."""
    found: set[str] = set()
    left: list[Any] = [function]
    seen: set[int] = set()
    while left:
        one = left.pop()
        one = getattr(one, "py_func", one)
        if id(one) in seen or not isinstance(one, python_types.FunctionType | python_types.ModuleType):
            continue
        seen.add(id(one))
        if isinstance(one, python_types.ModuleType):
            if _is_users(one):
                left += vars(one).values()
            continue
        names = all_names(one.__code__)
        found |= names
        left += [one.__globals__[name] for name in names if name in one.__globals__]
        left += [cell.cell_contents for cell in one.__closure__ or ()]
    return found


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
    with _pickling:
        _Pickler(stream, _reachable_names(copy)).dump(copy)
    return stream.getvalue()
