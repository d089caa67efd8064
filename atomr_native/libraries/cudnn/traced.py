"""Tensors of a user's graph, which its function computes with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from ..._support.checks import check_choice, is_integer, is_real
from ..._support.public import public
from ...errors import InvalidRequest
from .activations import activated
from .draft import Draft, packed, settled
from .spec import ACTIVATIONS, Axes, extents, paddings_of, per_axis

__all__ = ["GraphTensor"]

#: Functions of one tensor besides activations.
_UNARY: Final = ("abs", "ceil", "cos", "erf", "exp", "floor", "log", "reciprocal", "rsqrt", "sin", "sqrt", "tan")
#: Reductions, with cuDNN's names.
_REDUCTIONS: Final = {"sum": "add", "mean": "avg", "max": "max", "min": "min", "prod": "mul"}


@public
class GraphTensor:
    """A tensor in a function of `GraphRequest`: operators and methods add operations to the graph.

    ``+ - * /`` and ``-x`` are as in NumPy, with numbers, too; ``a @ b`` is a product of matrices over the last two
    axes.

    Attributes
    ----------
    shape : tuple of int

    Examples
    --------
    >>> x, w = device.put(np.ones((2, 3), "float32")), device.put(np.ones((3, 2), "float32"))
    >>> device.cudnn.graph(lambda a, b: (a @ b - 2.5).apply("relu"), x, w).numpy()
    array([[0.5, 0.5],
           [0.5, 0.5]], dtype=float32)
    """

    __slots__ = ("at", "draft", "real", "shape")

    def __init__(self, draft: Draft, at: int, shape: Sequence[int], real: str) -> None:
        self.draft, self.at, self.real = draft, at, real
        self.shape = tuple(shape)

    @property
    def _rank(self) -> int:
        return len(self.draft.tensors[self.at].shape)

    def _other(self, value: Any) -> GraphTensor:
        if isinstance(value, GraphTensor):
            if value.draft is not self.draft:
                raise InvalidRequest("a tensor of another graph; allowed: tensors of one call of the function")
            return value
        if not is_real(value):
            raise InvalidRequest(f"{value!r} in a graph; allowed: its tensors, and real numbers")
        constant = self.draft.constant(float(value), self._rank, self.real)
        return GraphTensor(self.draft, constant, (), self.real)

    def _binary(self, mode: str, a: GraphTensor, b: GraphTensor) -> GraphTensor:
        rank = max(len(a.shape), len(b.shape))
        wide = [(*([1] * (rank - len(t.shape))), *t.shape) for t in (a, b)]
        if any(n != m and 1 not in (n, m) for n, m in zip(*wide, strict=True)):
            raise InvalidRequest(f"{mode} of shapes {a.shape} and {b.shape}; allowed: shapes that broadcast")
        shape = tuple(n if m == 1 else m for n, m in zip(*wide, strict=True))
        like = b if b.shape == shape and a.shape != shape else a
        made = _new(like, shape)
        self.draft.pointwise(mode, a.at, b.at, to=made.at, compute=self.real)
        return made

    def __add__(self, other: object) -> GraphTensor:
        return self._binary("add", self, self._other(other))

    __radd__ = __add__

    def __mul__(self, other: object) -> GraphTensor:
        return self._binary("mul", self, self._other(other))

    __rmul__ = __mul__

    def __sub__(self, other: object) -> GraphTensor:
        return self._binary("sub", self, self._other(other))

    def __rsub__(self, other: object) -> GraphTensor:
        return self._binary("sub", self._other(other), self)

    def __truediv__(self, other: object) -> GraphTensor:
        return self._binary("div", self, self._other(other))

    def __rtruediv__(self, other: object) -> GraphTensor:
        return self._binary("div", self._other(other), self)

    def __neg__(self) -> GraphTensor:
        made = _new(self, self.shape)
        self.draft.pointwise("neg", self.at, to=made.at, compute=self.real)
        return made

    def maximum(self, other: object) -> GraphTensor:
        """Return the larger ones of two tensors' elements, or of a tensor's and a number."""
        return self._binary("max", self, self._other(other))

    def minimum(self, other: object) -> GraphTensor:
        """Return the smaller ones of two tensors' elements, or of a tensor's and a number."""
        return self._binary("min", self, self._other(other))

    def apply(self, function: str) -> GraphTensor:
        """Return a function of each element.

        Parameters
        ----------
        function : str
            ``relu``, ``gelu``, ``gelu_tanh``, ``silu``, ``sigmoid``, ``tanh``, ``elu``, ``softplus``, ``abs``,
            ``ceil``, ``cos``, ``erf``, ``exp``, ``floor``, ``log``, ``reciprocal``, ``rsqrt``, ``sin``, ``sqrt`` or
            ``tan``.
        """
        check_choice("function", function, (*ACTIVATIONS, *_UNARY))
        made = _new(self, self.shape)
        if function in ACTIVATIONS:
            activated(self.draft, function, self.at, to=made.at, compute=self.real)
        else:
            self.draft.pointwise(function, self.at, to=made.at, compute=self.real)
        return made

    def __matmul__(self, other: object) -> GraphTensor:
        b = self._other(other)
        if len(self.shape) < 2 or len(b.shape) < 2 or self.shape[-1] != b.shape[-2]:
            raise InvalidRequest(
                f"a product of shapes {self.shape} and {b.shape}; allowed: (..., m, k) and (..., k, n)"
            )
        if self.shape[:-2] != b.shape[:-2]:
            raise InvalidRequest(
                f"a product of shapes {self.shape} and {b.shape}; allowed: equal axes before the last two"
            )
        shape = (*self.shape[:-1], b.shape[-1])
        whole = (*([1] * (self._rank - len(shape))), *shape)
        made = GraphTensor(self.draft, self.draft.result(whole, self.real, packed(whole)), shape, self.real)
        self.draft.node("matmul", {"a": self.at, "b": b.at, "c": made.at}, compute=self.real)
        return made

    def convolve(
        self,
        w: GraphTensor,
        *,
        stride: int | tuple[int, ...] = 1,
        padding: Any = 0,
        dilation: int | tuple[int, ...] = 1,
    ) -> GraphTensor:
        """Return the convolution of images (N, C, ...) of two or three spatial axes with filters (K, C / groups, ...).

        Options are those of `ConvolutionRequest`.
        """
        w = self._other(w)
        n = len(self.shape) - 2
        if n not in (2, 3) or len(w.shape) != n + 2 or self._rank != n + 2:
            raise InvalidRequest(
                f"a convolution of shapes {self.shape} and {w.shape} among tensors of {self._rank} axes; allowed: "
                f"images and filters of 4 or 5 axes, and no tensor of more"
            )
        if self.shape[1] % w.shape[1] or w.shape[0] % (self.shape[1] // w.shape[1]):
            raise InvalidRequest(f"filters of shape {w.shape} for {self.shape[1]} channels; allowed: whole groups")
        before, after = paddings_of(padding, n)
        axes = Axes(before, after, per_axis("stride", stride, n, 1), per_axis("dilation", dilation, n, 1))
        shape = (self.shape[0], w.shape[0], *extents(self.shape[2:], w.shape[2:], axes))
        last = settled(self.shape, self.draft.tensors[self.at].strides) == packed(self.shape, channels_last=True)
        made = GraphTensor(
            self.draft, self.draft.result(shape, self.real, packed(shape, channels_last=last)), shape, self.real
        )
        ports = {"x": self.at, "w": w.at, "y": made.at}
        self.draft.node("convolution_forward", ports, compute=self.real, integers=axes.integers())
        return made

    def reduce(self, function: str, axis: int | tuple[int, ...]) -> GraphTensor:
        """Return ``sum``, ``mean``, ``max``, ``min`` or ``prod`` over axes, which stay with one element."""
        check_choice("function", function, _REDUCTIONS)
        rank = len(self.shape)
        given = axis if isinstance(axis, tuple) else (axis,)
        if not given or any(not is_integer(one) or not -rank <= one < rank for one in given):
            raise InvalidRequest(f"axis={axis!r}; allowed: axes of {rank}")
        places = {one % rank for one in given}
        made = _new(self, tuple(1 if i in places else n for i, n in enumerate(self.shape)))
        ports = {"x": self.at, "y": made.at}
        self.draft.node("reduction", ports, mode=_REDUCTIONS[function], compute=self.real)
        return made

    def reshape(self, *shape: int) -> GraphTensor:
        """Return the elements in another shape, in C order."""
        if any(not is_integer(n) or n < 0 for n in shape) or math.prod(shape) != math.prod(self.shape):
            raise InvalidRequest(f"reshape of {self.shape} to {shape}; allowed: as many elements")
        if len(shape) > self._rank:
            raise InvalidRequest(f"reshape to {len(shape)} axes; allowed: {self._rank}, as the tensors of the graph")
        whole = (*([1] * (self._rank - len(shape))), *shape)
        found = self.draft.tensors[self.at]
        dense = self.draft.result(found.shape, self.real)
        self.draft.pointwise("identity", self.at, to=dense, compute=self.real)
        return GraphTensor(self.draft, self.draft.reshaped(dense, whole), shape, self.real)


def _new(of: GraphTensor, shape: Sequence[int]) -> GraphTensor:
    """Return a new intermediate result, in the memory order of a tensor if it has its shape."""
    like = of.draft.tensors[of.at]
    rank = len(like.shape)
    whole = (*([1] * (rank - len(shape))), *shape)
    last = False
    if like.shape == whole and not like.value:
        last = rank > 3 and settled(whole, like.strides) == packed(whole, channels_last=True)
    made = of.draft.result(whole, of.real, packed(whole, channels_last=last))
    return GraphTensor(of.draft, made, shape, of.real)
