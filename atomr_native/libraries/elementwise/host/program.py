"""Elementwise programs on the host device: NumPy's functions over blocks that stay in the cache.

A program's nodes become steps over slots.  A slot holds a block-sized buffer, a view of an operand, or a number;
buffers are shared by values that do not live at the same time, and a value that is only stored is computed where it
is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....builders.blocks import blocks, fold_axes
from ....builders.context import Built, HostContext
from ....dtypes import DTYPES, as_dtype
from ....errors import InvalidRequest, Unsupported
from ....plans.spec import PlanSpec
from ..attributes import ProgramAttributes
from ..expressions import LEAVES, Node, argument_types, loop_dtypes

__all__ = ["build_elementwise"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]
Step = Callable[..., Any]

#: Elements of a block: a dozen float32 buffers stay in the second-level cache.
_BLOCK = 1 << 15
_WEAK = {"int": np.dtype(np.int64), "float": np.dtype(np.float64)}


def _where(condition: Any, x: Any, y: Any, out: Array) -> None:
    np.copyto(out, y, casting="unsafe")
    np.copyto(out, x, where=condition if condition.dtype == bool else condition != 0, casting="unsafe")


def _cast(x: Any, out: Array) -> None:
    np.copyto(out, x, casting="unsafe")


def _sigmoid(x: Any, out: Array) -> None:
    np.negative(x, out=out, dtype=out.dtype, casting="unsafe")
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


def _power(x: Any, y: Any, out: Array) -> None:
    """Compute integer powers; a negative power is truncated to an integer, as on a GPU, where NumPy refuses it."""
    negative = y < 0
    if not np.any(negative):
        np.power(x, y, out=out, dtype=out.dtype, casting="unsafe")
        return
    x, y = np.asarray(x, out.dtype), np.asarray(y, out.dtype)
    ones = np.where(x == 1, 1, np.where(x == -1, np.where(y & 1, -1, 1), 0))
    np.copyto(out, np.where(negative, ones, np.power(x, np.where(negative, 0, y))), casting="unsafe")


def _real(x: Any, out: Array) -> None:
    np.copyto(out, np.real(x), casting="unsafe")


def _imag(x: Any, out: Array) -> None:
    np.copyto(out, np.imag(x), casting="unsafe")


def _relu(x: Any, out: Array) -> None:
    np.maximum(x, 0, out=out)


def _erf() -> Step:
    try:
        from scipy.special import erf
    except ImportError:
        raise Unsupported("erf on the host device needs SciPy, which is not installed; pip install scipy") from None

    def step(x: Any, out: Array) -> None:
        erf(x, out=out, dtype=out.dtype, casting="unsafe")

    return step


def _step(operation: str, loop: tuple[str, ...]) -> Step:
    custom: dict[str, Step] = {
        "where": _where, "sigmoid": _sigmoid, "relu": _relu, "real": _real, "imag": _imag,
    }  # fmt: skip
    if operation in custom:
        return custom[operation]
    if operation == "erf":
        return _erf()
    function: np.ufunc = getattr(np, {"abs": "absolute"}.get(operation, operation))
    if operation == "power" and DTYPES[loop[0]].kind in "iu":
        return _power
    if {"int64", "uint64"} <= set(loop):  # NumPy compares the two exactly, in a loop that no signature of dtypes names

        def compare(*arguments: Any, out: Array) -> None:
            function(*arguments, out=out)

        return compare
    signature = tuple(DTYPES[name] for name in loop)

    def step(*arguments: Any, out: Array) -> None:
        function(*arguments, out=out, signature=signature, casting="unsafe")

    return step


def _number(operation: str, kind: str, arguments: list[Any]) -> int | float:
    """Compute a node of numbers alone: float64 and int64 arithmetic, once a run."""
    if operation == "where":
        value = arguments[1] if arguments[0] else arguments[2]
    elif operation == "sigmoid":
        value = 1.0 / (1.0 + np.exp(-arguments[0]))
    elif operation == "relu":
        value = np.maximum(arguments[0], 0)
    elif operation == "erf":
        value = math.erf(arguments[0])
    elif operation == "power" and kind == "int":
        out = np.empty((), np.int64)
        _power(np.int64(arguments[0]), np.int64(arguments[1]), out)
        value = out
    else:
        value = getattr(np, {"abs": "absolute"}.get(operation, operation))(*arguments)
    return float(value) if kind == "float" else int(value)


@dataclass(slots=True)
class _Code:
    """A compiled program over slots: one for each node, then one for each operand's view, then numbers as arrays."""

    #: dtype of each buffer
    buffers: list[np.dtype[Any]] = field(default_factory=list)
    #: (node, buffer)
    buffered: list[tuple[int, int]] = field(default_factory=list)
    #: (node, operand): loads without conversion, and values computed where they are stored
    viewed: list[tuple[int, int]] = field(default_factory=list)
    #: (node of a number, dtype that an array operation takes it in): slot
    numbers: dict[tuple[int, np.dtype[Any]], int] = field(default_factory=dict)
    #: (function, argument slots, result slot)
    steps: list[tuple[Step, tuple[int, ...], int]] = field(default_factory=list)
    #: (slot, operand) of what is copied at the end of a block
    stores: list[tuple[int, int]] = field(default_factory=list)


