"""Rules of attention's operands: layouts, sizes, lengths of sequences, and what is added to scores."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from ..._support.checks import as_integer, check_choice, is_real
from ...arrays.operands import check_input
from ...dtypes import as_dtype
from ...errors import InvalidRequest
from .spec import dtype_of
from .support import HEAD_DIM

__all__ = ["LAYOUTS", "Sizes", "array_shape", "check_attention", "check_shape", "check_strides", "scale_of"]

#: Axes of arrays by layout, as places of (batch, head, token, element); packed sequences have no axis of batches.
LAYOUTS: Final = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (1, 2, 0, 3), "thd": (-1, 1, 0, 2)}
_MASKS: Final = ("none", "causal", "causal_bottom_right")
#: Bytes of which strides are multiples.
_ALIGNED: Final = 16
_MOST: Final = 2**31 - 1
_MOST_SEED: Final = 2**63 - 1


class Sizes(NamedTuple):
    """Sizes of attention.

    Attributes
    ----------
    batch, heads, groups, queries, keys, head_dim, value_dim : int
        Of packed sequences, `queries` and `keys` are those of the longest.
    """

    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int


def check_strides(name: str, array: Any) -> None:
    """Refuse strides that cuDNN does not check, and with which attention is wrong."""
    *others, last = zip(array.shape, array.strides, strict=True)
    if last[1] != as_dtype(array.dtype).itemsize or any(n > 1 and step % _ALIGNED for n, step in others):
        raise InvalidRequest(
            f"{name} has strides {tuple(array.strides)} bytes; allowed: elements of a head next to each other, and "
            f"multiples of {_ALIGNED} for other axes, as device.copy(ref) makes them"
        )


def array_shape(shape: tuple[int, ...], layout: str, tokens: int = 0) -> tuple[int, ...]:
    """Return the shape of the array of (batch, head, token, element); packed sequences have `tokens` in all."""
    if layout == "thd":
        return tokens, shape[1], shape[3]
    made = [0] * 4
    for place, axis in enumerate(LAYOUTS[layout]):
        made[axis] = shape[place]
    return tuple(made)


def check_shape(name: str, array: Any, layout: str) -> tuple[int, ...]:
    """Return (batch, head, token, element) of an array; packed sequences count as a batch of one."""
    shape = tuple(check_input(name, array).shape)
    axes = 3 if layout == "thd" else 4
    if len(shape) != axes:
        raise InvalidRequest(f"{name} has shape {shape}; allowed: {axes} axes, {layout}")
    check_strides(name, array)
    if layout == "thd" and shape[0] * array.strides[0] >= 2**31 * as_dtype(array.dtype).itemsize:
        raise InvalidRequest(f"{name} has shape {shape}; allowed: packed sequences of fewer than 2**31 elements")
    return tuple(1 if axis < 0 else shape[axis] for axis in LAYOUTS[layout])


def check_attention(request: Any) -> Sizes:
    """Check what both directions have, and return the sizes."""
    check_choice("layout", request.layout, LAYOUTS)
    check_choice("mask", request.mask, _MASKS)
    q, k, v = (check_shape(name, getattr(request, name), request.layout) for name in ("q", "k", "v"))
    paged = getattr(request, "k_pages", None) is not None or getattr(request, "v_pages", None) is not None
    packed = request.layout == "thd"
    alike = (k[2] == v[2] or paged) and (packed or paged or k[0] == q[0] == v[0])
    if not alike or v[1] != k[1] or k[3] != q[3]:
        raise InvalidRequest(
            f"q, k and v have shapes {tuple(request.q.shape)}, {tuple(request.k.shape)}, {tuple(request.v.shape)} as "
            f"{request.layout}; allowed: one batch, the heads and tokens of k in v, the elements of q in k"
        )
    if not k[1] or q[1] % k[1]:
        raise InvalidRequest(f"q has {q[1]} heads, and k has {k[1]}; allowed: a multiple of those of k")
    for name, n in (("q", q[3]), ("v", v[3])):
        if n % 8 or not 0 < n <= HEAD_DIM:
            raise InvalidRequest(f"{name} has heads of {n} elements; allowed: multiples of 8 up to {HEAD_DIM}")
    sizes = Sizes(q[0], q[1], k[1], q[2], k[2], q[3], v[3])
    if packed:
        sizes = _check_packed(request, sizes)
    else:
        for name in ("q_offsets", "kv_offsets", "max_queries", "max_keys"):
            if getattr(request, name) is not None:
                raise InvalidRequest(f"{name} is given with layout={request.layout!r}; allowed: with layout='thd'")
        if paged:
            sizes = _check_pages(request, sizes, v)
        _check_lengths(request, sizes)
    _check_mask(request, sizes)
    _check_added(request, sizes)
    _check_dropout(request, paged=paged)
    return sizes


def _check_packed(request: Any, sizes: Sizes) -> Sizes:
    for name in ("q_lengths", "kv_lengths"):
        if getattr(request, name) is not None:
            raise InvalidRequest(f"{name} is given with layout='thd'; allowed: q_offsets and kv_offsets")
    if getattr(request, "k_pages", None) is not None:
        raise InvalidRequest("k_pages is given with layout='thd'; allowed: 'bhsd', 'bshd', 'sbhd'")
    found = []
    for name in ("q_offsets", "kv_offsets"):
        array = getattr(request, name)
        if array is None:
            raise InvalidRequest(
                f"{name}=None with layout='thd'; allowed: int32, (B + 1,), the first tokens and the end"
            )
        dtype_of(name, array, ("int32",))
        shape = tuple(array.shape)
        if len(shape) != 1 or shape[0] < 2:
            raise InvalidRequest(f"{name} has shape {shape}; allowed: (B + 1,) for B sequences, 1 or more")
        found.append(shape[0] - 1)
    if found[0] != found[1]:
        raise InvalidRequest(f"q_offsets is of {found[0]} sequences, and kv_offsets of {found[1]}; allowed: as many")
    most = []
    for name, tokens in (("max_queries", sizes.queries), ("max_keys", sizes.keys)):
        if getattr(request, name) is None:
            raise InvalidRequest(f"{name}=None with layout='thd'; allowed: the tokens of the longest sequence")
        most.append(as_integer(name, getattr(request, name), 1, max(tokens, 1)))
    return sizes._replace(batch=found[0], queries=most[0], keys=most[1])


def _check_pages(request: Any, sizes: Sizes, v: tuple[int, ...]) -> Sizes:
    keys = []
    for name, tokens in (("k_pages", sizes.keys), ("v_pages", v[2])):
        table = getattr(request, name)
        if table is None:
            raise InvalidRequest(f"{name}=None, and the other table is given; allowed: k_pages and v_pages")
        dtype_of(name, table, ("int32",))
        shape = tuple(table.shape)
        if len(shape) != 2 or shape[0] != sizes.batch or not shape[1]:
            raise InvalidRequest(f"{name} has shape {shape}; allowed: ({sizes.batch}, pages of a sequence)")
        keys.append(shape[1] * tokens)
    if keys[0] != keys[1]:
        raise InvalidRequest(f"k_pages is of {keys[0]} tokens, and v_pages of {keys[1]}; allowed: as many")
    if request.kv_lengths is None:
        raise InvalidRequest("kv_lengths=None with k_pages; allowed: int32, the tokens of each sequence")
    return sizes._replace(keys=keys[0])


def _check_lengths(request: Any, sizes: Sizes) -> None:
    if (request.q_lengths is None) != (request.kv_lengths is None):
        missing = "q_lengths" if request.q_lengths is None else "kv_lengths"
        raise InvalidRequest(f"{missing}=None, and the other lengths are given; allowed: both or neither")
    for name in ("q_lengths", "kv_lengths"):
        array = getattr(request, name)
        if array is None:
            continue
        dtype_of(name, array, ("int32",))
        if tuple(array.shape) != (sizes.batch,):
            raise InvalidRequest(f"{name} has shape {tuple(array.shape)}; allowed: ({sizes.batch},)")


def _check_mask(request: Any, sizes: Sizes) -> None:
    varying = request.q_lengths is not None or request.layout == "thd"
    if request.mask == "causal_bottom_right" and sizes.queries > sizes.keys and not varying:
        raise InvalidRequest(
            f"mask='causal_bottom_right' with {sizes.queries} queries and {sizes.keys} keys: the first queries see no "
            f"key; allowed: at most as many queries as keys"
        )
    if request.window is None:
        return
    window = as_integer("window", request.window, 1, _MOST)
    if request.mask != "causal_bottom_right" and sizes.queries >= sizes.keys + window and not varying:
        raise InvalidRequest(
            f"window={window} with {sizes.queries} queries and {sizes.keys} keys: the last queries see no key; "
            f"allowed: fewer queries than keys and window together"
        )


def _check_added(request: Any, sizes: Sizes) -> None:
    if request.bias is not None:
        dtype_of("bias", request.bias, (str(as_dtype(request.q.dtype)),))
        shape = tuple(request.bias.shape)
        allowed = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
        if (
            len(shape) != 4
            or any(n not in (1, m) for n, m in zip(shape[:2], allowed, strict=False))
            or (shape[2:] != allowed[2:])
        ):
            raise InvalidRequest(
                f"bias has shape {shape}; allowed: {allowed}, with 1 for batches or heads that share it"
            )
        _check_dense(request.bias)
    for name in ("slopes", "sink"):
        array = getattr(request, name)
        if array is None:
            continue
        dtype_of(name, array, ("float32",))
        if tuple(array.shape) != (sizes.heads,):
            raise InvalidRequest(
                f"{name} has shape {tuple(array.shape)}; allowed: ({sizes.heads},), a number for a head"
            )
    if request.slopes is not None and request.mask == "none":
        raise InvalidRequest("slopes is given with mask='none'; allowed: with a causal mask")


def _check_dropout(request: Any, *, paged: bool) -> None:
    if not is_real(request.dropout) or not 0 <= request.dropout < 1:
        raise InvalidRequest(f"dropout={request.dropout!r}; allowed: numbers from 0 to less than 1")
    for name in ("seed", "offset"):
        as_integer(name, getattr(request, name), 0, _MOST_SEED)
    if request.dropout and paged:
        raise InvalidRequest(f"dropout={request.dropout} with k_pages; allowed: without pages")


def _check_dense(array: Any) -> None:
    """Refuse a bias that is not dense."""
    size = as_dtype(array.dtype).itemsize
    for n, step in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if n > 1 and step != size:
            raise InvalidRequest(f"bias has strides {tuple(array.strides)} bytes; allowed: C-contiguous arrays")
        size *= n


def scale_of(request: Any, sizes: Sizes) -> float:
    """Return the factor of scores."""
    if request.scale is None:
        return 1 / math.sqrt(sizes.head_dim)
    if not is_real(request.scale) or not math.isfinite(request.scale):
        raise InvalidRequest(f"scale={request.scale!r}; allowed: a finite number")
    return float(request.scale)
