"""Compilation of kernels and device functions by Numba: options, linked code, LTO-IR."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import types as python_types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cuda.pathfinder import DynamicLibNotFoundError

from ..._lib.guard import Lock, shielded_service
from ...errors import InvalidRequest, LibraryError, Unsupported
from .. import INSTALL_HINT, link_parts
from ..link_parts import LinkPart
from .api import (
    ExternFunction,
    LinkableCode,
    compiler,
    core_templates,
    cuda,
    cuda_target,
    device_python,
    device_signatures,
    dispatcher,
    get_cudalib,
    llvm,
    njit,
    nvvm,
    templates,
    types,
    vectorize,
)
from .copies import copied
from .survey import is_recursive

__all__ = [
    "OPTIONS",
    "Compiled",
    "capability",
    "compile_ltoir",
    "compiling_for",
    "declared",
    "device_function",
    "device_runtime",
    "failure",
    "jit_options",
    "link_part",
    "nvvm_file",
    "on_processor",
    "registries",
    "renewed",
]

#: Supported options of ``@cuda.jit``; others must have their default values.
OPTIONS: Final = {"fastmath": False, "lineinfo": False, "opt": True, "debug": False}
#: A quotient of float32 in LLVM's text, with its operands.
_QUOTIENT: Final = re.compile(r'= fdiv (?:[a-z]+ )*float (%"[^"]*"|[^,\s]+), (%"[^"]*"|[^,\s]+)')
_IGNORED: Final = frozenset({"nopython", "boundscheck", "device", "lto", "extensions", "inline", "forceinline"})


def jit_options(kernel: object) -> dict[str, Any]:
    """Return a dispatcher's options for `compile_ltoir`.

    Raises
    ------
    Unsupported
        For an unsupported option.
    """
    given = dict(getattr(kernel, "targetoptions", {}))
    found = {name: given.pop(name, default) for name, default in OPTIONS.items()}
    found |= {name: given.pop(name, None) for name in ("max_registers", "launch_bounds")}
    found["link"] = tuple(link_part(part) for part in given.pop("link", None) or ())
    left = sorted(name for name, value in given.items() if name not in _IGNORED and value)
    if left:
        raise Unsupported(f"a kernel with {', '.join(left)}; supported options: {', '.join(found)}")
    return found


#: Numba's classes of linkable code, and their kinds.
_LINKED: Final = {"CUSource": "cu", "PTXSource": "ptx", "LTOIR": "ltoir", "Archive": "library", "Cubin": "cubin"}


def link_part(given: object) -> LinkPart:
    """Return an element of ``link=[...]`` as a part: a file, or one of Numba's objects with code."""
    if isinstance(given, str | Path):
        return link_parts.from_file(given)
    kind = _LINKED.get(type(given).__name__) if isinstance(given, LinkableCode) else None
    if not isinstance(given, LinkableCode) or kind is None:
        raise InvalidRequest(f"link has a {type(given).__name__}; allowed: paths, and cuda's {', '.join(_LINKED)}")
    # Numba's own objects warn if Numba links them itself, without LTO.
    callbacks = [f for f in (given.setup_callback, given.teardown_callback) if f and not _is_numba(f)]
    if given.nrt or callbacks:
        raise Unsupported(
            f"link has {given.name} with nrt, setup_callback or teardown_callback: the worker that loads the code has "
            f"neither Numba's runtime nor your functions"
        )
    data = given.data
    return LinkPart(kind, data.encode() if isinstance(data, str) else bytes(data), str(given.name))


