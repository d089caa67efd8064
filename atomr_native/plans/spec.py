"""Plan specifications: descriptions of operations for a worker to build."""

# Annotations are values here, not texts: msgspec reads them, also of classes that are exported under another module.
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from .._support.public import public
from ..arrays.operands import ArrayLayout, Fresh, contiguous_strides
from ..dtypes import DTYPES, as_dtype, dtype_name
from ..errors import InvalidRequest
from ..protocol.binaries import Binary
from ..protocol.typed import decode, one_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # for its defaults

    AttributesT = TypeVar("AttributesT", default=Any, covariant=True)
else:
    from typing import TypeVar

    AttributesT = TypeVar("AttributesT", covariant=True)

__all__ = [
    "HOST",
    "OVERWRITE",
    "READ",
    "WRITE",
    "Attributes",
    "DtypeName",
    "Extent",
    "FreeAttributes",
    "NestedSpec",
    "OperandSpec",
    "PlanRequest",
    "PlanSpec",
    "QuarantinedAttributes",
    "ShippedAttributes",
    "ShippedCode",
    "describe",
    "describe_output",
    "signed_word",
]

#: The operation reads the operand.
READ = 1
#: The operation writes the operand, or part of it.
WRITE = 2
#: The operation writes every byte of its view and reads none of it (always with `WRITE`).
OVERWRITE = 4
#: The CPU writes the operand, too (staging, host arrays): a failure leaves no poison.
HOST = 8


def signed_word(number: int) -> int:
    """Return a signed or unsigned 64-bit integer as the signed integer of the same bits."""
    return number - 2**64 if number >= 2**63 else number


#: An extent of a shape, in elements.
Extent: TypeAlias = Annotated[int, Meta(ge=0)]
#: The name of an element type.
DtypeName: TypeAlias = Annotated[str, one_of(*DTYPES)]
#: The kind of a scalar, as messages have it.
ScalarKind: TypeAlias = Annotated[str, one_of("float64", "int64")]


class OperandSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """One array of a plan: its structure and how the operation uses it.

    Strides are in bytes, as in NumPy; `access` is a sum of `READ`, `WRITE`, `OVERWRITE` and `HOST`.
    """

    name: str
    dtype: DtypeName
    shape: tuple[Extent, ...]
    strides: tuple[int, ...]
    access: Annotated[int, Meta(ge=0, le=READ | WRITE | OVERWRITE | HOST)]

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides):
            raise InvalidRequest(
                f"{self.name} has shape {self.shape} and strides {self.strides}; allowed: a stride for each axis"
            )


def describe(name: str, operand: ArrayLayout, access: int) -> OperandSpec:
    """Return the plan operand with the layout of `operand`."""
    return OperandSpec(name, dtype_name(as_dtype(operand.dtype)), tuple(operand.shape), tuple(operand.strides), access)


def describe_output(name: str, given: ArrayLayout | None, fresh: Fresh, access: int) -> OperandSpec:
    """Return the plan operand of an output: with the layout of the given array, or contiguous as a new array."""
    if given is not None:
        return describe(name, given, access)
    strides = contiguous_strides(fresh.shape, fresh.dtype.itemsize)
    return OperandSpec(name, dtype_name(fresh.dtype), fresh.shape, strides, access)


