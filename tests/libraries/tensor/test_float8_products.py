"""Products of float8 tensors by tensor cores of float8, against NumPy in float64, on the host and on CUDA devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native.dtypes import as_dtype

RNG = np.random.default_rng(12)
WIDE, RANGE = "float8_e4m3fn", "float8_e5m2"


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return RNG.standard_normal(shape).astype(as_dtype(dtype))


def verify(device: an.Device, subscripts: str, a: Any, b: Any, **options: Any) -> str:
    """Compare with float64: products are exact, and tensor cores add them with 14 bits or more; return the notes."""
    alpha = options.get("alpha", 1)
    refs = [device.put(x) for x in (a, b)]
    request = an.EinsumRequest(subscripts=subscripts, operands=refs, compute="float8", **options)
    found = device.tensor.tell(request).numpy().astype(float)
    want = alpha * np.einsum(subscripts, a.astype(float), b.astype(float))
    size = np.abs(alpha) * np.einsum(subscripts, np.abs(a.astype(float)), np.abs(b.astype(float)))
    unit = 2.0**-8 if "out_dtype" in options else 0
    assert np.all(np.abs(found - want) <= 2.0**-11 * size + unit * np.abs(want))
    return " ".join(device.tensor.plan(request).notes)


@pytest.mark.parametrize(("first", "second"), [(WIDE, WIDE), (WIDE, RANGE), (RANGE, WIDE)])
@pytest.mark.parametrize(
    ("subscripts", "shapes", "copies"),
    [("ij,kj->ik", ((32, 48), (16, 48)), ""), ("ij,jk->ik", ((32, 48), (48, 16)), "B"),
     ("bji,bjk->bik", ((3, 32, 48), (3, 32, 16)), "A and B"), ("ijk,ljk->il", ((32, 3, 16), (16, 3, 16)), "")],
)  # fmt: skip
def test_products(
    device: an.Device, first: str, second: str, subscripts: str, shapes: tuple[tuple[int, ...], ...], copies: str
) -> None:
    notes = verify(device, subscripts, random(shapes[0], first), random(shapes[1], second))
    if device.name.startswith("cuda"):
        assert "cuBLASLt in float8" in notes
        assert ("after copies of " + copies in notes) if copies else "copies" not in notes


def test_factors_tails_and_results_of_other_types(device: an.Device) -> None:
    a, b = random((32, 48), WIDE), random((16, 48), WIDE)
    verify(device, "ij,kj->ik", a, b, alpha=0.25, out_dtype="bfloat16")
    verify(device, "ij,kj->ki", a, b, alpha=3)
    refs = [device.put(x) for x in (a, b)]
    scale, c = device.put(np.array([0.5], "float32")), device.put(np.ones((32, 16), "float32"))
    given = {"subscripts": "ij,kj->ik", "operands": refs, "compute": "float8"}
    product = a.astype(float) @ b.astype(float).T
    found = device.tensor.tell(an.EinsumRequest(**given, alpha=scale, tail=lambda r: np.maximum(r, 0)))
    assert np.allclose(found.numpy(), np.maximum(0.5 * product, 0), atol=0.1)
    found = device.tensor.tell(an.EinsumRequest(**given, c=c, beta=-2.0))
    assert np.allclose(found.numpy(), product - 2, atol=0.1)


def test_what_the_tensor_cores_do_not_take_is_computed_in_float32(device: an.Device) -> None:
    """Sums of other lengths than multiples of 16."""
    notes = verify(device, "ij,kj->ik", random((32, 50), WIDE), random((16, 50), WIDE))
    if device.name.startswith("cuda"):
        assert "cuBLASLt does not take ab,cb->ac" in notes
        assert "in float8" not in notes


@pytest.mark.parametrize(
    ("dtypes", "options", "text"),
    [
        ((WIDE, "float32"), {}, "compute='float8' with operands of float32; allowed: float32"),
        ((RANGE, RANGE), {}, "compute='float8' with operands of float32; allowed: float32, tf32"),
        ((WIDE,), {"subscripts": "ij->i"}, "compute='float8' with operands of float32; allowed: float32, tf32"),
        ((WIDE, WIDE), {"route": "kernel"}, "route='kernel' with compute='float8'; allowed: 'auto', 'blas_lt'"),
    ],
)
def test_refusals(dtypes: tuple[str, ...], options: dict[str, Any], text: str) -> None:
    operands = [np.ones((16, 16), as_dtype(dtype)) for dtype in dtypes]
    with pytest.raises(an.InvalidRequest, match=text):
        an.EinsumRequest(**{"subscripts": "ij,kj->ik", "operands": operands, "compute": "float8", **options})
