"""Lowering: from a request to a complete description of its message.

`Request.lowering` returns the operation, its operands, scalars and attributes, its machine code, and a function that
makes the sender's result.  An actor sends it without knowledge of the operation.  Lowering needs no device: only the
layouts of arrays are used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from ..arrays.operands import Fresh
from .signature import Signature, signature_of
from .spec import (
    OVERWRITE,
    READ,
    WRITE,
    Attributes,
    FreeAttributes,
    OperandSpec,
    PlanSpec,
    ShippedAttributes,
    ShippedCode,
    describe,
    describe_output,
)

if TYPE_CHECKING:
    from ..compile.shipped import Part

__all__ = ["Code", "Lowered", "Operand", "Request", "Scalar", "ShippedKernels", "Target", "read", "written"]

Result = TypeVar("Result")


class Operand(NamedTuple):
    """An array of a message.

    Attributes
    ----------
    spec : OperandSpec
        Name, layout and access.
    given : array or None
        The caller's array; None for an array that each message allocates.
    whole : tuple of int or None
        Shape of the allocation, if the operand is a view of the beginning of a larger new array.
    """

    spec: OperandSpec
    given: Any = None
    whole: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """Name in the plan's specification."""
        return self.spec.name


def read(name: str, array: Any) -> Operand:
    """Return an operand that the message reads."""
    return Operand(describe(name, array, READ), array)


def written(name: str, given: Any, fresh: Fresh, *, updated: bool = False) -> Operand:
    """Return an operand that is overwritten, or read and written if `updated`; without `given` it is allocated."""
    access = READ | WRITE if updated else WRITE | OVERWRITE
    return Operand(describe_output(name, given, fresh, access), given)


class Scalar(NamedTuple):
    """A number in a message.

    Attributes
    ----------
    name : str
    kind : str
        ``"float64"`` or ``"int64"``.
    value : float, int or None
        The request's value, which is the default of its plan; None if calls of the plan must name it.
    default : float, int or None
        The default in the plan of immediate calls, which is shared by calls with different values.
    imaginary_of : str
        The scalar whose imaginary part this is; empty for any other.
    """

    name: str
    kind: str
    value: float | int | None
    default: float | int | None = None
    imaginary_of: str = ""


class Target(NamedTuple):
    """The device properties that lowering may depend on.

    Attributes
    ----------
    capability : (int, int) or None
        Compute capability; None for the host device.
    preferred_workspace : int
        Bytes of workspace that a plan should do with, see `WorkspaceLimits`.
    """

    capability: tuple[int, int] | None
    preferred_workspace: int


class Code(Protocol):
    """Machine code that a plan carries to the worker."""

    def attributes(self, spec: PlanSpec, target: Target) -> Attributes | FreeAttributes:
        """Return the attributes of a plan's specification with the code; waits for the compiler."""


@dataclass(frozen=True, slots=True)
class ShippedKernels:
    """Kernels of ``libraries/<name>/kernels/``; only GPUs use them.

    Attributes
    ----------
    module : str
        ``"fused.norms"`` for ``libraries/fused/kernels/norms.py``.
    parts : tuple of Part, or callable
        The kernels in launch order, or a function from the compute capability to them.
    """

    module: str
    parts: tuple[Part, ...] | Callable[[tuple[int, int]], tuple[Part, ...]]

    def parts_for(self, capability: tuple[int, int]) -> tuple[Part, ...]:
        """Return the kernels for a compute capability."""
        return self.parts(capability) if callable(self.parts) else self.parts

    def attributes(self, spec: PlanSpec[ShippedAttributes], target: Target) -> ShippedAttributes:
        """Return the attributes with symbols and machine code; waits for the compiler.

        Raises
        ------
        Unsupported, LibraryError
            As `atomr_native.compile.shipped.machine_code`.
        """
        if target.capability is None:
            return spec.attributes
        from ..compile.shipped import machine_code

        code = machine_code(self.module, self.parts_for(target.capability), target.capability)
        return replace(spec.attributes, shipped=ShippedCode(code.entries, code.code))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A request as a message.

    It must not refer to its request, which keeps it: the cycle would keep handles alive until the next garbage
    collection.

    Attributes
    ----------
    op : str
        Name of the operation, whose descriptor has the aliasing rule.
    operands : tuple of Operand
        In message order.
    collect : callable
        Maps the operands by name, including new arrays, to the sender's result: an array, or a tuple or list of arrays
        and None.
    attributes : Attributes or tuple of (str, JSON value)
    scalars : tuple of Scalar
        In message order.
    numbers : tuple of (str or int), optional
        The request's fields that the scalars are made of, by name or by index among the call's values.  By default
        those that have the scalars' names.
    convert : callable, optional
        Converts these numbers to the scalars, if they differ.
    code : Code, optional
    unread : tuple of (str, array)
        Arrays of the request that are not operands.
    """

    op: str
    operands: tuple[Operand, ...]
    collect: Callable[[Mapping[str, Any]], Any]
    attributes: Attributes | FreeAttributes = ()
    scalars: tuple[Scalar, ...] = ()
    numbers: tuple[str | int, ...] | None = None
    convert: Callable[..., tuple[float | int, ...]] | None = None
    code: Code | None = None
    unread: tuple[tuple[str, Any], ...] = ()

    def spec(self, target: Target | None = None) -> PlanSpec:
        """Return the plan's specification; without a `target`, it has no machine code."""
        spec = PlanSpec(
            self.op,
            tuple(operand.spec for operand in self.operands),
            tuple(scalar.kind for scalar in self.scalars),
            self.attributes,
        )
        if self.code is None or target is None:
            return spec
        return replace(spec, attributes=self.code.attributes(spec, target))

    def signature(self, spec: PlanSpec, *, shared: bool = False) -> Signature:
        """Return the plan's signature; its scalars default to the request's values, unless the plan is `shared`."""
        defaults = tuple(scalar.default if shared else scalar.value for scalar in self.scalars)
        names = tuple(scalar.name for scalar in self.scalars)
        numbers = tuple(
            (scalar.imaginary_of, names.index(scalar.imaginary_of), at)
            for at, scalar in enumerate(self.scalars)
            if scalar.imaginary_of
        )
        return signature_of(spec, names, defaults, numbers)


class Request(ABC, Generic[Result]):
    """A frozen dataclass that describes one operation of a library; `Result` is the type of the sender's result.

    Construction lowers the request, which checks it.  A subclass normalises its fields in ``__post_init__``, and calls
    this class's method last.
    """

    __slots__ = ("_lowered",)

    _lowered: Lowered

    def __post_init__(self) -> None:
        object.__setattr__(self, "_lowered", self.lowering())

    @abstractmethod
    def lowering(self) -> Lowered:
        """Check the request and return its message.

        Raises
        ------
        InvalidRequest, Unsupported
            For invalid or unsupported values; the message names the value and the allowed ones.
        """

    @property
    def lowered(self) -> Lowered:
        """What `lowering` returned when the request was made; copies and unpickled requests lower themselves anew."""
        try:
            return self._lowered
        except AttributeError:
            object.__setattr__(self, "_lowered", self.lowering())
            return self._lowered
