"""The one module that imports `numba.cuda`: what a kernel is, its types, its code.

Nothing here needs a GPU.  Importing it takes about 0.4 s, so that it is imported when the first kernel is made.
"""

from __future__ import annotations

import io
import sys
import threading
import types as python_types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from . import _kernel_debug, _kernel_links
from ._kernel_links import LinkPart
from .dtypes import as_dtype, dtype_name
from .errors import InvalidRequest, LibraryError, Unsupported

__all__ = [
    "CUDADispatcher",
    "Compiled",
    "ExternFunction",
    "array_type",
    "as_python",
    "capability",
    "compile_ltoir",
    "cuda",
    "device_function",
    "device_python",
    "device_runtime",
    "intrinsic",
    "is_dispatcher",
    "jit_options",
    "libdevice",
    "llvm",
    "on_processor",
    "pickled",
    "pointer_type",
    "python_function",
    "record_array_type",
    "record_type",
    "SharedMemory",
    "scalar_type",
    "simulated",
    "simulated_array",
    "tuple_type",
    "twin",
    "types",
    "with_checks",
]

_HINT: Final = "`pip install atomr-native[cu13]` (or [cu12], whichever CUDA the driver has) brings it"
#: Options of ``@cuda.jit`` that are taken over; the others of a dispatcher must be at their defaults.
_OPTIONS: Final = {"fastmath": False, "lineinfo": False, "opt": True, "debug": False}
_IGNORED: Final = frozenset({"nopython", "boundscheck", "device", "lto", "extensions", "inline", "forceinline"})

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cloudpickle
        from numba import cuda, njit, vectorize
        from numba.core.registry import CPUDispatcher
        from numba.cuda import compiler, libdevice, random, types
        from numba.cuda import dispatcher as _dispatcher
        from numba.cuda.cgutils import ir as llvm
        from numba.cuda.compiler import ExternFunction
        from numba.cuda.cudadrv.libs import get_cudalib
        from numba.cuda.cudadrv.linkable_code import LinkableCode
        from numba.cuda.dispatcher import CUDADispatcher
        from numba.cuda.extending import intrinsic
        from numba.cuda.np.numpy_support import from_dtype
        from numba.cuda.simulator import kernelapi as _simulator
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
        from numba.cuda.simulator.kernel import FakeCUDAKernel
except ImportError as error:
    raise Unsupported(
        f"Numba kernels need numba-cuda and cloudpickle, which cannot be imported ({error}); {_HINT}"
    ) from None


def is_dispatcher(kernel: object) -> bool:
    """Whether an object is what ``@cuda.jit`` makes of a function."""
    return isinstance(kernel, CUDADispatcher | FakeCUDAKernel)


def python_function(kernel: object) -> python_types.FunctionType:
    """Return the Python function of a kernel: of a ``@cuda.jit`` dispatcher, or the function itself.

    Raises
    ------
    InvalidRequest
        For anything else, a device function among them.
    """
    if is_dispatcher(kernel):
        function = kernel.py_func  # type: ignore[attr-defined]
        device = getattr(kernel, "_device", False) or getattr(kernel, "targetoptions", {}).get("device", False)
        if device:
            raise InvalidRequest(
                f"{function.__name__} is a device function, which cannot be launched; call it in a kernel"
            )
        kernel = function
    if not isinstance(kernel, python_types.FunctionType):
        raise InvalidRequest(
            f"kernel is a {type(kernel).__name__}; allowed: a function decorated with numba.cuda.jit, or a plain one"
        )
    return kernel


def jit_options(kernel: object) -> dict[str, Any]:
    """Return the options that a dispatcher was made with, as `compile_ltoir` takes them.

    Raises
    ------
    Unsupported
        For an option that cannot be carried over.
    """
    given = dict(getattr(kernel, "targetoptions", {}))
    found = {name: given.pop(name, default) for name, default in _OPTIONS.items()}
    found |= {name: given.pop(name, None) for name in ("max_registers", "launch_bounds")}
    found["link"] = tuple(_link_part(part) for part in given.pop("link", None) or ())
    left = sorted(name for name, value in given.items() if name not in _IGNORED and value)
    if left:
        raise Unsupported(f"a kernel with {', '.join(left)}; options that are taken over: {', '.join(found)}")
    return found


