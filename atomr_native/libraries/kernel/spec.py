"""Arguments of users' kernels: their types, and the plan specification of one launch.  Pure functions."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..._support.options import named_methods
from ...arrays.gpu_ref import GpuRef
from ...arrays.layout import layout_of
from ...dtypes import dtype_name
from ...errors import InvalidRequest, Unsupported
from ...plans.spec import HOST, READ, WRITE, OperandSpec, PlanSpec, signed_word
from .attributes import (
    ArrayParameter,
    BytesParameter,
    CompiledKernel,
    KernelAttributes,
    MapParameter,
    Parameter,
    PickledKernel,
    PointerParameter,
    RecordParameter,
    ScalarParameter,
    TupleParameter,
    WordsParameter,
)
from .tensor_map import TensorMap

__all__ = [
    "Configuration",
    "Members",
    "Records",
    "Scalar",
    "classify",
    "cluster",
    "configuration",
    "flattened",
    "launch_spec",
    "order_of",
    "record_dtype",
    "ref_of",
    "scalar_of",
]

_MAX_THREADS = 1024
_MAX_BLOCK = (1024, 1024, 64)
_MAX_CLUSTER = 16
_MAX_GRID = (2**31 - 1, 65535, 65535)
_REALS = ("float16", "float32", "float64")
_MAX_WORDS = 64  # of the scalars of a message


@named_methods
@dataclass(frozen=True, slots=True)
class Records:
    """An array of structs, as an argument of a kernel: the bytes of a `GpuRef` under a structured dtype.

    Attributes
    ----------
    ref : GpuRef
        Of dtype uint8, contiguous; its last axis holds the bytes of one struct.
    dtype : numpy.dtype
        Structured, of as many bytes.
    """

    ref: GpuRef
    dtype: np.dtype[Any]

    def __post_init__(self) -> None:
        try:
            dtype = np.dtype(self.dtype)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"dtype {self.dtype!r} is none of structs: {error}") from None
        if dtype.names is None:
            raise InvalidRequest(f"dtype {dtype} has no fields; a GpuRef of it is an argument by itself")
        ref = self.ref
        if not isinstance(ref, GpuRef) or dtype_name(ref.dtype) != "uint8" or not ref.layout.contiguous:
            raise InvalidRequest(f"{ref!r} holds no structs; allowed: a contiguous GpuRef of uint8")
        if not ref.shape or ref.shape[-1] != dtype.itemsize:
            raise InvalidRequest(
                f"ref has shape {ref.shape}; its last axis must have the {dtype.itemsize} bytes of {dtype}"
            )
        object.__setattr__(self, "dtype", dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the array of structs."""
        return self.ref.shape[:-1]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number as a kernel takes it: its NumPy type's name, and its words in a message."""

    type: str
    words: tuple[int | float, ...]


@dataclass(frozen=True, slots=True)
class Members:
    """A tuple as a kernel takes it.

    Attributes
    ----------
    items : tuple
        Its members, each as `classify` describes arguments.
    named : type, optional
        The class of a named tuple.
    """

    items: tuple[tuple[Any, ...], ...]
    named: type | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a kernel is launched."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False


