"""Functions after an expression or a reduction: of the result, and of operands that broadcast to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..._support.traced import Tree, Untraceable, trace
from ...arrays.operands import check_input
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest, Unsupported

__all__ = ["RESULT", "before_relu", "bias_of", "resolve_tail", "tail_mapping", "tail_modes"]

#: The name of the result in a tree.
RESULT: Final = "result"
#: Names that a message has for other operands.
_TAKEN: Final = frozenset({"c", "alpha", "beta", "out", RESULT})
#: The most further operands.
_MOST: Final = 16


def tail_mapping(given: Any) -> dict[str, Any]:
    """Return the operands of a tail by name.

    Raises
    ------
    InvalidRequest
        If that is no mapping.
    """
    if not isinstance(given, Mapping):
        raise InvalidRequest(f"tail_operands is a {type(given).__name__}; allowed: a mapping of names to arrays")
    return dict(given)


def resolve_tail(request: Any, shape: tuple[int, ...], dtype: str, count: int) -> Tree:
    """Check a function and its operands; return its tree, which is empty without one.

    Parameters
    ----------
    request
        With `tail` and `tail_operands`.
    shape : tuple of int
        Of the result.
    dtype : str
        In which values are computed.
    count : int
        Operands ``x0``, ``x1``, ... of the request.

    Raises
    ------
    InvalidRequest
        For a function that is none of real numbers, and operands that it does not take, or that do not broadcast.
    Unsupported
        For a function that has no tree.
    """
    function, given = request.tail, request.tail_operands
    if function is None:
        if given:
            raise InvalidRequest(f"tail_operands has {', '.join(map(str, given))} without a tail; allowed: none")
        return ()
    if dtype not in ("float32", "float64"):
        raise InvalidRequest(
            f"a tail of {dtype} values; allowed: operands of floating dtypes, which are computed in float32 or float64"
        )
    if len(given) > _MOST:
        raise InvalidRequest(f"tail_operands has {len(given)} arrays; allowed: up to {_MOST}")
    for name, array in given.items():
        _check_operand(name, array, shape, count)
    if not callable(function):
        raise InvalidRequest(
            f"tail is a {type(function).__name__}; allowed: a Python function of {', '.join((RESULT, *given))}"
        )
    python = getattr(function, "py_func", function)  # of what Numba's decorators made
    names = tuple(given)

    def called(result: Any, *others: Any) -> Any:
        made = python(result, **dict(zip(names, others, strict=True)))
        return made * 1.0 if any(made is one for one in (result, *others)) else made  # a tree has all its inputs

    try:
        return trace("tail", called, (RESULT, *names))
    except Untraceable as error:
        raise Unsupported(
            f"tail has no expression: {error}; use numpy.where for branches, and NumPy's functions",
            rule="tensor.tail",
            lifted_by=("numpy.where",),
        ) from None


def _check_operand(name: Any, array: Any, shape: tuple[int, ...], count: int) -> None:
    taken = isinstance(name, str) and (name in _TAKEN or (name[:1] == "x" and name[1:].isdigit()))
    if not isinstance(name, str) or not name.isidentifier() or taken:
        raise InvalidRequest(
            f"the name {name!r} of tail_operands; allowed: identifiers but {', '.join(sorted(_TAKEN))} and "
            f"x0, ..., x{count - 1}"
        )
    found = check_input(name, array, backwards=True)
    dtype = as_dtype(found.dtype)
    if dtype.kind not in "biufV":
        allowed = [given for given, known in DTYPES.items() if known.kind in "biufV"]
        raise InvalidRequest(f"{name} is {dtype_name(dtype)}; allowed: {', '.join(allowed)}")
    own = tuple(found.shape)
    fits = len(own) <= len(shape) and all(
        n in (1, whole) for n, whole in zip(own, shape[len(shape) - len(own) :], strict=True)
    )
    if not fits:
        raise InvalidRequest(
            f"{name} has shape {list(own)}; allowed: a shape that broadcasts to the result's, {list(shape)}"
        )


def tail_modes(output: tuple[int, ...], axes: int) -> tuple[int, ...]:
    """Return the modes of an operand with some axes: the last of the result's."""
    return output[len(output) - axes :]


def bias_of(tree: Tree) -> str:
    """Return the operand that a tree adds to the result, if it does nothing else, as cuBLASLt's epilogue; else ""."""
    names = [str(node[1]) for node in tree if node[0] == "input"]
    last = tree[-1]
    return names[1] if len(names) == 2 and len(tree) == 3 and last[0] == "add" and set(last[1:]) == {0, 1} else ""


def before_relu(tree: Tree) -> Tree | None:
    """Return what a tree does before it takes the maximum with 0 as its last step, empty for nothing; None for others.

    That step is an epilogue of cuBLASLt where the library's kernel keeps NaN, see `cuda.relu`.  Elsewhere it may follow
    the rounding of what was before it, since both keep the order of numbers, and 0.
    """
    if tree[-1][0] != "maximum" or len(tree) < 3:
        return None
    zero, place = (("const", (0.0).hex()), len(tree) - 2)
    inner = tree[:place]
    if tree[place] != zero or set(tree[-1][1:]) != {place, place - 1}:
        return None
    return () if [node[0] for node in inner] == ["input"] else inner