#: What Numba calls code to link with, and what it is.
_LINKED: Final = {"CUSource": "cu", "PTXSource": "ptx", "LTOIR": "ltoir", "Archive": "library", "Cubin": "cubin"}


def _link_part(given: object) -> LinkPart:
    """Return what stands in ``link=[...]``: a file, or one of Numba's objects with code."""
    if isinstance(given, str | Path):
        return _kernel_links.from_file(given)
    kind = _LINKED.get(type(given).__name__) if isinstance(given, LinkableCode) else None
    if not isinstance(given, LinkableCode) or kind is None:
        raise InvalidRequest(f"link has a {type(given).__name__}; allowed: paths, and cuda's {', '.join(_LINKED)}")
    if given.nrt or given.setup_callback or given.teardown_callback:
        raise Unsupported(
            f"link has {given.name} with nrt, setup_callback or teardown_callback: the worker that loads the code has "
            f"neither Numba's runtime nor your functions"
        )
    data = given.data
    return LinkPart(kind, data.encode() if isinstance(data, str) else bytes(data), str(given.name))


def device_runtime() -> LinkPart:
    """Return CUDA's device runtime, which has what kernels call to wait for their grid.

    Raises
    ------
    Unsupported
        If it is not installed.
    """
    try:
        return _kernel_links.from_file(get_cudalib("cudadevrt", static=True))
    except (InvalidRequest, ValueError, TypeError, OSError) as error:
        raise Unsupported(f"synchronising a grid needs libcudadevrt.a ({error}); {_HINT}") from None


def array_type(dtype: np.dtype[Any], ndim: int, order: str) -> Any:
    """Return Numba's type of an array; `order` is ``"C"``, ``"F"`` or ``"A"`` (any strides).

    Raises
    ------
    Unsupported
        For a dtype that Numba has no arrays of.
    """
    name = dtype_name(as_dtype(dtype))
    if name == "bfloat16":
        element = types.bfloat16
    elif name.startswith("float8"):
        raise Unsupported(f"Numba has no arrays of {name}; pass ref.view('uint8') and convert in the kernel")
    else:
        element = from_dtype(dtype)
    return types.Array(element, ndim, order)


def with_checks(
    function: python_types.FunctionType, types_: Sequence[Any]
) -> tuple[python_types.FunctionType, tuple[str, ...]]:
    """Return a kernel whose indices are checked, for these argument types; see `_kernel_debug.instrument`."""
    axes = [t.ndim if isinstance(t, types.Array) else None for t in types_]
    return _kernel_debug.instrument(function, axes, cuda, is_dispatcher)


def scalar_type(name: str) -> Any:
    """Return Numba's type of a scalar by NumPy's name, such as ``"int64"``."""
    return from_dtype(np.dtype(name))


def record_array_type(dtype: np.dtype[Any], ndim: int) -> Any:
    """Return Numba's type of a contiguous array of structs."""
    return types.Array(from_dtype(dtype), ndim, "C")


def record_type(dtype: np.dtype[Any]) -> Any:
    """Return Numba's type of one struct; kernels take its address."""
    return from_dtype(dtype)


def pointer_type(name: str) -> Any:
    """Return Numba's type of a pointer to numbers, by NumPy's name for them."""
    return types.CPointer(scalar_type(name))