def _extents(option: str, value: object, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    items = (value,) if isinstance(value, int | np.integer) and not isinstance(value, bool) else value
    if not isinstance(items, tuple | list) or not 1 <= len(items) <= 3:
        raise InvalidRequest(f"{option} is {value!r}; allowed: an integer, or a tuple of one to three integers")
    found = [1, 1, 1]
    for axis, item in enumerate(items):
        if not isinstance(item, int | np.integer) or isinstance(item, bool) or not 1 <= item <= limits[axis]:
            raise InvalidRequest(f"{option} is {value!r}; extent {axis} must be an integer from 1 to {limits[axis]}")
        found[axis] = int(item)
    return found[0], found[1], found[2]


def cluster(given: object) -> tuple[int, int, int]:
    """Return the extents of a cluster of blocks.

    Raises
    ------
    InvalidRequest
        For more than 16 blocks, which no device has.
    """
    found = _extents("cluster", given, (_MAX_CLUSTER,) * 3)
    if math.prod(found) > _MAX_CLUSTER:
        raise InvalidRequest(f"cluster {found} has {math.prod(found)} blocks; at most {_MAX_CLUSTER}")
    return found


def configuration(
    given: object, cluster: tuple[int, int, int] | None = None, cooperative: bool = False
) -> Configuration:
    """Return the configuration in ``kernel[grid, block]`` or ``kernel[grid, block, shared]``.

    Raises
    ------
    InvalidRequest
        For extents that no device has, or anything else.
    """
    if not isinstance(given, tuple) or not 2 <= len(given) <= 3:
        raise InvalidRequest(
            f"kernel[{given!r}]; allowed: kernel[grid, block] and kernel[grid, block, shared_bytes] "
            f"(there is no stream: messages are ordered by the data that they use)"
        )
    grid, block = _extents("grid", given[0], _MAX_GRID), _extents("block", given[1], _MAX_BLOCK)
    if math.prod(block) > _MAX_THREADS:
        raise InvalidRequest(f"block {block} has {math.prod(block)} threads; at most {_MAX_THREADS}")
    shared = given[2] if len(given) == 3 else 0
    if not isinstance(shared, int | np.integer) or isinstance(shared, bool) or not 0 <= shared < 1 << 20:
        raise InvalidRequest(f"shared is {shared!r}; it must be a number of bytes, 0 or more")
    if cluster is not None and any(n % m for n, m in zip(grid, cluster, strict=True)):
        raise InvalidRequest(f"grid {grid} is no multiple of the kernel's cluster {cluster}")
    return Configuration(grid, block, int(shared), cluster, cooperative)


def ref_of(value: GpuRef | Records | TensorMap) -> GpuRef:
    """Return the array that an argument stands for."""
    return value if isinstance(value, GpuRef) else value.ref


def order_of(ref: GpuRef | Records) -> str:
    """Return ``"C"``, ``"F"`` or ``"A"``, as Numba has the layouts of arrays."""
    if isinstance(ref, Records) or ref.layout.contiguous:
        return "C"
    backwards = layout_of(ref.shape[::-1], ref.dtype).strides[::-1]
    used = [n > 1 for n in ref.shape]
    fortran = all(ours == theirs for ours, theirs, use in zip(ref.strides, backwards, used, strict=True) if use)
    return "F" if fortran and ref.ndim > 1 else "A"


def scalar_of(name: str, value: object) -> Scalar:
    """Return a number with the type that Numba gives it: Python's integers are int64, floats float64.

    Raises
    ------
    InvalidRequest
        If it is none, or does not fit.
    Unsupported
        For a NumPy type that is no argument of kernels.
    """
    kind = str(value.dtype) if isinstance(value, np.generic) else ""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool):
        return Scalar("bool", (int(plain),))
    if isinstance(plain, int):
        if not -(2**63) <= plain < 2**64 or (kind != "uint64" and plain >= 2**63):
            raise InvalidRequest(f"{name} is {plain}; an integer must fit 64 bits (numpy.uint64 for those above 2**63)")
        return Scalar(kind or "int64", (signed_word(int(plain)),))
    if isinstance(plain, float):
        if kind not in ("", *_REALS):
            raise Unsupported(
                f"{name} is a {kind}; numbers that kernels take: {', '.join(_REALS)}, integers, bool, complex"
            )
        return Scalar(kind or "float64", (plain,))
    if isinstance(plain, complex):
        return Scalar(kind or "complex128", (plain.real, plain.imag))
    raise InvalidRequest(
        f"{name} is a {type(value).__name__}; a kernel takes GpuRefs, Records, structs, numbers, and tuples of them "
        f"(Device.put makes a GpuRef from an array)"
    )


