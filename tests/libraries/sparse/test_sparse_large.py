"""Matrices with more than 2**31 stored elements: no count and no place of an element is cut to 32 bits."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import atomr_native as an
from atomr_native.libraries.sparse.cuda.products import sparse_call

COLUMNS = 1 << 16


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def full(device: an.Device, rows: int, columns: int) -> an.SparseMatrix:
    """Return a matrix of ones with all of its elements stored; the last row has twos."""
    indices = device.empty((rows * columns,), "int64")
    across = device.put(np.arange(columns, dtype=np.int64))
    device.elementwise.run(
        "out = c + r", c=across, r=device.zeros((rows, 1), "int64"), out=indices.reshape(rows, columns)
    )
    values = device.empty((rows * columns,), "int8")
    values.fill(1)
    values[(rows - 1) * columns :].fill(2)
    offsets = device.put(np.arange(rows + 1, dtype=np.int64) * columns)
    return an.SparseMatrix("csr", (rows, columns), values, indices, offsets)


def check(device: an.Device, rows: int, columns: int) -> None:
    a = full(device, rows, columns)
    assert a.nnz == rows * columns
    x = device.ones((columns,), "int8")
    wanted = np.full(rows, columns)
    wanted[-1] *= 2
    for deterministic in (False, True):
        y = device.sparse.spmv(a, x, out=device.zeros((rows,), "int32"), deterministic=deterministic)
        np.testing.assert_array_equal(y.numpy(), wanted)
    wide = device.sparse.spmm(a, device.ones((columns, 2), "int8"), out=device.zeros((rows, 2), "int32"))
    np.testing.assert_array_equal(wide.numpy(), np.stack([wanted, wanted], axis=1))
    down, out = device.ones((rows,), "int8"), device.zeros((columns,), "int32")
    turned = device.sparse.spmv(a, down, trans=True, out=out)
    np.testing.assert_array_equal(turned.numpy(), np.full(columns, rows + 1))
    last = rows * columns - 1
    a.indices[last:].fill(columns)
    with pytest.raises(an.InvalidRequest, match=rf"indices\[{last}\] is {columns}; allowed: 0 to {columns - 1}"):
        device.sparse.validate(a)


def test_the_library_gets_no_more_elements_than_it_counts() -> None:
    """cuSPARSE 12.6.3 ended such a product with an internal error; kernels of ours count in 64 bits."""
    request = an.SparseProductRequest(
        routine="spmv", format="csr", shape=(1 << 16, 1 << 16), values=np.ones(2, "f4"), indices=np.zeros(2, "i8"),
        offsets=np.zeros((1 << 16) + 1, "i8"), x=np.ones(1 << 16, "f4"),
    )  # fmt: skip
    spec = request.lowered.spec()

    def of(nnz: int) -> object:
        operands = [replace(o, shape=(nnz,)) if o.name in ("values", "indices") else o for o in spec.operands]
        return sparse_call(replace(spec, operands=tuple(operands)))

    assert of(2**31 - 1) is not None
    assert of(2**31) is None


def test_the_same_with_few(device: an.Device) -> None:
    check(device, 9, 64)


@pytest.mark.gpu
@pytest.mark.slow
def test_more_than_two_to_the_31(cuda_system: an.System) -> None:
    """About 30 GB of device memory."""
    device = cuda_system.device("cuda:0")
    try:
        check(device, (1 << 31) // COLUMNS + 1, COLUMNS)
    except an.OutOfMemory as error:
        pytest.skip(str(error))