def tuple_type(members: Sequence[Any]) -> Any:
    """Return Numba's type of a tuple."""
    return types.BaseTuple.from_types(members)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel before it is linked.

    Attributes
    ----------
    code : bytes
        LTO-IR.
    entry : str
        The kernel's name in it.
    links : tuple of LinkPart
        What declared functions bring along.
    cooperative : bool
        Whether blocks wait for each other.
    """

    code: bytes
    entry: str
    links: tuple[LinkPart, ...]
    cooperative: bool


def compile_ltoir(
    function: python_types.FunctionType, arguments: Sequence[Any], capability: tuple[int, int], options: dict[str, Any]
) -> Compiled:
    """Compile a Python function, as a kernel, to LTO-IR of a compute capability.  Waits for the compiler.

    Raises
    ------
    LibraryError
        With Numba's text, if it does not compile.
    Unsupported
        If NVVM is not installed.
    """
    # Device functions keep what was compiled of them, be it for another GPU: hence new ones.
    fresh = _copy(function, lambda f, old: cuda.jit(**{**old.targetoptions, "device": True})(f), {})
    _target.compute_capability = capability
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # As `cuda.compile` does, which tells neither what is to be linked, nor whether the grid is synchronised.
            library, _ = compiler._compile_pyfunc_with_fixup(
                fresh,
                tuple(arguments),
                device=False,
                abi="numba",
                cc=capability,
                lto=True,
                **{name: options[name] for name in _OPTIONS},
            )
            code = bytes(library.get_ltoir(cc=capability))
    except (OSError, RuntimeError) as error:
        raise Unsupported(f"compiling a Numba kernel needs NVVM ({str(error)[:500]}); {_HINT}") from None
    except Exception as error:
        text = str(error).strip()
        raise LibraryError("numba", 0, type(error).__name__, f"compiling {function.__name__}", text[:4000]) from None
    finally:
        _target.compute_capability = None
    links = tuple(sorted(_link_part(part) for part in library._linking_files))
    return Compiled(code, library._entry_name, links, bool(library.use_cooperative))


def device_python(function: object) -> python_types.FunctionType:
    """Return the Python function of a device function, or the function itself.

    Raises
    ------
    InvalidRequest
        For anything else.
    """
    python = function.py_func if is_dispatcher(function) else function  # type: ignore[attr-defined]
    if not isinstance(python, python_types.FunctionType):
        raise InvalidRequest(
            f"function is a {type(function).__name__}; allowed: a function, or what numba.cuda.jit made"
        )
    return python


def device_function(function: object, signature: str, name: str | None, capability: tuple[int, int]) -> bytes:
    """Return a device function as LTO-IR with the C interface; see `atomr_native.device_function`."""
    python = device_python(function)
    fresh = _copy(python, lambda f, old: cuda.jit(**{**old.targetoptions, "device": True})(f), {})
    _target.compute_capability = capability
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code, _ = cuda.compile(
                fresh, signature, device=True, abi="c", abi_info={"abi_name": name or python.__name__}, cc=capability,
                output="ltoir",
            )  # fmt: skip
    except (OSError, RuntimeError) as error:
        raise Unsupported(f"compiling a Numba function needs NVVM ({str(error)[:500]}); {_HINT}") from None
    except Exception as error:
        text = str(error).strip()
        raise LibraryError("numba", 0, type(error).__name__, f"compiling {python.__name__}", text[:4000]) from None
    finally:
        _target.compute_capability = None
    return bytes(code)


def on_processor(
    function: python_types.FunctionType, arguments: int, results: int, dtype: str
) -> tuple[Callable[..., Any], ...]:
    """Compile a device function of numbers for this processor, as one ufunc for each of its results.

    Divisions by zero and the like are NumPy's.  Waits for the compiler.

    Raises
    ------
    LibraryError
        With Numba's text, if it does not compile.
    """

    def again(copy: python_types.FunctionType, _: object) -> Any:
        return njit(error_model="numpy")(copy)

    names = ", ".join(f"a{i}" for i in range(arguments))
    made = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scope = {"f": again(_copy(function, again, {}), None)}
            for i in range(results):
                part = f"[{i}]" if results > 1 else ""
                one = eval(f"lambda {names}: f({names}){part}", scope)  # noqa: S307 - of the names above
                made.append(vectorize([f"{dtype}({', '.join([dtype] * arguments)})"])(one))
    except Exception as error:
        text = str(error).strip()
        raise LibraryError("numba", 0, type(error).__name__, f"compiling {function.__name__}", text[:4000]) from None
    return tuple(made)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions by value, and kernels as their functions."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CUDADispatcher):
            return _again, (obj.py_func,)
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
        return declared if python is None else again(_copy(python, again, done, stand_in=stand_in), declared)

    # By value, whatever module it is from: the worker may not be able to import that.
    copy = _copy(function, again, done, stand_in=stand_in)
    copy.__module__ = "__main__"
    stream = io.BytesIO()
    _Pickler(stream).dump(copy)
    return stream.getvalue()


def simulated(function: python_types.FunctionType) -> Callable[..., Any]:
    """Return a kernel that Numba's simulator runs on the CPU: ``simulated(f)[grid, block, 0, shared](*arguments)``.

    The function is copied with its device functions, so that neither it nor its module changes.  Slow: each thread of
    a block is a thread of the system.  One launch at a time in a process.
    """

    def again(copy: python_types.FunctionType, old: Any) -> Any:
        # What is for the CPU as well as for kernels (Numba's generators of random numbers) runs as plain Python.
        # So does what asks nothing of `cuda`, which is much quicker.
        plain = isinstance(old, CPUDispatcher) or not any(value is cuda for value in copy.__globals__.values())
        return copy if plain else FakeCUDAKernel(copy, device=True)

    return FakeCUDAKernel(_copy(function, again, {}, _SIMULATED), device=False)  # type: ignore[no-any-return]


def as_python(function: object) -> Callable[..., Any]:
    """Return a device function as plain Python, with those that it calls, for one thread and its numbers."""
    python = function.py_func if isinstance(function, CUDADispatcher) else function
    return _copy(python, lambda copy, _: copy, {}, _SIMULATED)  # type: ignore[arg-type]


def twin(python: Callable[..., Any], *, cooperates: bool = False) -> Callable[[Any], Any]:
    """Decorate what only a GPU has (an intrinsic, a device function) with the Python that a simulated kernel calls.

    With `cooperates` that is written as a device function: it uses `cuda`, and every thread calls it.
    """

    def register(made: Any) -> Any:
        _twins[id(made)] = made, (FakeCUDAKernel(python, device=True) if cooperates else python)
        return made

    return register


def simulated_array(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as a simulated kernel takes it: the memory itself, whatever its strides."""
    return FakeCUDAArray(array)


