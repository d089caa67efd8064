"""Steps that cuBLASLt computes: products, with copies before them, and an epilogue or a kernel after them."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ...._lib import cublaslt
from ...._lib.cublaslt import Matmul
from ....builders.cuda.codegen import value_type
from ....builders.cuda.context import library_file
from ....builders.cuda.product import ProductDescription
from ....builders.cuda.sequence import Source
from ....errors import LibraryError, Unsupported
from ....plans.spec import signed_word
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..path import Contraction
from ..types import EIGHT
from .arrays import Array
from .contract import factors_of
from .elements import loaded
from .finish import NOTHING, Finish
from .product import Product, product_outputs
from .relu import keeping_nan
from .task import Task

if TYPE_CHECKING:
    from .einsum import Einsum

__all__ = ["multiply"]

_log = logging.getLogger("atomr_native.worker")

_ONE: Final = struct.unpack("<Q", struct.pack("<d", 1.0))[0]
_EPILOGUES: Final = {"bias": "a bias", "relu": "a ReLU", "relu_bias": "a bias and a ReLU"}
#: Dtypes of results for which it has epilogues.
_WITH_BIAS: Final = ("float32", "float16", "bfloat16")


def multiply(
    builder: Einsum, step: Contraction, product: Product, operands: Sequence[tuple[Array, bool]], into: Array | None,
    finish: Finish, dtype: str,
) -> Array | None:  # fmt: skip
    """Add a product of a dtype, or of float8, and return its result; None if cuBLASLt does not take it.

    A tail that adds a bias, takes the maximum with 0, or does both, is an epilogue, where the library computes it so; a
    kernel applies any other.  Else such a maximum is taken of the stored result.
    """
    lies = into is not None and not product.copied[2]
    lies = lies and (finish.c is None or product.lie_alike(into, finish.c, builder.extents))
    begun = len(builder.scratch.steps)
    reason = ""

    def attempted(way: _Way) -> tuple[Array | None, str, int]:
        direct = lies and (way.epilogue != "default" or way.before.is_native or way.before.added)
        made = _attempt(builder, step, product, operands, into if direct else None, into, finish, way, dtype)
        if made[0] is not None and way.rectified:
            _rectify(builder, step, made[0])
        return made

    ways = list(_ways(builder, into if lies else None, finish))
    for way, following in zip(ways, [*ways[1:], None], strict=True):
        result, reason, least = attempted(way)
        if result is not None and least > 1 and following is not None:
            first, said = len(builder.scratch.steps), builder.notes.pop()
            builder.scratch.align(begun, least, apart=False)
            result, reason, _ = attempted(following)
            if result is not None:
                builder.scratch.align(first, least, apart=True)
                other = builder.notes[-1].partition(": ")[2]
                builder.notes[-1] = f"{said} for operands at multiples of {least} bytes, else {other}"
        if result is not None:
            return result
        del builder.scratch.steps[begun:]
    builder.notes.append(f"cuBLASLt does not take {builder.text(step)}: {reason}")
    return None


@dataclass(frozen=True, slots=True)
class _Way:
    """How a product gets its tail.

    Attributes
    ----------
    before : Finish
        What the product itself, or a kernel after it, has of it.
    epilogue : str
        ``"default"``, ``"bias"``, ``"relu"`` or ``"relu_bias"``.
    rectified : bool
        Whether a ReLU of the stored result follows.
    """

    before: Finish
    epilogue: str = "default"
    rectified: bool = False

    @property
    def has_bias(self) -> bool:
        """Whether the epilogue adds one."""
        return self.epilogue.endswith("bias")

    @property
    def has_relu(self) -> bool:
        """Whether the epilogue is, or ends with, a ReLU."""
        return self.epilogue.startswith("relu")


def _ways(builder: Einsum, direct: Array | None, finish: Finish) -> Iterator[_Way]:
    """Yield the ways of a product and its tail, the fastest first; `direct` is where the library can write."""
    rounded = finish.rounded
    before = finish if rounded is None else rounded
    if direct is not None and (not before.bias or direct.dtype in _WITH_BIAS):
        added = "bias" if before.bias else ""
        # What a plan finds out by a run may differ, where there is no memory for that.
        if rounded is not None and direct.dtype in _WITH_BIAS and not builder.is_deterministic:
            yield _Way(before, f"relu_{added}".rstrip("_"))
        yield _Way(before, added or "default", rounded is not None)
    yield _Way(finish)


def _rectify(builder: Einsum, step: Contraction, array: Array) -> None:
    """Add a kernel that takes the maximum with 0 in place; NaN stays NaN."""
    dtype = builder.summed
    value = (loaded(0, array.dtype, dtype), f"const {value_type(dtype)} v = v0 >= 0 || v0 != v0 ? v0 : 0;")
    builder.run(Task((), (), array, step.output, (), dtype, value, updated=True))
    builder.notes[-1] += ", and a ReLU in place"


def _prepared(builder: Einsum, description: ProductDescription) -> Matmul:
    """Return the product, with the algorithm that was chosen if it has it."""
    choice = builder.choice
    if choice is not None and choice.route == "blas_lt" and choice.algo:
        try:
            chosen = replace(description, has_algo=1, algo=tuple(map(signed_word, choice.algo)))
            return Matmul(builder.context.backend, chosen)
        except (Unsupported, LibraryError) as error:  # of a product with an epilogue, for example
            _log.info("a tuned algorithm does not fit this product, the heuristic's is taken: %s", error)
    return Matmul(builder.context.backend, description)


def _attempt(
    builder: Einsum, step: Contraction, product: Product, operands: Sequence[tuple[Array, bool]],
    direct: Array | None, into: Array | None, whole: Finish, way: _Way, dtype: str,
) -> tuple[Array | None, str, int]:  # fmt: skip
    """Add a product that writes to `direct`, else to the workspace.

    Returns its result, or None and the reason; and the alignment of operands for which its epilogue is right.
    """
    d, finish = direct, way.before
    if d is None:
        d = builder.buffer(builder.dtype if into is None else product_outputs(dtype)[-1], product.layout(2))
    held, copies = [], []
    for which, (array, conj) in enumerate(operands):
        if product.copied[which]:
            copies.append("AB"[which])
            made = builder.buffer(array.dtype if dtype == EIGHT else dtype, product.layout(which))
            builder.map(array, made, product.layout(which), builder.summed, NOTHING, conj=conj)
            array, conj = made, False
        held.append((array, conj))
    is_complex = dtype.startswith("complex")
    c = (into if finish.updated or finish.added else finish.c) if direct is not None else None
    described = product.describe(
        held[0][0], held[1][0], d, c, builder.extents, conj=(held[0][1] and is_complex, held[1][1] and is_complex),
        dtype=dtype, compute=builder.how.compute,
        limit=builder.library_limit((held[0][0], held[1][0], d), PREFERRED_WORKSPACE),
        epilogue=way.epilogue, bias=dict(finish.others)[finish.bias] if way.has_bias else None,
    )  # fmt: skip
    if described is None:
        return None, "cuBLASLt counts in 32 bits", 1
    try:
        cublaslt.load(library_file("cublasLt"))
        native_run = _prepared(builder, described[0])
    except (Unsupported, LibraryError) as error:
        return None, str(error), 1
    sources, offsets = zip(*(array.place for array in described[1]), strict=True)
    least = keeping_nan(builder.context, native_run, *described) if way.has_relu else 1
    if not least or any(offset % least for offset in offsets):
        return None, "its ReLU makes 0 of NaN", 1
    count = described[0].n_scalars
    adds = _ONE if direct is not None and finish.added else 0
    scalars: tuple[Source, ...] = tuple(("constant", word) for word in (_ONE, adds, 0, 0)[:count])
    if direct is not None and finish.scalars:
        scalars = tuple(("scalar", j) for j in range(count))
    factors = factors_of(finish.scalars, is_complex=is_complex)[:1] if direct is not None else ()

    def add() -> str:
        builder.scratch.add(native_run, sources, scalars, native_run.workspace, offsets)
        return ""

    left = whole if way.has_relu else finish
    builder.guarded(factors, add, lambda: builder.without_product(step.output, d, left))
    note = f"{builder.text(step)}: cuBLASLt{' in float8' if dtype == EIGHT else ''}"
    if way.epilogue != "default":
        note += f" with {_EPILOGUES[way.epilogue]}"
    if copies:
        note += f", after copies of {' and '.join(copies)}"
    if direct is None and into is not None:
        note += ", and a kernel after it"
        builder.map(d, into, step.output, builder.summed, finish)
    builder.notes.append(note)
    return d if into is None else into, "", least
