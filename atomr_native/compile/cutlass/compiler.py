"""Sources of CUTLASS kernels to machine code, through helper processes and the cache on disk."""

from __future__ import annotations

import json
import lzma
import re
import threading
from collections.abc import Mapping
from types import FunctionType
from typing import Final, NamedTuple, Protocol

from ..._support.disk_cache import cached
from ...errors import LibraryError
from .. import nvrtc
from .headers import headers
from .processes import Cancelled, run

__all__ = ["FLAGS", "Compiled", "Source", "compile_kernel", "function_ltoir"]

#: Flags of NVRTC.  CUTLASS annotates few functions; without a native 128-bit division builders would trap, and with
#: assertions kernels would call functions, so that the tensor cores wait for each instruction.
FLAGS: Final = ("-std=c++17", "-default-device", "-device-int128", "-DCUTLASS_UINT128_NATIVE=1", "-DNDEBUG", "-w")
#: Flags of nvJitLink.  Quotients and roots of float32 are within 2 units in the last place: exact ones call functions.
LINK_FLAGS: Final = ("-lto", "-O3", "-prec-div=0", "-prec-sqrt=0")
#: Of kernels with short arithmetic: without subnormal numbers of float32, an exponential needs no scaling.
_BRIEF: Final = ("-ftz=true", "-DATOMR_BRIEF")
_BRIEF_LINK: Final = ("-ftz=1",)
_KIND: Final = "cutlass"
_FORMAT: Final = 1
_BUILDER_ONLY: Final = "-DATOMR_BUILDER_ONLY"
_KERNEL_ONLY: Final = "-DATOMR_KERNEL_ONLY"


class Source(Protocol):
    """A kernel's source, and its builder's."""

    @property
    def source(self) -> str:
        """CUDA C++."""

    @property
    def entry(self) -> str:
        """Name of the kernel."""

    @property
    def builder(self) -> str:
        """Name of the function that builds its parameters."""

    @property
    def brief(self) -> bool:
        """Whether its float32 arithmetic may be short, without subnormal numbers."""


class Compiled(NamedTuple):
    """A compiled kernel.

    Attributes
    ----------
    cubin : bytes
        Machine code.
    builder : bytes
        PTX of the function that builds its parameters, for `parameters.parameters`.
    """

    cubin: bytes
    builder: bytes


def compile_kernel(
    rendered: Source,
    functions: Mapping[str, bytes] | None = None,
    arch: str = "sm_90a",
    *,
    cancel: threading.Event | None = None,
) -> Compiled:
    """Return a kernel's machine code, from the disk cache or compiled in helper processes.

    Waits for the compiler, 3 to 40 seconds; needs no GPU.  Calls for the same kernel share one compilation; others run
    at once, as many as there are processors.

    Parameters
    ----------
    rendered : Source
    functions : mapping of str to bytes, optional
        LTO-IR of the device functions that the kernel calls, by symbol.  They are inlined.
    arch : str
    cancel : threading.Event, optional
        Ends the compilation when it is set.

    Raises
    ------
    Cancelled
        If `cancel` was set.
    LibraryError
        If it does not compile; the message has the compiler's whole log.
    Unsupported
        If CUTLASS's headers, NVRTC or nvJitLink are not installed.
    """
    found = headers()
    flags = (f"--gpu-architecture={arch}", *_flags(rendered))
    facts = json.dumps([_FORMAT, rendered.source, flags, nvrtc.version(), found.digest]).encode()
    linked = [part for symbol, code in sorted((functions or {}).items()) for part in (symbol.encode(), code)]
    if linked:
        linked.append(" ".join(_link_flags(rendered)).encode())
    label = f"{rendered.entry} for {arch}"

    def make() -> bytes:
        if functions:
            made = _linked(rendered, dict(functions), arch, facts, label, cancel)
        else:
            cubin, ptx = _compiled(rendered, flags, ("CUBIN", "PTX"), label, cancel)
            made = Compiled(cubin, _entry(ptx, rendered.builder))
        return _packed(made)

    return _unpacked(_cached(_KIND, (facts, *linked), make, cancel))


def _flags(rendered: Source) -> tuple[str, ...]:
    """Return a kernel's flags of NVRTC."""
    return (*FLAGS, *(_BRIEF if rendered.brief else ()))


def _link_flags(rendered: Source) -> tuple[str, ...]:
    """Return a kernel's flags of nvJitLink."""
    return (*LINK_FLAGS, *(_BRIEF_LINK if rendered.brief else ()))