_SIMULATED: Final = (CUDADispatcher, CPUDispatcher)
#: What stands in for things of a GPU, by their identity; with the thing itself, which must stay alive for that.
_twins: Final[dict[int, tuple[Any, Callable[..., Any]]]] = {}

_Again = Callable[[python_types.FunctionType, Any], Any]


def _copy(
    function: python_types.FunctionType,
    again: _Again,
    done: dict[int, Any],
    kinds: tuple[type, ...] = (CUDADispatcher,),
    stand_in: Callable[[Any], Any] | None = None,
) -> python_types.FunctionType:
    """Return a copy of a function in which each compiled function that it calls is made `again` of a copy."""
    if id(function) in done:
        return done[id(function)]  # type: ignore[no-any-return]

    def renewed(value: Any) -> Any:
        if CPUDispatcher in kinds and id(value) in _twins:
            return _twins[id(value)][1]
        if isinstance(value, kinds):
            return again(_copy(value.py_func, again, done, kinds, stand_in), value)  # type: ignore[attr-defined]
        if stand_in is not None and isinstance(value, ExternFunction):
            return stand_in(value)
        if value is random and CPUDispatcher in kinds:
            return python_types.SimpleNamespace(**{name: renewed(v) for name, v in vars(random).items()})
        return value

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


class _Target(threading.local):
    """What this thread compiles for, while it does."""

    compute_capability: tuple[int, int] | None = None


_target = _Target()


def capability() -> tuple[int, int]:
    """Return the compute capability that this thread compiles for."""
    return _target.compute_capability or (0, 0)


_numba_device = _dispatcher.get_current_device


def _current_device() -> Any:
    """Return what device functions are compiled for: Numba would ask the driver, and make a context in this process."""
    return _numba_device() if _target.compute_capability is None else _target


_dispatcher.get_current_device = _current_device


class SharedMemory(_simulator.FakeCUDAShared):  # type: ignore[misc]
    """The shared memory of a simulated block.

    Numba's looks for an array and makes it in two steps, so that two threads could get two arrays for one.
    """

    def __init__(self, dynamic: int) -> None:
        super().__init__(dynamic)
        self._one = threading.Lock()

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> np.ndarray[Any, Any]:
        """Return the array of the line from which this is called."""
        if alignment is not None or shape == 0:  # refused, and dynamic shared memory, which is there already
            return super().array(shape, dtype, alignment)  # type: ignore[no-any-return]
        frame = sys._getframe(1)
        line = frame.f_code.co_filename, frame.f_lineno
        if isinstance(dtype, _simulator.types.Type):
            dtype = _simulator.numpy_support.as_dtype(dtype)
        with self._one:
            made: np.ndarray[Any, Any] | None = self._allocations.get(line)
            if made is None:
                made = self._allocations[line] = np.empty(shape, dtype)
            return made


_simulator.FakeCUDAShared = SharedMemory
