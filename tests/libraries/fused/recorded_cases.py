"""Messages of fused operations, for the test that records every operation."""

from __future__ import annotations

from recorded_cases import SEED, Case, case, durable_moments, places

CASES: dict[str, Case] = {
    "activation": case(lambda d, _, x, y: d.fused.swiglu(x, y), "x y"),
    "gradient of an activation": case(lambda d, _, x, y: d.fused.silu_backward(x, y), "x y"),
    "dropout": case(
        lambda d, _, x, p, seed, offset: d.fused.dropout(x, p, seed=seed, offset=offset), "x", p=(0.5, 0.25), **SEED
    ),
    "norm": case(lambda d, _, x, row, eps: d.fused.rms_norm(x, row, eps=eps), "x row", eps=(1e-5, 0.5)),
    "gradient of a norm": case(lambda d, _, x, y, row: d.fused.rms_norm_backward(x, y, row), "x y row"),
    "adamw": case(
        lambda d, kept, row, other, step, lr: d.fused.adamw(row, other, *kept, step=step, lr=lr), "row other",
        durable_moments, step=(1, 9), lr=(0.5, 0.125),
    ),
    "adamw, list": case(
        lambda d, kept, row, other, step, lr: d.fused.adamw(
            [row], [other], *([one] for one in kept), step=step, lr=lr
        ),
        "row other", durable_moments, step=(1, 9), lr=(0.5, 0.125),
    ),
    "sgd": case(
        lambda d, kept, row, other, lr: d.fused.sgd_momentum(row, other, kept[0], lr=lr), "row other", durable_moments,
        lr=(0.5, 0.125),
    ),
    "sgd, list": case(
        lambda d, kept, row, other, lr: d.fused.sgd_momentum({"w": row}, {"w": other}, {"w": kept[0]}, lr=lr),
        "row other", durable_moments, lr=(0.5, 0.125),
    ),
    "rope": case(
        lambda d, places, heads, theta: d.fused.rope(heads, places, theta=theta), "heads", places, theta=(1e4, 50.0)
    ),
}  # fmt: skip
#: Kernels that are compiled for a GPU.
NOT_ON_FAKE = {
    "activation",
    "gradient of an activation",
    "dropout",
    "norm",
    "gradient of a norm",
    "adamw",
    "sgd",
    "rope",
}