def _is_numba(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("numba.cuda.")


def device_runtime() -> LinkPart:
    """Return CUDA's device runtime, which kernels call to synchronise their grid.

    Raises
    ------
    Unsupported
        If it is not installed.
    """
    try:
        return link_parts.from_file(get_cudalib("cudadevrt", static=True))
    except (InvalidRequest, ValueError, TypeError, OSError) as error:
        raise Unsupported(f"synchronising a grid needs libcudadevrt.a ({error}); {INSTALL_HINT}") from None


def _reshaping(library: Any) -> tuple[LinkPart, ...]:
    """Return the code that ``x.reshape(...)`` calls, which Numba links when it launches kernels itself."""
    own = [part for part in (library, *library._linking_libraries) if isinstance(part, type(library))]
    if not any(name in part.get_llvm_str() for name in dispatcher.reshape_funcs for part in own):
        return ()
    return (link_parts.from_file(Path(dispatcher.__file__).with_name("reshape_funcs.cu")),)


def declared(function: ExternFunction) -> Iterator[tuple[str, tuple[LinkPart, ...]]]:
    """Yield the names of declared functions, and the code to link for them."""
    for _, implementation in cuda_target.target_context._defns[function].versions:
        for library in implementation.libs:
            parts = tuple(link_part(part) for part in library._linking_files)
            (description,) = implementation.__defaults__
            convention = type(description.call_conv).__name__
            yield f"{convention} {library.use_cooperative}", parts


def registries() -> tuple[Any, ...]:
    """Return the registries of functions that a kernel may call."""
    return templates.builtin_registry, core_templates.builtin_registry


def nvvm_file() -> str | None:
    """Return the path of NVVM, or None if NVIDIA's compilers are not installed."""
    try:
        path = get_cudalib("nvvm")  # looks for NVRTC and all others, too
    except DynamicLibNotFoundError:
        return None
    return path if path and Path(path).exists() else None


class _Target(threading.local):
    """The compilation target of this thread, while it compiles."""

    compute_capability: tuple[int, int] | None = None


_target = _Target()


def capability() -> tuple[int, int]:
    """Return the compute capability that this thread compiles for."""
    return _target.compute_capability or (0, 0)


class _CurrentDevice:
    """Numba's ``dispatcher.get_current_device``, replaced while at least one thread compiles.

    Numba calls it to find the target of device functions; the original would create a context in this process.  The
    replacement answers the compiling threads, and passes calls of other threads to Numba's own function.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._compiling = 0
        self._original: Callable[[], Any] = dispatcher.get_current_device
        os.register_at_fork(after_in_child=self._forked)

    def _replacement(self) -> Any:
        return self._original() if _target.compute_capability is None else _target

    @contextlib.contextmanager
    def compiling_for(self, capability: tuple[int, int]) -> Iterator[None]:
        """Set this thread's compute capability for compilation."""
        with self._lock:
            if not self._compiling:
                self._original = dispatcher.get_current_device
                dispatcher.get_current_device = self._replacement
            self._compiling += 1
        outer, _target.compute_capability = _target.compute_capability, capability
        try:
            yield
        finally:
            _target.compute_capability = outer
            with self._lock:
                self._compiling -= 1
                if not self._compiling:
                    dispatcher.get_current_device = self._original

    def _forked(self) -> None:
        """Restore Numba's function in a forked child, which has no other compiling thread."""
        if self._compiling and _target.compute_capability is None:
            dispatcher.get_current_device = self._original
        self._compiling = 0 if _target.compute_capability is None else 1


_current_device = _CurrentDevice()
#: Sets this thread's compute capability for compilation, as a context.
compiling_for: Final = _current_device.compiling_for


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel before it is linked.

    Attributes
    ----------
    code : bytes
    entry : str
        The kernel's name in it.
    links : tuple of LinkPart
        Code of declared functions, and further parts of the kernel's own code.
    cooperative : bool
        Whether blocks wait for each other.
    kind : str
        ``"ltoir"``, or ``"ptx"`` for a kernel with debug information.
    """

    code: bytes
    entry: str
    links: tuple[LinkPart, ...]
    cooperative: bool
    kind: str = "ltoir"


def _await_launch(library: Any) -> None:
    """Make a kernel's first instruction wait for the previous launch and its writes."""
    (kernel,) = (
        f for module in library.modules for f in module.functions if f.name == library._entry_name and f.blocks
    )
    builder = llvm.IRBuilder(kernel.blocks[0])
    builder.position_at_start(kernel.blocks[0])
    builder.asm(llvm.FunctionType(llvm.VoidType(), []), "griddepcontrol.wait;", "~{memory}", [], True)


def renewed(function: python_types.FunctionType) -> python_types.FunctionType:
    """Return a function with new device functions, since old ones keep compiled code, possibly for another GPU."""
    made: list[tuple[Any, Any]] = []

    def again(copy: python_types.FunctionType, old: Any) -> Any:
        new = cuda.jit(**{**old.targetoptions, "device": True})(copy)
        if is_recursive(old):
            _take_no_literals(new)
        made.append((new, old))
        return new

    fresh = copied(function, again, {})
    for new, old in made:  # callees come before their callers
        signatures = device_signatures(old)
        for arguments, result in signatures:
            new.compile_device(arguments, result)
        if signatures:
            new.disable_compile()
    return fresh


def _take_no_literals(dispatcher: Any) -> None:
    """Make ``f(6)`` call the same code as ``f(n - 1)`` inside: a version for the literal 6 could not call the other."""
    template = dispatcher.get_call_template

    def get_call_template(arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        return template(
            tuple(map(types.unliteral, arguments)), {name: types.unliteral(value) for name, value in named.items()}
        )

    dispatcher.get_call_template = get_call_template


@shielded_service
def compile_ltoir(
    function: python_types.FunctionType, arguments: Sequence[Any], capability: tuple[int, int], options: dict[str, Any]
) -> Compiled:
    """Compile a Python function, as a kernel, to LTO-IR of a compute capability.  Waits for the compiler.

    With the option ``debug`` the result is PTX, as in Numba: nvJitLink aborts the process on LTO-IR with debug
    information and a ``raise`` (seen with 13.0).

    From 9.0 on, the kernel may be launched while the previous launch still ends: its first instruction waits for it.

    Raises
    ------
    LibraryError
        With Numba's text, if it does not compile.
    Unsupported
        If NVVM is not installed.
    """
    try:
        with compiling_for(capability), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fresh = renewed(function)
            # As in `cuda.compile`, which reports neither the code to link nor whether the grid is synchronised.
            library, _ = compiler._compile_pyfunc_with_fixup(
                fresh,
                tuple(arguments),
                device=False,
                abi="numba",
                cc=capability,
                lto=not options["debug"],
                **{name: options[name] for name in OPTIONS},
            )
            if capability >= (9, 0):
                _await_launch(library)
            if options["debug"]:
                kind, codes = "ptx", [text.encode() for text in library.get_asm_strs(cc=capability)]
            else:
                kind, codes = "ltoir", [bytes(library.get_ltoir(cc=capability))]
    except Exception as error:
        raise failure(error, function) from None
    code, *more = codes  # in PTX, each device function separately
    parts = [LinkPart(kind, one) for one in more]
    links = tuple(sorted((*parts, *map(link_part, library._linking_files), *_reshaping(library))))
    return Compiled(code, library._entry_name, links, bool(library.use_cooperative), kind)


def failure(error: Exception, function: python_types.FunctionType) -> LibraryError | Unsupported:
    """Return the error to raise for an error of Numba; the cause may be a missing or unusable NVVM."""
    if isinstance(error, ImportError | OSError | RuntimeError) and not _has_nvvm():
        return Unsupported(f"compiling a Numba kernel needs NVVM ({str(error)[:500]}); {INSTALL_HINT}")
    return _refusal(error, function)


def _refusal(error: Exception, function: python_types.FunctionType) -> LibraryError:
    return LibraryError("numba", 0, type(error).__name__, f"compiling {function.__name__}", str(error).strip()[:4000])


def _has_nvvm() -> bool:
    try:
        nvvm.NVVM()
    except (ImportError, OSError, RuntimeError):
        return False
    return True


@shielded_service
def device_function(
    function: object, signature: str, name: str | None, capability: tuple[int, int], *, brief: bool = False
) -> bytes:
    """Return a device function as LTO-IR with the C interface; see `atomr_native.device_function`.

    In a `brief` one subnormal numbers of float32 are 0, exponentials have a relative error of up to 2**-17, and
    quotients by numbers beyond 2**126 are 0.
    """
    python = device_python(function)
    how: dict[str, Any] = {"device": True, "abi": "c", "abi_info": {"abi_name": name or python.__name__}}
    try:
        with compiling_for(capability), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fresh = renewed(python)
            if brief:
                library, _ = compiler._compile_pyfunc_with_fixup(fresh, signature, cc=capability, lto=True, **how)
                code = _brief(library, capability)
            else:
                code, _ = cuda.compile(fresh, signature, cc=capability, output="ltoir", **how)
    except Exception as error:
        raise failure(error, python) from None
    return bytes(code)


def _brief(library: Any, capability: tuple[int, int]) -> bytes:
    """Return the LTO-IR of a library with short arithmetic, of which Numba's `fastmath` would take too much."""
    texts = [_shortened(text) for text in library.llvm_strs]
    arch = f"compute_{capability[0]}{capability[1]}"
    made: bytes = nvvm.compile_ir(texts, **{**library._nvvm_options, "arch": arch, "gen-lto": None, "ftz": True})
    return made


def _shortened(text: str) -> str:
    """Return a module of LLVM whose exponentials and quotients of float32 are the GPU's own."""
    text = re.sub(r'@"?__nv_expf"?\(', "@__nv_fast_expf(", text)
    short, count = _QUOTIENT.subn(r"= call float @__nv_fast_fdividef(float \1, float \2)", text)
    if count and not re.search(r'declare float @"?__nv_fast_fdividef', text):
        short += "\ndeclare float @__nv_fast_fdividef(float, float)\n"
    return short


@shielded_service
def on_processor(
    function: python_types.FunctionType, arguments: Sequence[str], results: Sequence[str]
) -> tuple[Callable[..., Any], ...]:
    """Compile a scalar device function, of arguments and results of these dtypes, for the CPU: a ufunc for each result.

    Divisions by zero and similar cases behave as in NumPy.  Waits for the compiler.

    Raises
    ------
    LibraryError
        With Numba's text, if it does not compile.
    """

    def again(copy: python_types.FunctionType, _: object) -> Any:
        return njit(error_model="numpy")(copy)

    names, found = (
        ", ".join(f"{letter}{i}" for i in range(len(n))) for letter, n in (("a", arguments), ("r", results))
    )
    made = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scope = {"f": again(copied(function, again, {}), None)}
            for i, dtype in enumerate(results):
                text = f"def one({names}):\n    {found} = f({names})\n    return r{i}\n"
                exec(compile(text, "<epilogue>", "exec"), scope)  # noqa: S102 - of the names above
                made.append(vectorize([f"{dtype}({', '.join(arguments)})"])(scope["one"]))
    except Exception as error:
        raise _refusal(error, function) from None
    return tuple(made)