class Attributes(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the attributes of operations: what a plan's specification says besides operands and scalars.

    Each operation has a subclass, frozen and of hashable fields, which its library's descriptor names.
    """


class ShippedCode(Struct, frozen=True, forbid_unknown_fields=True):
    """Machine code of the kernels of ``libraries/<name>/kernels/`` that a plan launches.

    Attributes
    ----------
    entries : tuple of (str, str)
        What each kernel is called in the code.
    code : Binary
    """

    entries: tuple[tuple[str, str], ...]
    code: Binary


class ShippedAttributes(Attributes, frozen=True):
    """Attributes of an operation whose kernels ship with the library.

    Attributes
    ----------
    shipped : ShippedCode or None
        None on the host device.
    """

    shipped: ShippedCode | None = None


class QuarantinedAttributes(Attributes, frozen=True):
    """Attributes of ``quarantined``: why the plan that it stands for is not tried again."""

    reason: str


#: Attributes of an operation that declares no type for them: pairs of a name and a JSON value or a `Binary`.
FreeAttributes: TypeAlias = tuple[tuple[str, Any], ...]


@public
class PlanSpec(Struct, Generic[AttributesT], frozen=True, forbid_unknown_fields=True):
    """A frozen operation: its complete description except addresses and scalars.

    Two equal specifications name the same native plan, so plans are cached by the whole value.

    Attributes
    ----------
    op : str
        Name of the operation.
    operands : tuple of OperandSpec
        In message order.
    scalars : tuple of str
        Kind of each scalar of a message, ``"float64"`` or ``"int64"``.
    attributes : Attributes or tuple of (str, JSON value)
        Of the type that the operation's library declares; pairs where it declares none.
    """

    op: str
    operands: tuple[OperandSpec, ...]
    scalars: tuple[ScalarKind, ...] = ()
    attributes: AttributesT = ()  # type: ignore[assignment]

    @property
    def binaries(self) -> tuple[Binary, ...]:
        """The bytes that its JSON refers to."""
        return self._encode()[1]

    def to_json(self) -> dict[str, Any]:
        """Return the form that crosses the control plane; it has references to `binaries`."""
        return self._encode()[0]

    def _encode(self) -> tuple[dict[str, Any], tuple[Binary, ...]]:
        """Return JSON, and the bytes that it refers to."""
        found: list[Binary] = []

        def plain(value: object) -> object:
            if isinstance(value, NestedSpec):
                return msgspec.to_builtins(value.spec, enc_hook=plain)
            if isinstance(value, Binary):
                found.append(value)
                return value.reference
            for kind in (int, float, str):  # subclasses
                if isinstance(value, kind):
                    return kind(value)
            raise TypeError(f"{value!r:.200} is a {type(value).__name__}; allowed in plan specifications: JSON, bytes")

        made: dict[str, Any] = msgspec.to_builtins(self, enc_hook=plain)
        return made, tuple(found)

    @staticmethod
    def from_json(
        value: object,
        attributes: Any = FreeAttributes,
        find: Callable[[object], Binary] | None = None,
        attributes_of: Callable[[str], Any] | None = None,
    ) -> "PlanSpec[Any]":
        """Return the specification that `to_json` has made JSON of, checked.

        Parameters
        ----------
        value
            The JSON.
        attributes : type
            Of the operation's attributes.
        find : callable, optional
            From a reference to the bytes that it refers to.
        attributes_of : callable, optional
            From an operation's name to the type of its attributes, for specifications that hold others.

        Raises
        ------
        InvalidRequest
            For what is no specification with such attributes; the message names the field, its value and what is
            allowed.
        """
        what = "the plan specification"
        if isinstance(value, dict):
            what = f"the specification of {value.get('op')!r}"
            for name in ("op", "attributes"):  # which decide the type; a default is for makers of specifications
                if name not in value:
                    raise InvalidRequest(f"{what}: it lacks the field {name!r}; it has {', '.join(value) or 'none'}")
        kind: type[PlanSpec[Any]] = PlanSpec[attributes]
        if find is None:
            return decode(value, kind, what)

        def nested(inner: object) -> NestedSpec:
            op = inner.get("op") if isinstance(inner, dict) else None
            kind_of = attributes_of(op if isinstance(op, str) else "") if attributes_of else FreeAttributes
            return NestedSpec(PlanSpec.from_json(inner, kind_of, find))

        spec = decode(value, kind, what, own={Binary: find, NestedSpec: nested})
        if isinstance(spec.attributes, tuple):  # free, so that no type says where binaries are
            found = tuple((name, find(v) if Binary.is_reference(v) else v) for name, v in spec.attributes)
            return replace(spec, attributes=found)
        return spec


class NestedSpec:
    """A specification inside the attributes of another one, of an operation of any kind."""

    __slots__ = ("_hash", "spec")

    def __init__(self, spec: PlanSpec[Any]) -> None:
        self.spec = spec
        self._hash = hash(spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NestedSpec) and self.spec == other.spec

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"NestedSpec({self.spec!r})"


class PlanRequest(NamedTuple):
    """What a worker is asked to build.

    Attributes
    ----------
    plan : int
        Its number.
    lane : int
        Which lane will run it.
    spec : dict
        JSON of its specification.
    binaries : tuple of Binary
        The bytes that the JSON refers to.
    suspect : bool
        Whether its build and its first message run alone.
    workspace : int or None
        Bytes of workspace that it may have, where memory is short; None: as many as the device allows.
    """

    plan: int
    lane: int
    spec: dict[str, Any]
    binaries: tuple[Binary, ...]
    suspect: bool = False
    workspace: int | None = None
