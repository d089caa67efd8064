"""Results that lie in the order in which the last step writes them, on the host and on CUDA devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import atomr_native as an
from bench.libraries.tensor.cases import CONTRACTIONS

RNG = np.random.default_rng(13)


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def lies(x: Any, subscripts: str) -> str:
    """The modes of a result from the outermost, which must leave no gaps."""
    modes = subscripts.partition("->")[2]
    order = sorted(range(len(modes)), key=lambda axis: -x.strides[axis])
    step = x.dtype.itemsize
    for axis in reversed(order):
        assert x.strides[axis] == step
        step *= x.shape[axis]
    return "".join(modes[axis] for axis in order)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "order"),
    [
        ("ij,jk->ki", ((9, 4), (4, 5)), "ik"),  # the larger operand's, then the other's
        ("ij,jk->ik", ((3, 4), (4, 5)), "ki"),
        ("efbad,cf->abcde", ((2, 3, 4, 5, 6), (7, 3)), "ebadc"),
        ("bij,jkb->kbi", ((2, 5, 4), (4, 3, 2)), "bik"),  # the batch's first
        ("ijk->kij", ((3, 4, 5),), "ijk"),  # a permutation is none
        ("iji->ji", ((3, 4, 3),), "ij"),
        ("ij,jk,kl->li", ((9, 2), (2, 8), (8, 3)), "il"),  # of the last step
        ("ij,kl->ljik", ((5, 4), (2, 3)), "ijkl"),
    ],
)
def test_the_order_of_results(
    device: an.Device, subscripts: str, shapes: tuple[tuple[int, ...], ...], order: str
) -> None:
    arrays = [values(*shape) for shape in shapes]
    refs = [device.put(x) for x in arrays]
    want = np.einsum(subscripts, *arrays)
    found = device.tensor.einsum(subscripts, *refs, order="any")
    assert lies(found, subscripts) == order
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-12, atol=1e-12)
    plain = device.tensor.einsum(subscripts, *refs)
    assert lies(plain, subscripts) == subscripts.partition("->")[2]
    again = an.EinsumRequest(subscripts=subscripts, operands=refs, out=found.fill(0))
    np.testing.assert_allclose(device.tensor.tell(again).numpy(), want, rtol=1e-12, atol=1e-12)


def test_operands_count_as_they_lie_and_so_does_c(device: an.Device) -> None:
    a, b, c = values(4, 3, 5), values(5, 6), values(3, 6, 4)
    turned = device.put(a).transpose(1, 0, 2)
    found = device.tensor.einsum("jil,lk->ijk", turned, device.put(b), order="any")
    assert lies(found, "->ijk") == "ijk"
    np.testing.assert_allclose(found.numpy(), np.einsum("ijl,lk->ijk", a, b), rtol=1e-12)
    added = device.put(c).transpose(2, 1, 0)  # as i, k, j
    made = device.tensor.contract("ijl,lk->ikj", device.put(a), device.put(b), c=added, beta=2, order="any")
    assert lies(made, "->ikj") == "jki"
    want = np.einsum("ijl,lk->ikj", a, b) + 2 * c.transpose(2, 1, 0)
    np.testing.assert_allclose(made.numpy(), want, rtol=1e-12, atol=1e-12)


def test_results_of_no_elements_and_of_one(device: an.Device) -> None:
    for shapes in (((3, 0), (0, 4)), ((0, 2), (2, 4)), ((1, 2), (2, 1))):
        a, b = (values(*shape) for shape in shapes)
        found = device.tensor.einsum("ij,jk->ki", device.put(a), device.put(b), order="any")
        np.testing.assert_allclose(found.numpy(), np.einsum("ij,jk->ki", a, b), rtol=1e-12)
    assert device.tensor.einsum("i,i->", device.full((3,), 2.0), device.full((3,), 2.0), order="any").numpy() == 12


def test_contractions_of_tccg_are_not_followed_by_a_permutation(cuda_system: an.System) -> None:
    device = cuda_system.device("cuda:0")
    after = {"C": 0, "any": 0}
    for text in CONTRACTIONS[::9]:
        result, a, b = text.split("-")
        operands = [device.zeros((4,) * len(modes)) for modes in (a, b)]
        for order in after:
            request = an.EinsumRequest(subscripts=f"{a},{b}->{result}", operands=operands, order=order, route="blas_lt")
            after[order] += "a kernel after it" in " ".join(device.tensor.plan(request).notes)
    assert after["C"] > after["any"] == 0


def test_refusals() -> None:
    x = np.empty((3, 3))
    with pytest.raises(an.InvalidRequest, match="order='K'; allowed: 'C', 'any'"):
        an.EinsumRequest(subscripts="ij,jk->ik", operands=(x, x), order="K")
    with pytest.raises(an.InvalidRequest, match="order='any' with out; allowed: 'C'"):
        an.EinsumRequest(subscripts="ij,jk->ik", operands=(x, x), out=np.empty((3, 3)), order="any")