def classify(name: str, value: object) -> tuple[Any, ...]:
    """Return an argument as (kind, value): ``"array"``, ``"records"`` or ``"scalar"``."""
    if isinstance(value, GpuRef):
        return "array", value
    if isinstance(value, Records):
        return "records", value
    return "scalar", scalar_of(name, value)


def flattened(
    names: Sequence[str], arguments: Sequence[tuple[Any, ...]], outermost: str | None = None
) -> Iterator[tuple[str, str | None, str, Any]]:
    """Yield arguments and members of tuples: name (``x[0]``), parameter of a member (else None), and (kind, value)."""
    for name, (kind, value) in zip(names, arguments, strict=True):
        if kind == "tuple":
            inner = [f"{name}[{i}]" for i in range(len(value.items))]
            yield from flattened(inner, value.items, outermost or name)
        else:
            yield name, outermost, kind, value


def _words(scalar: Scalar) -> list[str]:
    """Return the words of a scalar in a message."""
    real = scalar.type.startswith(("float", "complex"))
    return ["float64" if real else "int64"] * len(scalar.words)


class Numbers(NamedTuple):
    """The scalars of a launch.

    Attributes
    ----------
    names : tuple of str
    values : tuple of (int or float)
    complexes : tuple of (str, int, int)
        As those of `plans.signature.Signature`.
    """

    names: tuple[str, ...]
    values: tuple[int | float, ...]
    complexes: tuple[tuple[str, int, int], ...]


