"""Requests of graphs of a user's own: a function of tensors becomes a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ..._support.public import public
from ...arrays.operands import check_input
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .._tuning import tuning_of
from .draft import Draft
from .spec import FLOATS, check_given, dtype_of, flags, fresh_of
from .traced import GraphTensor

__all__ = ["GraphRequest"]

#: Axes of a graph's tensors: at least as many as products have, and at most as many as images.
_LEAST: Final = 3
_MOST: Final = 5


def _strides(shape: tuple[int, ...], strides: tuple[int, ...], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides with axes of one element in front."""
    span = max([1, *(n * step for n, step in zip(shape, strides, strict=True))])
    more = rank - len(shape)
    steps = tuple(span if n == 1 else step for n, step in zip(shape, strides, strict=True))
    return (*([1] * more), *shape), (*([span] * more), *steps)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest(Request[Any]):
    """A graph of operations that a function describes, checked when it is made.

    On a GPU a graph of one product (a matmul or a convolution) and elementwise operations is one plan of cuDNN where it
    has an engine; any other is several steps of one message.  ``plan.notes`` says so.

    Parameters
    ----------
    function : callable
        From a `GraphTensor` for each operand to the result, or to a tuple of results.  It is called once for each
        structure of a call, and is to depend on its arguments only; a function that is made anew is another one.
    operands : tuple of GpuRef
        Up to 5 axes; all float64, or each float16, bfloat16 or float32, which are computed in float32.
    out : GpuRef, optional
        Where the result goes, if there is only one; else results are new arrays of the first operand's dtype.
    tf32, deterministic, tune
        As in `ConvolutionRequest`.

    Returns
    -------
    GpuRef or tuple of GpuRef

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> request = an.GraphRequest(function=lambda a: (a - a.reduce("mean", -1), a.reduce("max", 0)), operands=(x,))
    >>> [y.numpy().tolist() for y in device.cudnn.tell(request)]
    [[[-0.5, 0.5], [-0.5, 0.5]], [[3.0, 4.0]]]
    """

    function: Callable[..., Any]
    operands: tuple[Any, ...]
    out: Any = None
    tf32: bool = False
    deterministic: bool = False
    tune: bool | str = False

    def lowering(self) -> Lowered:
        """Check the request, call the function and return the message."""
        flags(self, "tf32", "deterministic")
        if not callable(self.function):
            raise InvalidRequest(f"function={self.function!r}; allowed: a function of tensors")
        if not isinstance(self.operands, tuple) or not self.operands:
            raise InvalidRequest(f"operands={self.operands!r}; allowed: a tuple of one array or more")
        draft = Draft()
        tensors = self._tensors(draft)
        made = self.function(*tensors)
        results = made if isinstance(made, tuple) else (made,)
        for one in results:
            if not isinstance(one, GraphTensor) or one.draft is not draft:
                raise InvalidRequest(f"the function's result is {one!r}; allowed: tensors, or a tuple of these")
        if not results:
            raise InvalidRequest("the function has no result; allowed: a tensor, or a tuple of these")
        if self.out is not None and len(results) > 1:
            raise InvalidRequest(f"out is given, and the function has {len(results)} results; allowed: one with out")
        names = self._write(draft, results)
        several = isinstance(made, tuple)

        def collect(arrays: Any) -> Any:
            return tuple(arrays[name] for name in names) if several else arrays[names[0]]

        return draft.lowered(
            "cudnn.graph", collect, tf32=bool(self.tf32), deterministic=bool(self.deterministic), tune=tuning_of(self)
        )

    def _tensors(self, draft: Draft) -> list[GraphTensor]:
        """Add the operands, all with as many axes."""
        names = [f"x{i}" for i in range(len(self.operands))]
        dtypes = [dtype_of(name, array, FLOATS) for name, array in zip(names, self.operands, strict=True)]
        wide = "float64" in dtypes
        if wide and {*dtypes} != {"float64"}:
            raise InvalidRequest(f"operands of dtypes {', '.join(dtypes)}; allowed: all float64, or none")
        rank = max(_LEAST, *(len(check_input(n, a).shape) for n, a in zip(names, self.operands, strict=True)))
        if rank > _MOST:
            raise InvalidRequest(f"an operand has {rank} axes; allowed: {_MOST} at most")
        found = []
        for name, array in zip(names, self.operands, strict=True):
            operand = draft.read(name, array)
            shape = tuple(array.shape)
            whole = draft.view(operand, *_strides(shape, draft.dense_strides(operand), rank))
            found.append(GraphTensor(draft, whole, shape, "float64" if wide else "float32"))
        return found

    def _write(self, draft: Draft, results: tuple[GraphTensor, ...]) -> list[str]:
        """Add the outputs, which the last nodes write; returns their names."""
        names = ["out"] if len(results) == 1 else [f"out{i}" for i in range(len(results))]
        dtype = dtype_name(as_dtype(self.operands[0].dtype))
        inputs = [(f"x{i}", array) for i, array in enumerate(self.operands)]
        for name, one in zip(names, results, strict=True):
            target_dtype = dtype
            if self.out is not None:
                target_dtype = dtype_of("out", self.out, FLOATS)
                if (target_dtype == "float64") != (one.real == "float64"):
                    raise InvalidRequest(
                        f"out has dtype {target_dtype}; allowed: float64 if the operands have it, else not"
                    )
            fresh = fresh_of(one.shape, target_dtype)
            check_given([("out", self.out, fresh)], inputs)
            found = draft.tensors[one.at]
            strides = None
            if not found.value and found.operand < 0 and len(one.shape) == len(found.shape):
                strides = found.strides
            operand = draft.write(name, self.out, fresh, strides=strides)
            rank = len(found.shape)
            target = draft.view(operand, *_strides(one.shape, draft.dense_strides(operand), rank))
            draft.pointwise("identity", one.at, to=target, compute=one.real)
        return names
