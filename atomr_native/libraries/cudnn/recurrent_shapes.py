"""Recurrent networks: their kinds, where their weights lie, sizes and lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Final

from msgspec import Meta

from ..._support.checks import as_integer, check_choice, check_flag, is_integer, is_real
from ..._support.public import public
from ...arrays.operands import check_input, is_contiguous
from ...errors import InvalidRequest
from ...plans.spec import Attributes, DtypeName
from ...protocol.typed import one_of
from .spec import dtype_of
from .support import RECURRENT_DTYPES

__all__ = [
    "GATES",
    "RECURRENT_LAYOUTS",
    "RecurrentAttributes",
    "RecurrentWeights",
    "check_array",
    "check_network",
    "length_words",
]

#: Kinds of cells, each with its number of gates.
GATES: Final = {"relu": 1, "tanh": 1, "gru": 3, "lstm": 4}
#: Orders of the axes of sequences.
RECURRENT_LAYOUTS: Final = ("tnc", "ntc", "packed")
_MOST: Final = 2**31 - 1
#: Words of a message in which lengths travel; it has 64 scalars, of which dropout has two.
_LENGTH_WORDS: Final = 60
Positive = Annotated[int, Meta(ge=1)]


class RecurrentAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``cudnn.rnn``, ``cudnn.rnn_backward`` and ``cudnn.rnn_reserve``.

    Attributes
    ----------
    kind, dtype, layout : str
    steps, batch, inputs, hidden, layers : int
        `steps` are those of the longest sequence.
    bidirectional, bias, training, tf32 : bool
    dropout : float
        Between layers, in training.
    length_bits : int
        Bits of the length of a sequence in the message's scalars; 0: all have `steps`.
    """

    kind: Annotated[str, one_of(*GATES)]
    dtype: DtypeName
    layout: Annotated[str, one_of(*RECURRENT_LAYOUTS)]
    steps: Positive
    batch: Positive
    inputs: Positive
    hidden: Positive
    layers: Positive
    bidirectional: bool
    bias: bool
    training: bool
    tf32: bool
    dropout: Annotated[float, Meta(ge=0, lt=1)]
    length_bits: Annotated[int, Meta(ge=0, le=32)]

    @property
    def directions(self) -> int:
        """1 or 2."""
        return 1 + self.bidirectional

    @property
    def draws(self) -> bool:
        """Whether random numbers decide something."""
        return self.training and self.dropout > 0

    @property
    def weights(self) -> RecurrentWeights:
        """Where its weights lie."""
        return RecurrentWeights(self.kind, self.inputs, self.hidden, self.layers, self.bidirectional, self.bias)


@public
@dataclass(frozen=True)
class RecurrentWeights:
    """Where the weights of a recurrent network lie in their array of one axis.

    It is cuDNN's order: the matrices of all layers, then the biases.  Names, shapes and the order of gates are those of
    PyTorch's modules: ``weight_ih_l0`` (gates * hidden, inputs), ``weight_hh_l0`` (gates * hidden, hidden),
    ``bias_ih_l0`` and ``bias_hh_l0`` (gates * hidden,), with ``_reverse`` behind those of the second direction.  Gates
    of an LSTM are input, forget, cell and output, those of a GRU reset, update and new.

    Parameters
    ----------
    kind : str
        ``relu``, ``tanh``, ``gru`` or ``lstm``.
    inputs, hidden, layers : int
    bidirectional, bias : bool

    Raises
    ------
    InvalidRequest
        For invalid values; the message names the value and the allowed ones.

    Examples
    --------
    >>> weights = an.RecurrentWeights("gru", inputs=3, hidden=2)
    >>> weights.size, weights.places["weight_hh_l0"]
    (42, (18, (6, 2)))
    >>> weights.parts(np.arange(42.0))["bias_hh_l0"]
    array([36., 37., 38., 39., 40., 41.])
    """

    kind: str
    inputs: int
    hidden: int
    layers: int = 1
    bidirectional: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, GATES)
        for name in ("inputs", "hidden", "layers"):
            as_integer(name, getattr(self, name), 1, _MOST)
        for name in ("bidirectional", "bias"):
            check_flag(name, getattr(self, name))

    @cached_property
    def places(self) -> Mapping[str, tuple[int, tuple[int, ...]]]:
        """The first element and the shape of each part, in order, by name."""
        rows, directions = GATES[self.kind] * self.hidden, 1 + self.bidirectional
        ends = [f"l{layer}{'_reverse' * way}" for layer in range(self.layers) for way in range(directions)]
        shapes: dict[str, tuple[int, ...]] = {}
        for place, end in enumerate(ends):
            width = self.inputs if place < directions else directions * self.hidden
            shapes |= {f"weight_ih_{end}": (rows, width), f"weight_hh_{end}": (rows, self.hidden)}
        for end in ends if self.bias else ():
            shapes |= {f"bias_ih_{end}": (rows,), f"bias_hh_{end}": (rows,)}
        made, at = {}, 0
        for name, shape in shapes.items():
            made[name] = (at, shape)
            at += math.prod(shape)
        return MappingProxyType(made)

    @property
    def size(self) -> int:
        """Elements in all."""
        return sum(math.prod(shape) for _, shape in self.places.values())

    def parts(self, array: Any) -> dict[str, Any]:
        """Return the parts of an array, a handle or a NumPy array of `size` elements, as views by name."""
        if tuple(array.shape) != (self.size,):
            raise InvalidRequest(f"weights have shape {tuple(array.shape)}; allowed: ({self.size},)")
        return {name: array[at : at + math.prod(shape)].reshape(shape) for name, (at, shape) in self.places.items()}