def _cached(kind: str, parts: tuple[bytes, ...], make: object, cancel: threading.Event | None) -> bytes:
    """Return a value of the cache; the cancellation of another caller's compilation is not ours."""
    while True:
        try:
            return cached(kind, parts, make)  # type: ignore[arg-type]
        except Cancelled:
            if cancel is not None and cancel.is_set():
                raise


def _compiled(
    rendered: Source, flags: tuple[str, ...], outputs: tuple[str, ...], label: str, cancel: threading.Event | None
) -> list[bytes]:
    found = headers()
    job = {
        "kind": "compile",
        "source": rendered.source,
        "headers": found.texts,
        "flags": [*flags, *(f"-I{folder}" for folder in found.folders)],
        "outputs": list(outputs),
    }
    return run(job, [], label, cancel)


def _linked(
    rendered: Source,
    functions: dict[str, bytes],
    arch: str,
    facts: bytes,
    label: str,
    cancel: threading.Event | None,
) -> Compiled:
    """Return a kernel with device functions: its own LTO-IR is compiled once for all functions of the same types."""
    flags = (f"--gpu-architecture={arch}", *_flags(rendered))

    def kernel() -> bytes:
        return _compiled(rendered, (*flags, _KERNEL_ONLY, "-dlto"), ("LTOIR",), label, cancel)[0]

    def builder() -> bytes:
        virtual = arch.replace("sm_", "compute_")
        only = (f"--gpu-architecture={virtual}", *_flags(rendered), _BUILDER_ONLY)
        ptx = _compiled(rendered, only, ("PTX",), f"parameters of {label}", cancel)[0]
        return _entry(ptx, rendered.builder)

    built: list[bytes | BaseException] = []

    def beside() -> None:
        try:
            built.append(_cached("ptx", (b"cutlass", facts), builder, cancel))
        except BaseException as error:  # raised again in the caller's thread
            built.append(error)

    thread = threading.Thread(target=beside, name="atomr-cutlass-builder")
    thread.start()
    try:
        code = _cached("ltoir", (b"cutlass", facts), kernel, cancel)
        job = {"kind": "link", "flags": [f"-arch={arch}", *_link_flags(rendered)]}
        cubin = run(job, [code, *functions.values()], f"functions of {label}", cancel)[0]
    finally:
        thread.join()
    if isinstance(built[0], BaseException):
        raise built[0]
    return Compiled(cubin, built[0])


def _entry(ptx: bytes, name: str) -> bytes:
    """Return one function of PTX, without the others.

    Raises
    ------
    LibraryError
        If there is none.
    """
    text = ptx.strip(b"\0 ").decode("latin-1")
    found = re.search(rf"\.visible \.entry {re.escape(name)}\(.*?\n\}}\n", text, re.DOTALL)
    if found is None:
        raise LibraryError("nvrtc", 0, "NoEntry", f"looking for {name}", "the code lacks this function")
    return found[0].encode("latin-1")


def _packed(made: Compiled) -> bytes:
    """Return a kernel for the cache: machine code of templates is mostly names, and shrinks to a tenth."""
    return lzma.compress(len(made.cubin).to_bytes(8, "little") + made.cubin + made.builder, preset=2)


def _unpacked(value: bytes) -> Compiled:
    data = lzma.decompress(value)
    size = 8 + int.from_bytes(data[:8], "little")
    return Compiled(data[8:size], data[size:])


def function_ltoir(
    function: FunctionType,
    arity: int,
    symbol: str,
    capability: tuple[int, int],
    compute: str = "float32",
    brief: bool = False,
) -> bytes:
    """Return a Python function of scalars as LTO-IR, for a kernel that calls it by a symbol.

    Float literals are as wide as the arguments.  Waits for the compiler; needs no GPU.

    Parameters
    ----------
    function : FunctionType
    arity : int
    symbol : str
    capability : tuple of int
    compute : {"float32", "float64"}
        Dtype of arguments and result.
    brief : bool
        Whether its arithmetic is short, as that of a kernel whose results have 16 bits or less.

    Raises
    ------
    LibraryError
        With Numba's text, if it does not compile.
    Unsupported
        If numba-cuda or NVVM is not installed.
    """
    from ..numba import cache

    return cache.device_ltoir(function, (compute,) * arity, symbol, capability, brief=brief)