def launch_spec(
    op: str,
    names: Sequence[str],
    arguments: Sequence[tuple[Any, ...]],
    access: dict[str, int],
    uses: Sequence[GpuRef],
    report: Sequence[GpuRef],
    launch: Configuration,
    kernel: CompiledKernel | PickledKernel,
) -> tuple[PlanSpec[KernelAttributes], Numbers]:
    """Return the plan of a launch, and its numbers.

    Parameters
    ----------
    op : str
        Name of the operation, of which the kernel's is a part.
    names, arguments
        Parameters of the kernel, and the result of `classify` for each argument.
    access : dict of str to int
        How each array is used; READ | WRITE for those that are not in it.
    uses : sequence of GpuRef
        Memory that the kernel reaches by other ways; taken for read and written.
    report : sequence of GpuRef
        Memory to which a kernel with checks reports; the last operand.
    launch : Configuration
    kernel : CompiledKernel or PickledKernel
    """
    operands: list[OperandSpec] = []
    scalars: list[str] = []
    scalar_names: list[str] = []
    values: list[int | float] = []
    complexes: list[tuple[str, int, int]] = []
    parameters: list[Parameter] = []
    taken = set(names)

    def keyword(part: str) -> str:
        """Return the unique name of a part of an argument in `Plan.tell`."""
        made = part.replace("[", "_").replace("]", "")
        while made in taken:
            made += "_"
        taken.add(made)
        return made

    def number(name: str, scalar: Scalar) -> ScalarParameter:
        at = len(scalars)
        scalars.extend(_words(scalar))
        values.extend(scalar.words)
        if len(scalar.words) == 2:
            scalar_names.extend([keyword(f"{name}_real"), keyword(f"{name}_imag")])
            complexes.append((name if name in names else keyword(name), at, at + 1))
        else:
            scalar_names.append(name if name in names else keyword(name))
        return ScalarParameter(at, scalar.type)

    every = list(flattened(names, arguments))
    left = _MAX_WORDS - sum(len(value.words) for _, _, kind, value in every if kind == "scalar")
    for name, _, kind, value in every:
        if kind in ("array", "records"):
            ref = ref_of(value)
            use = access.get(name, READ | WRITE)
            if use & WRITE and kind == "array":
                _check_written(name, ref)
            parameters.append(ArrayParameter(len(operands), None if kind == "array" else _descr(value.dtype)))
            operands.append(OperandSpec(name, dtype_name(ref.dtype), ref.shape, ref.strides, use))
        elif kind == "pointer":
            use = access.get(name, READ | WRITE)
            parameters.append(PointerParameter(len(operands)))
            operands.append(OperandSpec(name, dtype_name(value.dtype), value.shape, value.strides, use))
        elif kind in ("record", "tensor_map"):
            ref = value.ref
            if kind == "record":
                parameters.append(RecordParameter(len(operands), _descr(value.dtype)))
            else:
                axes, modes = value.described()
                parameters.append(MapParameter(len(operands), axes, modes, value.alignment))
            operands.append(OperandSpec(name, dtype_name(ref.dtype), ref.shape, ref.strides, access[name]))
        elif kind == "bytes" and -(-len(value) // 8) <= left:
            # In the message, so that each value needs no plan of its own.
            words = struct.unpack(f"<{-(-len(value) // 8)}q", value + bytes(-len(value) % 8))
            left -= len(words)
            parameters.append(WordsParameter(len(scalars)))
            scalars.extend(["int64"] * len(words))
            values.extend(words)
            scalar_names.extend(keyword(f"{name}_{i}") for i in range(len(words)))
        elif kind == "bytes":
            parameters.append(BytesParameter(value.hex()))
        else:
            parameters.append(number(name, value))
    parameters = _gathered(arguments, iter(parameters))
    for i, _ in enumerate(uses):
        operands.append(OperandSpec(f"uses[{i}]", "uint8", (1,), (1,), READ | WRITE))
    for ref in report:
        use = READ | WRITE | HOST  # a failure leaves no poison there, or nothing would run after the first
        operands.append(OperandSpec("report", dtype_name(ref.dtype), ref.shape, ref.strides, use))
    spec = PlanSpec(
        op,
        tuple(operands),
        tuple(scalars),
        KernelAttributes(
            kernel=kernel,
            grid=launch.grid,
            block=launch.block,
            shared=launch.shared,
            cluster=launch.cluster,
            cooperative=launch.cooperative,
            parameters=tuple(parameters),
        ),
    )
    return spec, Numbers(tuple(scalar_names), tuple(values), tuple(complexes))


def _gathered(arguments: Sequence[tuple[Any, ...]], flat: Iterator[Parameter]) -> list[Parameter]:
    """Return parameters as `flattened` has them with those of a tuple in one."""
    made: list[Parameter] = []
    for kind, value in arguments:
        if kind == "tuple":
            named = value.named and (value.named.__name__, value.named._fields)
            made.append(TupleParameter(tuple(_gathered(value.items, flat)), named))
        else:
            made.append(next(flat))
    return made


def _check_written(name: str, ref: GpuRef) -> None:
    """Refuse an array in which elements share memory, where a kernel writes it: threads would race."""
    if ref.size and any(stride == 0 and extent > 1 for extent, stride in zip(ref.shape, ref.strides, strict=True)):
        raise InvalidRequest(
            f"{name} repeats elements (strides {ref.strides}) and the kernel may write it; copy it first"
        )


def _descr(dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return a structured dtype as plain values, from which `record_dtype` makes it again."""
    fields: Any = dtype.fields or {}
    names = dtype.names or ()
    return (
        names,
        tuple(_field_descr(fields[n][0]) for n in names),
        tuple(fields[n][1] for n in names),
        dtype.itemsize,
    )


def _field_descr(dtype: np.dtype[Any]) -> Any:
    """Return a field's dtype: a string, of an array (shape, element), of a struct as `_descr`."""
    if dtype.subdtype is not None:
        return dtype.shape, _field_descr(dtype.base)
    return _descr(dtype) if dtype.names else dtype.str


def _field_dtype(described: Any) -> np.dtype[Any]:
    if isinstance(described, str):
        return np.dtype(described)
    if len(described) == 2:
        return np.dtype((_field_dtype(described[1]), tuple(described[0])))
    return record_dtype(described)


def record_dtype(described: Sequence[Any]) -> np.dtype[Any]:
    """Return the dtype of `Records` from a plan specification."""
    names, formats, offsets, itemsize = described
    made = [_field_dtype(f) for f in formats]
    return np.dtype({"names": list(names), "formats": made, "offsets": list(offsets), "itemsize": itemsize})
