"""Group norms as graphs: instance norms of groups of channels, and the channels' own factors around them.

cuDNN has no group norm.  Dense images (N, C, ...) are also (N, groups, elements, 1), and an instance norm of these has
the statistics; factors of channels are pointwise, before or after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from .draft import Draft

__all__ = ["group_backward", "group_forward"]

#: Tensors by the names of a norm's ports, all of which a group norm has.
Ports = Mapping[str, int]


def _grouped(draft: Draft, x: int, statistic: int) -> tuple[int, int, int, int]:
    n, groups = draft.tensors[statistic].shape[:2]
    return n, groups, math.prod(draft.tensors[x].shape) // max(n * groups, 1), 1


def _filled(draft: Draft, groups: int, value: float) -> int:
    """Add an array of a number for each group."""
    return draft.pointwise("identity", draft.constant(value, 4), to=draft.result((1, groups, 1, 1)))


def _statistic(draft: Draft, tensor: int) -> int:
    """Add the tensor (N, groups, 1, 1) of a statistic."""
    found = draft.tensors[tensor]
    return draft.view(found.operand, (*found.shape[:2], 1, 1), (found.shape[1], 1, 1, 1))


def group_forward(draft: Draft, ports: Ports) -> None:
    """Add the nodes of a group norm of images; ports are those of `norm_forward`."""
    x, out = ports["x"], ports["y"]
    dtype, shape = draft.tensors[x].dtype, draft.tensors[x].shape
    grouped = _grouped(draft, x, ports["mean_out"])
    ones, zeros = (_filled(draft, grouped[1], value) for value in (1.0, 0.0))
    source = draft.regrouped(x, grouped)
    unit = draft.result(grouped, dtype)
    value = draft.tensors[ports["epsilon"]].value
    draft.node(
        "norm_forward",
        {
            "x": source, "scale": ones, "bias": zeros, "epsilon": draft.constant(float.fromhex(value), 4), "y": unit,
            **{name: _statistic(draft, ports[name]) for name in ("mean_out", "inv_variance_out")},
        },
        mode="instance",
        integers={"training": (1,)},
    )  # fmt: skip
    scaled = draft.pointwise("mul", draft.reshaped(unit, shape), ports["scale"], to=draft.result(shape))
    draft.pointwise("add", scaled, ports["bias"], to=out)


def group_backward(draft: Draft, ports: Ports) -> None:
    """Add the nodes of the gradients; ports are those of `norm_backward`."""
    x, dy, scale = (ports[name] for name in ("x", "dy", "scale"))
    dtype, shape = draft.tensors[x].dtype, draft.tensors[x].shape
    grouped = _grouped(draft, x, ports["mean"])
    mean, inverse = (_statistic(draft, ports[name]) for name in ("mean", "inv_variance"))
    ones = _filled(draft, grouped[1], 1.0)
    source = draft.regrouped(x, grouped)
    slope = draft.reshaped(draft.pointwise("mul", dy, scale, to=draft.result(shape, dtype)), grouped)
    target = draft.target(ports["dx"], grouped)
    unused = [draft.result((1, grouped[1], 1, 1)) for _ in range(2)]
    draft.node(
        "norm_backward",
        {
            "dy": slope, "x": source, "mean": mean, "inv_variance": inverse, "scale": ones, "dscale": unused[0],
            "dbias": unused[1], "dx": target,
        },
        mode="instance",
    )  # fmt: skip
    draft.deliver(target, ports["dx"])
    centred = draft.pointwise("sub", source, mean, to=draft.result(grouped))
    unit = draft.pointwise("mul", centred, inverse, to=draft.result(grouped))
    along = draft.pointwise("mul", draft.reshaped(unit, shape), dy, to=draft.result(shape))
    draft.node("reduction", {"x": along, "y": ports["dscale"]}, mode="add")
    wide = draft.pointwise("identity", dy, to=draft.result(shape))
    draft.node("reduction", {"x": wide, "y": ports["dbias"]}, mode="add")
