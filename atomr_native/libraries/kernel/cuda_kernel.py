"""Users' kernels in CUDA C++: ``device.cuda_kernel(source, "scale<float>")[grid, block](x, 2.0)``."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support.checks import as_flag, as_strings, is_integer
from ..._support.options import named_methods, named_options
from ...arrays.gpu_ref import GpuRef
from ...compile import cpp_kinds, cpp_parameters, nvrtc
from ...compile import cubin as _cubin
from ...compile.cpp_parameters import Parameter
from ...compile.nvrtc import arch_of
from ...errors import InvalidRequest, LibraryError, Unsupported
from ...plans.spec import OVERWRITE, READ, WRITE, signed_word
from ...protocol.binaries import Binary
from . import spec
from .actor import Kernel, KernelActor
from .attributes import CompiledKernel, PickledKernel
from .tensor_map import NBYTES, TensorMap

if TYPE_CHECKING:
    from ...plans.owner import PlanOwner

__all__ = ["CudaKernel", "device_function", "make"]

_RANGES = {"bool": (0, 1)} | {
    f"{unsigned}int{bits}": (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for unsigned in ("", "u")
    for bits in (8, 16, 32, 64)
}


@named_methods
class CudaKernel(Kernel):
    """A kernel compiled by NVRTC for one architecture; made by `Device.cuda_kernel`.

    Arguments are checked against the parameters that the source declares: a `GpuRef` for a pointer (of the first
    element of its view, which must be contiguous), numbers in the range of the declared type, for structs by value
    bytes, or a NumPy scalar with fields, of the struct's size, and for a CUtensorMap a `TensorMap`.
    """

    def __init__(
        self,
        actor: KernelActor,
        name: str,
        entry: str,
        cubin: bytes,
        parameters: tuple[Parameter, ...],
        writes: Iterable[str] | None,
        overwrites: Iterable[str],
        awaits: bool,
        **launch: Any,
    ) -> None:
        super().__init__(actor, name, tuple(p.name for p in parameters), **launch)
        self._declared = {p.name: p for p in parameters}
        sizes = _cubin.kernels(cubin)[entry]
        self._sizes = dict(zip(self.parameters, sizes, strict=False))
        self._code = CompiledKernel(entry, Binary(cubin), awaits=awaits)
        self._check_parameters(sizes)
        full = self._check_names("overwrites", overwrites)
        self._writes = None if writes is None else self._check_names("writes", writes) | full
        self._overwrites = full
        self._accesses = {name: self._access_of(name) for name in self.parameters}

    def _check_parameters(self, sizes: tuple[int, ...]) -> None:
        """Hold the declaration against the machine code."""
        declared = [p.nbytes for p in self._declared.values()]
        if len(declared) != len(sizes) or any(n not in (None, m) for n, m in zip(declared, sizes, strict=True)):
            given = ", ".join(f"{p.type} {p.name}" for p in self._declared.values())
            raise InvalidRequest(
                f"kernel {self.name} is compiled with parameters of {list(sizes)} bytes, and declared with ({given}); "
                f"give parameters= as in the source"
            )

    def classify(self, name: str, value: object) -> tuple[Any, ...]:
        """Return an argument as its declared parameter wants it."""
        parameter = self._declared[name]
        if parameter.kind == "pointer":
            if not isinstance(value, GpuRef):
                raise InvalidRequest(f"{name} is a {type(value).__name__}; {parameter.type} * takes a GpuRef")
            if not value.layout.contiguous:
                raise InvalidRequest(
                    f"{name} has strides {value.strides}; a pointer takes a contiguous GpuRef: copy it first"
                )
            return "pointer", value
        if isinstance(value, TensorMap):
            if parameter.kind != "struct" or self._sizes[name] != NBYTES:
                raise InvalidRequest(
                    f"{name} is a TensorMap, of {NBYTES} bytes by value; it is declared as {parameter.type} of "
                    f"{self._sizes[name]}"
                )
            return "tensor_map", value
        if parameter.kind == "struct":
            return "bytes", self._struct(name, value)
        return "scalar", _scalar(name, parameter.type, value)

    def _struct(self, name: str, value: object) -> bytes:
        data = value.tobytes() if isinstance(value, np.void) else value
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidRequest(
                f"{name} is a {type(value).__name__}; {self._declared[name].type} takes bytes, a NumPy scalar with "
                f"fields, or, if it is a CUtensorMap, a TensorMap; if it names a number's type, say which: parameters="
            )
        if len(bytes(data)) != self._sizes[name]:
            raise InvalidRequest(
                f"{name} has {len(bytes(data))} bytes; {self._declared[name].type} takes {self._sizes[name]}"
            )
        return bytes(data)

    def accesses(self, arguments: Sequence[tuple[Any, ...]]) -> dict[str, int]:  # noqa: ARG002 - types are declared
        """Return how pointers count: read only where they point to const, or where they are not among `writes`."""
        return self._accesses

    def _access_of(self, name: str) -> int:
        if name in self._overwrites:
            return WRITE | OVERWRITE
        if self._writes is not None:
            return READ | WRITE if name in self._writes else READ
        return READ if self._declared[name].reads else READ | WRITE

    def limits(self, name: str, kind: type) -> tuple[int, int] | None:  # noqa: ARG002 - the declaration counts
        """Return the range of the declared integer type of a parameter, within a word of a message."""
        low, high = _RANGES.get(self._declared[name].type, (None, None))
        return None if low is None or high is None else (low, min(high, 2**63 - 1))

    def code(self, arguments: Sequence[tuple[Any, ...]]) -> CompiledKernel | PickledKernel:  # noqa: ARG002
        """Return the machine code, which is the same for all arguments."""
        return self._code


def _scalar(name: str, kind: str, value: object) -> spec.Scalar:
    plain = value.item() if isinstance(value, np.generic) else value
    if kind.startswith("float"):
        if isinstance(plain, bool) or not isinstance(plain, int | float):
            raise InvalidRequest(f"{name} is {value!r}; {kind} takes a real number")
        try:
            return spec.Scalar(kind, (float(plain),))
        except OverflowError:
            raise InvalidRequest(f"{name} is {value!r}, which is too large for {kind}") from None
    low, high = _RANGES[kind]
    try:
        if isinstance(plain, GpuRef):  # which would wait
            raise TypeError
        number = operator.index(plain)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidRequest(f"{name} is {value!r}; {kind} takes an integer") from None
    if not low <= number <= high:
        raise InvalidRequest(f"{name} is {number}; {kind} takes {low} to {high}")
    return spec.Scalar(kind, (signed_word(number),))


def _is_text(header: tuple[object, object]) -> bool:
    return isinstance(header[0], str) and isinstance(header[1], str)


def _candidates(source: str, name: str, given: str | None) -> list[tuple[Parameter, ...]]:
    """Return the types of a kernel's parameters, from the user's declaration or from the source."""
    if given is not None:
        return [cpp_parameters.parse(given)]
    texts = cpp_parameters.declared(source, name)
    found, errors = [], []
    for text in texts:
        try:
            found.append(cpp_parameters.parse(text))
        except InvalidRequest as error:
            errors.append(f": {error}")
    if not found:
        raise InvalidRequest(
            f"the source does not declare one __global__ function {name!r} whose parameters could be read"
            f"{''.join(errors[:1])}; give parameters='float *x, int n', or so"
        )
    return found


def _compiled(
    source: str, arch: str, name: str, **options: Any
) -> tuple[nvrtc.Program, tuple[cpp_kinds.Kind, ...] | None]:
    """Compile a kernel; return also its parameters, if the compiler reports them."""
    asked = cpp_kinds.expression(name)
    try:
        program = nvrtc.compile_program(source + cpp_kinds.PROBE, arch, names=(name, asked), **options)
    except LibraryError:  # the source's own, whose log shall say nothing else, or C++ that is too old for the question
        return nvrtc.compile_program(source, arch, names=(name,), **options), None
    return program, cpp_kinds.kinds(program.names[asked])


def make(
    owner: PlanOwner,
    source: str,
    name: str,
    *,
    parameters: str | None,
    options: Sequence[str],
    headers: Mapping[str, str] | None,
    include: Sequence[str],
    link: Sequence[bytes],
    writes: Iterable[str] | None,
    overwrites: Iterable[str],
    actor: str,
    cluster: object,
    cooperative: bool,
    overlaps: bool,
) -> CudaKernel:
    """Make a kernel; see `Device.cuda_kernel`."""
    if owner.kind == "host":
        raise Unsupported("CUDA C++ runs on a GPU only; on the host device write the kernel for Numba (Device.kernel)")
    for option, value in (("source", source), ("name", name)):
        if not isinstance(value, str) or not value.strip():
            raise InvalidRequest(f"{option} is {value!r}; it must be a string that is not empty")
    if parameters is not None and not isinstance(parameters, str):
        raise InvalidRequest(f"parameters is {parameters!r}; allowed: None, or a string such as 'float *x, int n'")
    options = as_strings("options", options, "strings, each an option of NVRTC")
    folders = as_strings("include", include, "strings, each a folder of headers")
    if headers is not None and not (isinstance(headers, Mapping) and all(map(_is_text, headers.items()))):
        raise InvalidRequest(f"headers is {reprlib.repr(headers)}; allowed: a mapping from names to texts")
    if not isinstance(link, list | tuple) or not all(isinstance(part, bytes) for part in link):
        raise InvalidRequest(f"link is {reprlib.repr(link)}; allowed: a list of LTO-IR, as device_function returns it")
    candidates = _candidates(source, name, parameters)
    if as_flag("overlaps", overlaps) and as_flag("cooperative", cooperative):
        raise InvalidRequest("overlaps=True and cooperative=True: a cooperative launch begins when all its blocks can")
    capability = owner.compute_capability()
    arch = arch_of(capability)
    program, kinds = _compiled(
        source, arch, name, options=options or ("--std=c++17",), headers=headers, include=folders,
        output="ltoir" if link else "cubin",
    )  # fmt: skip
    found = cpp_parameters.chosen(name, candidates, kinds, given=parameters is not None)
    cubin = program.code
    if link:
        from ...compile.linker import link as link_parts

        cubin = link_parts([program.code, *link], arch)
    entry = program.names[name]
    if entry not in _cubin.kernels(cubin):
        raise LibraryError("nvrtc", 0, "NoEntry", f"compiling {name}", f"{name} is no __global__ function")
    awaits = bool(overlaps) and capability >= (9, 0)
    reason = _cubin.why_no_overlap(cubin, entry) if awaits else ""
    if reason:
        raise InvalidRequest(
            f"kernel {name} cannot overlap with the launch before: {reason}; overlaps=True is for kernels whose first "
            f'statement is asm volatile("griddepcontrol.wait;" ::: "memory")'
        )
    return CudaKernel(
        owner.kernel_actor(actor), name, entry, cubin, found, writes, overwrites, awaits,
        cluster=cluster, cooperative=cooperative,
    )  # fmt: skip


@named_options
def device_function(function: object, signature: str, *, name: str | None = None, capability: Sequence[int]) -> bytes:
    """Compile a Numba device function to LTO-IR, to be called from CUDA C++.  Waits for the compiler; needs no GPU.

    Parameters
    ----------
    function
        A Python function, or the dispatcher that ``numba.cuda.jit(device=True)`` returns for it.
    signature : str
        Numba's: ``"float32(float32, float32)"``.
    name : str, optional
        Under which the source declares it (``extern "C" __device__ float f(float, float);``); by default its own.
    capability : sequence of int
        Compute capability that it is for, as ``device.facts["compute_capability"]`` has it.

    Returns
    -------
    bytes
        For ``Device.cuda_kernel(..., link=[...])``.

    Raises
    ------
    InvalidRequest, Unsupported, LibraryError
    """
    from ...compile.numba import compiler

    if not isinstance(signature, str) or not signature.strip():
        raise InvalidRequest(f"signature is {signature!r}; allowed: Numba's, a string such as 'float32(float32)'")
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise InvalidRequest(f"name is {name!r}; allowed: None, or a name as C has them")
    if not isinstance(capability, list | tuple) or len(capability) != 2 or not all(map(is_integer, capability)):
        raise InvalidRequest(f"capability is {capability!r}; allowed: two integers, such as (9, 0)")
    return compiler.device_function(function, signature, name, (int(capability[0]), int(capability[1])))