def _in_place(
    nodes: Sequence[Node], stores: dict[str, int], last: list[int], operands: dict[str, tuple[int, np.dtype[Any]]]
) -> dict[int, int]:
    """Return the nodes that can be computed in the operand that stores them: nobody reads its old value later."""
    loads = {node[2]: index for index, node in enumerate(nodes) if node[0] == "operand"}
    result: dict[int, int] = {}
    for name, index in stores.items():
        position, dtype = operands[name]
        operation, kind = nodes[index][:2]
        if operation in LEAVES or kind in _WEAK or DTYPES[kind] != dtype or index in result:
            continue
        read = last[loads[name]] if name in loads else -1
        if read < index or (read == index and operation != "where"):
            result[index] = position
    return result


def _compile(nodes: Sequence[Node], stores: dict[str, int], operands: dict[str, tuple[int, np.dtype[Any]]]) -> _Code:
    """Give each node its slot, let values share buffers, and list the steps."""
    arguments = [() if node[0] in LEAVES else tuple(node[2:]) for node in nodes]
    last = list(range(len(nodes)))
    for index, used in enumerate(arguments):
        for argument in used:
            last[argument] = index
    for index in stores.values():
        last[index] = len(nodes)
    in_place = _in_place(nodes, stores, last, operands)
    code = _Code()
    spare: dict[np.dtype[Any], list[int]] = {}
    held: dict[int, int] = {}

    def place(index: int, dtype: np.dtype[Any]) -> None:
        if index in in_place:
            code.viewed.append((index, in_place[index]))
            return
        if not spare.get(dtype):
            code.buffers.append(dtype)
            spare[dtype] = [len(code.buffers) - 1]
        held[index] = spare[dtype].pop()
        code.buffered.append((index, held[index]))

    def release(index: int) -> None:
        for argument in set(arguments[index]):
            if last[argument] == index and argument in held:
                buffer = held.pop(argument)
                spare.setdefault(code.buffers[buffer], []).append(buffer)

    def slot(argument: int, dtype: np.dtype[Any]) -> int:
        if nodes[argument][1] not in _WEAK:
            return argument
        return code.numbers.setdefault((argument, dtype), len(nodes) + len(operands) + len(code.numbers))

    for index, node in enumerate(nodes):
        operation, kind = node[0], node[1]
        if kind in _WEAK:
            continue
        if operation == "operand":
            position, dtype = operands[node[2]]
            # Two operands may exchange values: what is stored elsewhere must not be a view of what is written.
            if dtype == DTYPES[kind] and not (node[2] in stores and last[index] == len(nodes)):
                code.viewed.append((index, position))
            else:
                place(index, DTYPES[kind])
                code.steps.append((_cast, (len(nodes) + position,), index))
            continue
        types = argument_types(nodes, node) if arguments[index] else []
        if operation == "cast":
            step: Step = _cast
            slots: tuple[int, ...] = (slot(node[2], _weak_dtype(nodes[node[2]])),)
        else:
            loop = loop_dtypes(operation, types)
            step = _step(operation, loop)
            slots = tuple(slot(a, DTYPES[name]) for a, name in zip(arguments[index], loop, strict=False))
            exponent = nodes[node[3]] if operation == "power" else [""]
            if exponent[0] == "const" and exponent[2] in ("2", (2.0).hex()) and types[0] == loop[0] == kind:
                step, slots = _square, slots[:1]
        if operation == "where":  # writes its result before it has read all arguments
            place(index, DTYPES[kind])
            release(index)
        else:
            release(index)
            place(index, DTYPES[kind])
        code.steps.append((step, slots, index))
    for name, index in stores.items():
        position = operands[name][0]
        if in_place.get(index) != position:
            code.stores.append((slot(index, _weak_dtype(nodes[index])), position))
    return code


