"""Copies of Python functions, with the compiled functions that they call recompiled or replaced by Python."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import site
import sys
import sysconfig
import types as python_types
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

import cloudpickle

from ..._lib.guard import Lock
from ..._support import by_value
from ..bytecode import all_names
from .api import CPUDispatcher, CUDADispatcher, ExternFunction, FakeCUDAKernel, cuda, random
from .simulated_cuda import SimulatedModule
from .survey import is_recursive

__all__ = ["as_python", "copied", "members", "pickled", "simulated_copy", "twin"]

_SIMULATED: Final = (CUDADispatcher, CPUDispatcher)
#: Python replacements of GPU objects, by identity; the objects are stored, too, to keep their ids valid.
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
    """Return a copy of a function in which `again` recreates each called compiled function from a copy."""
    if id(function) in done:
        return done[id(function)]  # type: ignore[no-any-return]

    def renewed(value: Any) -> Any:
        if CPUDispatcher in kinds and id(value) in _twins:
            return _twins[id(value)][1]
        if isinstance(value, kinds):
            copy = copied(value.py_func, again, done, kinds, stand_in, other)  # type: ignore[attr-defined]
            if not is_recursive(value):
                return again(copy, value)
            if id(value) not in done:  # one copy for all callers, including itself
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
    """Return a tuple with new members; the same tuple if they are unchanged."""
    if all(new is old for new, old in zip(members, value, strict=True)):
        return value
    return value._make(members) if hasattr(value, "_make") else tuple(members)


def as_python(function: object) -> Callable[..., Any]:
    """Return a device function and its callees as plain Python, for the numbers of one thread."""
    python = function.py_func if isinstance(function, CUDADispatcher) else function
    return copied(python, lambda copy, _: copy, {}, _SIMULATED)  # type: ignore[arg-type]


def simulated_copy(
    function: python_types.FunctionType, other: Callable[[Any], Any]
) -> tuple[Callable[..., Any], tuple[python_types.FunctionType, ...]]:
    """Return a kernel as Python, and all its functions; `other` maps other objects to replacements.

    Objects with a `twin` are replaced by it, and compiled functions by their Python.
    """
    done: dict[int, Any] = {}
    made = copied(function, lambda copy, _: copy, done, _SIMULATED, other=other)
    return made, tuple(done.values())


def twin(python: Callable[..., Any], *, cooperates: bool = False) -> Callable[[Any], Any]:
    """Decorate a GPU-only object (an intrinsic, a device function) with its Python for simulated kernels.

    With `cooperates` the Python is written as a device function: it uses `cuda`, and every thread calls it.
    """

    def register(made: Any) -> Any:
        _twins[id(made)] = made, (FakeCUDAKernel(python, device=True) if cooperates else python)
        return made

    return register


#: Members of `cuda` that its simulator has, too, by identity.
members: Final = {
    id(getattr(cuda, name)): name
    for name in dir(SimulatedModule((1, 1, 1), (1, 1, 1), 0))
    if not name.startswith("_") and hasattr(cuda, name)
}


def _folders(*paths: str) -> tuple[str, ...]:
    return tuple({f"{Path(path).resolve()}/" for path in paths if path})


#: Folders of modules that a worker can import, too, with the same interpreter and environment.
_INSTALLED: Final = _folders(
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *site.getsitepackages(),
    site.getusersitepackages(),
)


def _beside() -> Iterator[str]:
    """Yield other folders of distributions, which `.pth` files name: those of an environment below this one."""
    for folder in (*site.getsitepackages(), site.getusersitepackages()):
        for file in Path(folder).glob("*.pth"):
            for line in file.read_text("utf-8", "replace").splitlines():
                if line.strip() and not line.startswith(("#", "import ", "import\t")):
                    place = Path(folder, line.strip())
                    if any(place.glob("*.dist-info")):
                        yield str(place)


_PATH: Final = _folders(*os.environ.get("PYTHONPATH", "").split(os.pathsep), *_beside())


@functools.cache
def _distributed() -> frozenset[str]:
    """Return the modules and packages of installed distributions, wherever they are."""
    return frozenset(packages_distributions())


def _is_users(module: object) -> bool:
    """Whether a module is a file of the program, which a worker may not find."""
    file = getattr(module, "__file__", None)
    if not isinstance(module, python_types.ModuleType) or not file or module.__name__ == "__main__":
        return False
    named, place = module.__name__.partition(".")[0], str(Path(file).resolve())
    if named == __package__.partition(".")[0] or place.startswith(_INSTALLED):
        return False
    return not (place.startswith(_PATH) and named in _distributed())


_pickling = Lock()  # the registry of modules pickled by value is global


class _Pickler(by_value.Pickler):
    """Pickles the program's own objects by value, kernels as functions, and of modules only the used attributes.

    Parameters
    ----------
    stream : io.BytesIO
    names : set of str
        Names that the functions may use of modules.
    """

    def __init__(self, stream: io.BytesIO, names: set[str]) -> None:
        super().__init__(stream)
        self._names = names

    def reducer_override(self, obj: Any) -> Any:
        module = sys.modules.get(getattr(obj, "__module__", None) or "")
        if isinstance(obj, CUDADispatcher) or (isinstance(obj, CPUDispatcher) and _is_users(module)):
            return _again, (obj.py_func,)
        if id(obj) in members:  # which would arrive as an unknown copy
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
    """Return the received part of a module."""
    return python_types.SimpleNamespace(**values)


def _again(function: python_types.FunctionType) -> Any:
    """Decorate a received device function."""
    return cuda.jit(device=True)(function)


def _reachable_names(function: python_types.FunctionType) -> set[str]:
    """Return the names in a function and in the program's functions that it can reach."""
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
    """Return a function with all its references, for `pickle.loads` in a worker of this version.

    Declared functions (``cuda.declare_device``) are replaced by their stand-ins, if they have any.
    """

    def again(copy: python_types.FunctionType, _: object) -> Any:
        copy.__module__ = "__main__"
        return cuda.jit(device=True)(copy)

    done: dict[int, Any] = {}

    def stand_in(declared: ExternFunction) -> Any:
        python = (stand_ins or {}).get(declared.name)
        return declared if python is None else again(copied(python, again, done, stand_in=stand_in), declared)

    # By value, regardless of its module, which the worker may not be able to import.
    copy = copied(function, again, done, stand_in=stand_in)
    copy.__module__ = "__main__"
    stream = io.BytesIO()
    with _pickling:
        _Pickler(stream, _reachable_names(copy)).dump(copy)
    return stream.getvalue()
