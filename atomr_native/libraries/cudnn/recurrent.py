"""Requests of recurrent networks, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final

from ..._support.checks import as_integer, check_flag
from ..._support.public import public
from ...arrays.operands import Fresh
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, Scalar, read, written
from .recurrent_shapes import RecurrentAttributes, check_array, check_network, length_words
from .spec import check_given, dtype_of, fresh_of

__all__ = ["RecurrentGradientRequest", "RecurrentRequest", "RecurrentReserveRequest"]

_MOST_SEED: Final = 2**63 - 1


def _results(arrays: Mapping[str, Any]) -> Any:
    return tuple(arrays[name] for name in ("out", "hy", "cy") if name in arrays)


def _gradients(arrays: Mapping[str, Any]) -> Any:
    return tuple(arrays[name] for name in ("dx", "dhx", "dcx", "dweights") if name in arrays)


def _given(request: Any, *names: str) -> list[Operand]:
    return [read(name, getattr(request, name)) for name in names if getattr(request, name) is not None]


def _seed_and_words(words: tuple[int, ...], seed: int, offset: int) -> tuple[int, ...]:
    return (seed, offset, *words)


def _words(words: tuple[int, ...], _hidden: int) -> tuple[int, ...]:
    return words


def _lowered(
    op: str,
    attributes: RecurrentAttributes,
    operands: list[Operand],
    collect: Callable[[Mapping[str, Any]], Any],
    numbers: Mapping[str, int],
    lengths: tuple[int, ...] | None,
) -> Lowered:
    words = length_words(lengths, attributes.length_bits)
    scalars = [Scalar(name, "int64", value) for name, value in numbers.items()]
    scalars += [Scalar(f"lengths_{i}", "int64", word, word) for i, word in enumerate(words)]
    # Scalars of calls are made of numbers.  Lengths belong to a call's structure, so any number serves for them.
    given, convert = (tuple(numbers), _seed_and_words) if numbers else (("hidden",), _words)
    return Lowered(
        op=op,
        operands=tuple(operands),
        collect=collect,
        attributes=attributes,
        scalars=tuple(scalars),
        numbers=given if scalars else (),
        convert=partial(convert, words),
    )


def _shapes(attributes: RecurrentAttributes, x: Any) -> tuple[Fresh, Fresh]:
    """Return the structures of the result, and of a state of all layers."""
    width = attributes.directions * attributes.hidden
    layers = attributes.layers * attributes.directions
    return (
        fresh_of((*x.shape[:-1], width), attributes.dtype),
        fresh_of((layers, attributes.batch, attributes.hidden), attributes.dtype),
    )


def _check_reserve(reserve: Any) -> None:
    if reserve is None:
        raise InvalidRequest(
            "reserve=None in training; allowed: uint8, what device.cudnn.rnn returns behind its results"
        )
    dtype_of("reserve", reserve, ("uint8",))
    check_array("reserve", reserve, (math.prod(reserve.shape),), "uint8")


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentRequest(Request[Any]):
    """A recurrent network over sequences, checked when it is made.

    With ``a = W x + b_i + R h + b_h`` for each gate: ``relu`` and ``tanh`` have ``h' = f(a)``; an ``lstm``
    ``c' = sigmoid(a_f) c + sigmoid(a_i) tanh(a_c)`` and ``h' = sigmoid(a_o) tanh(c')``; a ``gru``
    ``n = tanh(W_n x + b_in + r (R_n h + b_hn))`` with ``r = sigmoid(a_r)``, and ``h' = (1 - z) n + z h`` with
    ``z = sigmoid(a_z)``.

    Parameters
    ----------
    kind : str
        ``relu``, ``tanh``, ``gru`` or ``lstm``.
    x : GpuRef
        float16, bfloat16, float32 or float64, in the order that `layout` names; C-contiguous, as all arrays are.
    weights : GpuRef
        Of x's dtype and one axis, in the order of `RecurrentWeights`.
    hidden : int
        Elements of a state.
    layers : int
    bidirectional : bool
        Whether a second network in each layer reads the sequences from their ends; results are next to each other.
    bias : bool
        Whether there are biases.
    hx, cx : GpuRef, optional
        First states, (layers * directions, batch, hidden); zeros if missing.  cx is an LSTM's.
    lengths : tuple of int, optional
        Steps of each sequence, 1 or more.  Results after them are 0, and the last states are those of the last step.
        They travel in the message, so one plan serves all lengths.
    layout : str
        ``tnc``: (steps, batch, inputs); ``ntc``: (batch, steps, inputs); ``packed``: (steps of all sequences, inputs),
        first the first steps of all sequences, then their second steps, and so on, with lengths in descending order.
    dropout : float
        In training: the probability with which an element between two layers becomes 0.
    seed, offset : int
        With dropout: what is dropped depends on them only, on one kind of device.
    training : bool
        Whether the message keeps in `reserve` what its gradient needs.
    reserve : GpuRef, optional
        In training: uint8, of one axis, as many bytes as `Cudnn.rnn_reserve` says.
    out : GpuRef, optional
        Where the result goes, as x with ``directions * hidden`` elements in the last axis.
    tf32 : bool
        Whether products of float32 may round their factors to TensorFloat-32.

    Returns
    -------
    tuple of GpuRef
        The result and the last states hy, of an LSTM also cy.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.ones((3, 1, 1)))
    >>> weights = device.put(np.array([1.0, 1.0, 0.0, 0.0]))
    >>> y, hy = device.cudnn.tell(an.RecurrentRequest(kind="relu", x=x, weights=weights, hidden=1))
    >>> y.numpy().ravel()
    array([1., 2., 3.])
    """

    kind: str
    x: Any
    weights: Any
    hidden: int
    layers: int = 1
    bidirectional: bool = False
    bias: bool = True
    hx: Any = None
    cx: Any = None
    lengths: tuple[int, ...] | None = None
    layout: str = "tnc"
    dropout: float = 0.0
    seed: int = 0
    offset: int = 0
    training: bool = False
    reserve: Any = None
    out: Any = None
    tf32: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_flag("training", self.training)
        for name in ("seed", "offset"):
            as_integer(name, getattr(self, name), 0, _MOST_SEED)
        attributes, lengths = check_network(self)
        result, state = _shapes(attributes, self.x)
        if self.training:
            _check_reserve(self.reserve)
        elif self.reserve is not None:
            raise InvalidRequest("reserve is given without training; allowed: with training=True")
        inputs = _given(self, "x", "weights", "hx", "cx")
        check_given([("out", self.out, result)], [(operand.name, operand.given) for operand in inputs])
        if self.out is not None:
            check_array("out", self.out, result.shape, attributes.dtype)
        operands = [*inputs, written("out", self.out, result), written("hy", None, state)]
        if self.kind == "lstm":
            operands.append(written("cy", None, state))
        if self.training:
            operands.append(written("reserve", self.reserve, fresh_of(self.reserve.shape, "uint8")))
        numbers = {"seed": int(self.seed), "offset": int(self.offset)} if attributes.draws else {}
        return _lowered("cudnn.rnn", attributes, operands, _results, numbers, lengths)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentGradientRequest(Request[Any]):
    """The gradients of a recurrent network by its input, states and weights, checked when it is made.

    Parameters
    ----------
    kind, x, weights, hidden, layers, bidirectional, bias, hx, cx, lengths, layout, dropout, tf32
        As of `RecurrentRequest`.
    y : GpuRef
        Its result.
    dy : GpuRef
        The gradient by the result.
    reserve : GpuRef
        What it kept in training.  The message overwrites it, so it serves for one gradient.
    dhy, dcy : GpuRef, optional
        The gradients by the last states; zeros if missing.

    Returns
    -------
    tuple of GpuRef
        The gradients by x and hx, of an LSTM then that by cx, and last that by the weights.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x, weights = device.put(np.ones((3, 1, 1))), device.put(np.array([1.0, 1.0, 0.0, 0.0]))
    >>> y, hy, reserve = device.cudnn.rnn("relu", x, weights, hidden=1, training=True)
    >>> request = an.RecurrentGradientRequest(kind="relu", x=x, weights=weights, hidden=1, y=y, dy=x, reserve=reserve)
    >>> dx, dhx, dweights = device.cudnn.tell(request)
    >>> dx.numpy().ravel(), dweights.numpy()
    (array([3., 2., 1.]), array([6., 4., 6., 6.]))
    """

    kind: str
    x: Any
    weights: Any
    hidden: int
    y: Any
    dy: Any
    reserve: Any
    layers: int = 1
    bidirectional: bool = False
    bias: bool = True
    hx: Any = None
    cx: Any = None
    dhy: Any = None
    dcy: Any = None
    lengths: tuple[int, ...] | None = None
    layout: str = "tnc"
    dropout: float = 0.0
    tf32: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        attributes, lengths = check_network(self)
        result, state = _shapes(attributes, self.x)
        for name in ("y", "dy"):
            check_array(name, getattr(self, name), result.shape, attributes.dtype)
        _check_reserve(self.reserve)
        operands = _given(self, "x", "weights", "hx", "cx", "y", "dy", "dhy", "dcy")
        operands.append(written("reserve", self.reserve, fresh_of(self.reserve.shape, "uint8"), updated=True))
        new = {"dx": fresh_of(self.x.shape, attributes.dtype), "dhx": state}
        if self.kind == "lstm":
            new["dcx"] = state
        new["dweights"] = fresh_of(self.weights.shape, attributes.dtype)
        operands += [written(name, None, fresh) for name, fresh in new.items()]
        return _lowered("cudnn.rnn_backward", attributes, operands, _gradients, {}, lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentReserveRequest(Request[Any]):
    """How many bytes the training of a recurrent network keeps; int64, of one element.

    Parameters
    ----------
    attributes : RecurrentAttributes
        Of the network.
    """

    attributes: RecurrentAttributes

    def lowering(self) -> Lowered:
        """Return its message."""
        return Lowered(
            op="cudnn.rnn_reserve",
            operands=(written("out", None, fresh_of((1,), "int64")),),
            collect=itemgetter("out"),
            attributes=self.attributes,
        )
