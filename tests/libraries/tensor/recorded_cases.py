"""Messages of tensors, for the test that records every operation."""

from __future__ import annotations

from typing import Any

from recorded_cases import Case, case

import atomr_native as an

ARRAYS = {"six": ((6,), "float64")}


def _contracted(device: an.Device, _: Any, first: an.GpuRef, second: an.GpuRef) -> an.GpuRef:
    a, b = (an.BlockTensor(values, [(1, 2), (2, 1)], [(0, 0), (1, 0)]) for values in (first, second))
    values: an.GpuRef = device.tensor.block_contract("ij,kj->ik", a, b).values
    return values


CASES: dict[str, Case] = {
    "contraction": case(
        lambda d, _, x, y, c, beta: d.tensor.contract("ij,jk->ik", x, y, c=c, beta=beta), "x y x", beta=(2.0, 0.5)
    ),
    "contraction over": case(lambda d, _, wide: d.tensor.einsum("ij,jk->ik", wide, wide, out=wide), "wide"),
    "tensor reduction": case(lambda d, _, x: d.tensor.reduce("norm2", "ij->i", x), "x"),
    "tensor reduction with a tail": case(
        lambda d, _, x: d.tensor.reduce("sum", "ij->ij", x, tail=lambda r, y: r * y, tail_operands={"y": x}), "x"
    ),
    "tensor reduction over": case(lambda d, _, wide: d.tensor.reduce("sum", "ij->i", wide, out=wide[0]), "wide"),
    "tensor permutation": case(lambda d, _, x: d.tensor.permute("ij->ji", x, padding=1), "x"),
    "tensor permutation over": case(lambda d, _, wide: d.tensor.permute("ij->ji", wide, out=wide), "wide"),
    "tensors of blocks": case(_contracted, "six six"),
}  # fmt: skip
#: cuTENSOR's call for blocks is not captured.
STEPWISE = {"tensors of blocks"}