def _weak_dtype(node: Node) -> np.dtype[Any]:
    """Return the dtype of a number before it is cast; another node's own."""
    if node[0] == "const" and node[1] == "int" and int(node[2]) >= 2**63:
        return np.dtype(np.uint64)
    return _WEAK.get(node[1]) or DTYPES[node[1]]


def _square(x: Any, out: Array) -> None:
    np.square(x, out=out)


def _as_array(value: int | float, dtype: np.dtype[Any]) -> Array:
    try:
        return np.asarray(value, dtype)
    except OverflowError:
        raise InvalidRequest(f"the number {value} does not fit {dtype.name}, the dtype of the array it meets") from None


def build_elementwise(spec: PlanSpec[ProgramAttributes], _context: HostContext) -> Built:
    """Return the run of ``elementwise.program``: operands and numbers in the order of the specification.

    A run allocates the program's buffers, at most 32768 elements each, whatever the size of the operands.
    """
    nodes: Sequence[Node] = spec.attributes.nodes
    shape = spec.attributes.shape
    operands = {o.name: (i, as_dtype(o.dtype)) for i, o in enumerate(spec.operands)}
    code = _compile(nodes, dict(spec.attributes.stores), operands)
    strides = []
    for operand in spec.operands:
        missing = len(shape) - len(operand.shape)
        steps = (0 if extent == 1 else step for extent, step in zip(operand.shape, operand.strides, strict=True))
        strides.append((*([0] * missing), *steps))
    folded, _ = fold_axes(shape, tuple(strides))
    size = min(_BLOCK, math.prod(shape))
    weak = [(index, node) for index, node in enumerate(nodes) if node[1] in _WEAK]
    names = {name: i for i, name in enumerate(spec.attributes.scalar_names)}
    first = len(nodes)
    count = first + len(operands) + len(code.numbers)

    def numbers(scalars: tuple[Any, ...]) -> dict[int, Any]:
        values: dict[int, Any] = {}
        for index, (operation, kind, *arguments) in weak:
            if operation == "scalar":
                values[index] = scalars[names[arguments[0]]]
            elif operation == "const":
                values[index] = float.fromhex(arguments[0]) if kind == "float" else int(arguments[0])
            else:
                values[index] = _number(operation, kind, [values[a] for a in arguments])
        return values

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        slots: list[Any] = [None] * count
        if code.numbers:
            values = numbers(scalars)
            for (node, dtype), slot in code.numbers.items():
                slots[slot] = _as_array(values[node], dtype)
        views = [x if x.shape == shape else np.broadcast_to(x, shape) for x in arrays]
        if folded != shape:
            views = [x.reshape(folded) for x in views]
        memory = [np.empty(size, dtype) for dtype in code.buffers]
        extents: tuple[int, ...] | None = None
        for index in blocks(folded, _BLOCK):
            block = [x[index] for x in views] if index else views
            if block[0].shape != extents:
                extents = block[0].shape
                length = math.prod(extents)
                for node, buffer in code.buffered:
                    slots[node] = memory[buffer][:length].reshape(extents)
            slots[first : first + len(block)] = block
            for node, position in code.viewed:
                slots[node] = block[position]
            for step, arguments, result in code.steps:
                step(*[slots[a] for a in arguments], out=slots[result])
            for source, position in code.stores:
                np.copyto(block[position], slots[source], casting="unsafe")

    return Built(run)