def check_array(name: str, array: Any, shape: Sequence[int], dtype: str) -> None:
    """Refuse what is no C-contiguous array of this shape and dtype."""
    dtype_of(name, array, (dtype,))
    if tuple(array.shape) != tuple(shape):
        raise InvalidRequest(f"{name} has shape {tuple(array.shape)}; allowed: {tuple(shape)}")
    if not is_contiguous(array):
        raise InvalidRequest(
            f"{name} has strides {tuple(array.strides)}; allowed: a contiguous array: device.copy(ref)"
        )


def _lengths(given: Any, batch: int | None, steps: int | None, tokens: int) -> tuple[int, ...]:
    """Return the lengths of sequences, of which there are `batch` of at most `steps`, or if packed `tokens` in all."""
    if not isinstance(given, tuple | list) or not given or not all(map(is_integer, given)):
        raise InvalidRequest(f"lengths={given!r}; allowed: a tuple of integers, one for each sequence")
    found = tuple(as_integer(f"lengths[{i}]", one, 1, _MOST if steps is None else steps) for i, one in enumerate(given))
    if batch is not None and len(found) != batch:
        raise InvalidRequest(f"{len(found)} lengths; allowed: {batch}, one for each sequence")
    if batch is None and (sum(found) != tokens or list(found) != sorted(found, reverse=True)):
        raise InvalidRequest(
            f"lengths={found} of {tokens} packed steps; allowed: lengths in descending order, {tokens} steps in all"
        )
    bits = max(found).bit_length() if steps is None else steps.bit_length()
    most = _LENGTH_WORDS * (64 // bits)
    if len(found) > most:
        raise InvalidRequest(
            f"lengths of {len(found)} sequences of up to {max(found)} steps; allowed: {most} sequences"
        )
    return found


def check_network(request: Any) -> tuple[RecurrentAttributes, tuple[int, ...] | None]:
    """Check what both directions have; return the attributes and the lengths."""
    check_choice("kind", request.kind, GATES)
    check_choice("layout", request.layout, RECURRENT_LAYOUTS)
    for name in ("bidirectional", "bias", "tf32"):
        check_flag(name, getattr(request, name))
    dtype = dtype_of("x", request.x, RECURRENT_DTYPES)
    shape = tuple(check_input("x", request.x).shape)
    packed = request.layout == "packed"
    lengths: tuple[int, ...] | None = None
    if len(shape) != 3 - packed or 0 in shape:
        axes = "(steps, inputs)" if packed else f"3 axes, {request.layout}"
        raise InvalidRequest(f"x has shape {shape}; allowed: {axes}, at least 1 of each")
    check_array("x", request.x, shape, dtype)
    if packed:
        if request.lengths is None:
            raise InvalidRequest("lengths=None with layout='packed'; allowed: the lengths of the sequences")
        found = _lengths(request.lengths, None, None, shape[0])
        lengths, steps, batch = found, found[0], len(found)
    else:
        steps, batch = (shape[1], shape[0]) if request.layout == "ntc" else shape[:2]
        if request.lengths is not None:
            lengths = _lengths(request.lengths, batch, steps, 0)
    as_integer("hidden", request.hidden, 1, _MOST)
    layers = as_integer("layers", request.layers, 1, _MOST)
    if not is_real(request.dropout) or not 0 <= request.dropout < 1:
        raise InvalidRequest(f"dropout={request.dropout!r}; allowed: numbers from 0 to less than 1")
    if request.dropout and layers == 1:
        raise InvalidRequest(f"dropout={request.dropout} with 1 layer; allowed: with 2 or more, it is between layers")
    attributes = RecurrentAttributes(
        kind=request.kind,
        dtype=dtype,
        layout=request.layout,
        steps=steps,
        batch=batch,
        inputs=shape[-1],
        hidden=int(request.hidden),
        layers=layers,
        bidirectional=bool(request.bidirectional),
        bias=bool(request.bias),
        training=bool(getattr(request, "training", True)),
        tf32=bool(request.tf32),
        dropout=float(request.dropout),
        length_bits=0 if lengths is None else steps.bit_length(),
    )
    check_array("weights", request.weights, (attributes.weights.size,), dtype)
    states = (layers * attributes.directions, batch, attributes.hidden)
    for name in ("hx", "cx", "dhy", "dcy"):
        array = getattr(request, name, None)
        if array is None:
            continue
        if name in ("cx", "dcy") and request.kind != "lstm":
            raise InvalidRequest(f"{name} is given with kind={request.kind!r}; allowed: with kind='lstm'")
        check_array(name, array, states, dtype)
    return attributes, lengths


def length_words(lengths: tuple[int, ...] | None, bits: int) -> tuple[int, ...]:
    """Return lengths as signed words, as many as fit into each from its lowest bit."""
    if lengths is None:
        return ()
    each = 64 // bits
    words = [
        sum(length << bits * i for i, length in enumerate(lengths[at : at + each]))
        for at in range(0, len(lengths), each)
    ]
    return tuple(word - 2**64 if word >= 2**63 else word for word in words)
