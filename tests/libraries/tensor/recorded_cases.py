"""Messages of tensors, for the test that records every operation."""

from __future__ import annotations

from recorded_cases import Case, case

CASES: dict[str, Case] = {
    "contraction": case(
        lambda d, _, x, y, c, beta: d.tensor.contract("ij,jk->ik", x, y, c=c, beta=beta), "x y x", beta=(2.0, 0.5)
    ),
    "contraction over": case(lambda d, _, wide: d.tensor.einsum("ij,jk->ik", wide, wide, out=wide), "wide"),
    "tensor reduction": case(lambda d, _, x: d.tensor.reduce("norm2", "ij->i", x), "x"),
    "tensor reduction over": case(lambda d, _, wide: d.tensor.reduce("sum", "ij->i", wide, out=wide[0]), "wide"),
    "tensor permutation": case(lambda d, _, x: d.tensor.permute("ij->ji", x, padding=1), "x"),
    "tensor permutation over": case(lambda d, _, wide: d.tensor.permute("ij->ji", wide, out=wide), "wide"),
}  # fmt: skip
