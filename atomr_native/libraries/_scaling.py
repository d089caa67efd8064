"""Scales of A and B in a matmul: what their shapes mean.

A scale is a float32 array on the device.  Its shape says its kind, for op(A) of (M, K) (B's likewise, with its axes in
the same places as op(B)'s):

========== ========================== ==========================
kind       shape of ``a_scale``       shape of ``b_scale``
========== ========================== ==========================
tensor     () or (1,)                 () or (1,)
outer      (M, 1)                     (1, N)
vec128     (M, ceil(K / 128))         (ceil(K / 128), N)
blk128     (ceil(M / 128),            (ceil(K / 128),
           ceil(K / 128))             ceil(N / 128))
========== ========================== ==========================
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import InvalidRequest

__all__ = ["BLOCK", "COMBINATIONS", "scale_kinds", "scale_shapes"]

#: Elements that share a scale.
BLOCK: Final = 128
#: Kinds that go together, in the order of preference where a shape could be several (which then mean the same).
COMBINATIONS: Final = (
    ("tensor", "tensor"),
    ("tensor", "none"),
    ("none", "tensor"),
    ("outer", "outer"),
    ("outer", "none"),
    ("none", "outer"),
    ("vec128", "vec128"),
    ("vec128", "blk128"),
    ("blk128", "vec128"),
)


def scale_shapes(which: str, outer: int, k: int) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return the shapes of each kind for operand ``"a"`` or ``"b"``; `outer` is its extent that is not K."""
    blocks, outer_blocks = -(-k // BLOCK), -(-outer // BLOCK)
    shapes = {"outer": (outer, 1), "vec128": (outer, blocks), "blk128": (outer_blocks, blocks)}
    if which == "b":
        shapes = {kind: shape[::-1] for kind, shape in shapes.items()}
    return {"tensor": ((), (1,)), **{kind: (shape,) for kind, shape in shapes.items()}}


def scale_kinds(
    a_scale: Any, b_scale: Any, m: int, n: int, k: int, batch: tuple[int, ...], blocks: bool
) -> tuple[str, str]:
    """Return the kinds of both scales, ``"none"`` where there is none; `blocks`: whether there may be those of blocks.

    Raises
    ------
    InvalidRequest
        For shapes that are no scale, kinds that do not go together, and others than ``tensor`` with batches.
    """
    found: dict[str, list[str]] = {}
    for which, scale, outer in (("a", a_scale, m), ("b", b_scale, n)):
        if scale is None:
            found[which] = ["none"]
            continue
        shapes = scale_shapes(which, outer, k)
        if not blocks:
            shapes = {kind: shapes[kind] for kind in ("tensor", "outer")}
        found[which] = [kind for kind, allowed in shapes.items() if tuple(scale.shape) in allowed]
        if not found[which]:
            listed = ", ".join(f"{kind} {' or '.join(map(str, allowed))}" for kind, allowed in shapes.items())
            raise InvalidRequest(f"{which}_scale has shape {tuple(scale.shape)}; allowed: {listed}")
    for kinds in COMBINATIONS:
        if kinds[0] in found["a"] and kinds[1] in found["b"]:
            if batch and {"outer", "vec128", "blk128"} & set(kinds):
                raise InvalidRequest(
                    f"scales of kind {kinds[0]} and {kinds[1]} with a batch {batch}; allowed: tensor, or one message "
                    f"for each matrix"
                )
            return kinds
    if found == {"a": ["none"], "b": ["none"]}:
        return "none", "none"
    listed = ", ".join(f"{a} with {b}" for a, b in COMBINATIONS)
    raise InvalidRequest(
        f"a_scale is {' or '.join(found['a'])} and b_scale is {' or '.join(found['b'])}; allowed: {listed}"
    )
