"""Formats, orders and checks of sparse matrices against SciPy, on the host and on CUDA devices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sparse_checks import dense, patterns

import atomr_native as an


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


@pytest.mark.fake_only(device=["host"])
def test_formats_become_each_other(device: an.Device) -> None:
    rng = np.random.default_rng(0)
    for i, pattern in enumerate(patterns(rng)):
        a = dense(rng, pattern, "complex64" if i % 2 else "float32")
        for source, target in zip(
            ["csr", "csc", "coo"] * 3, ["csr", "csc", "coo", "csc", "coo", "csr", "bsr"], strict=False
        ):
            matrix = device.sparse.matrix(a, format=source)
            if target == "bsr":
                made = device.sparse.convert(matrix, "bsr", block=1, index_dtype="int64")
            else:
                made = device.sparse.convert(matrix, target, index_dtype="int64")
                want = scipy.sparse.coo_array(a.astype("c16")).asformat(target)
                want.sort_indices() if target != "coo" else None
                if target != "coo":
                    assert (made.offsets.numpy() == want.indptr).all()
                    assert (made.indices.numpy() == want.indices).all()
            assert made.index_dtype == np.int64
            assert (made.scipy().toarray() == a).all()
            assert (device.sparse.to_dense(made).numpy() == a).all()
        if i == 3:
            assert (device.sparse.matrix(a, format="csr").T.scipy().toarray() == a.T).all()


def test_blocks(device: an.Device) -> None:
    rng = np.random.default_rng(1)
    a = dense(rng, rng.random((12, 18)) < 0.15, "float64")
    made = device.sparse.convert(device.sparse.matrix(a), "bsr", block=3)
    want = scipy.sparse.csr_array(a).tobsr((3, 3))
    want.sort_indices()
    assert (made.offsets.numpy() == want.indptr).all()
    assert (made.indices.numpy() == want.indices).all()
    assert (made.values.numpy() == want.data).all()
    back = device.sparse.prune(device.sparse.convert(made, "csr"))
    assert (back.offsets.numpy() == scipy.sparse.csr_array(a).indptr).all()
    with pytest.raises(an.InvalidRequest, match="block=5"):
        device.sparse.convert(made, "bsr", block=5)


@pytest.mark.fake_only(device=["host"])
def test_duplicates_add_up_and_order_comes_back(device: an.Device) -> None:
    rng = np.random.default_rng(2)
    rows, columns = rng.integers(0, 5, 60), rng.integers(0, 7, 60)
    values = rng.integers(-4, 5, 60).astype("float64")
    want = scipy.sparse.coo_array((values, (rows, columns)), shape=(5, 7))
    matrix = device.sparse.matrix(want)
    assert not matrix.ordered
    facts = device.sparse.validate(matrix)
    assert not facts.sorted
    assert facts.duplicates == 60 - len(set(zip(rows, columns, strict=True)))
    with pytest.raises(an.InvalidRequest, match=r"device\.sparse\.sort"):
        device.sparse.spmv(matrix, device.zeros(7, "float64"))
    in_order = device.sparse.sort(matrix)
    assert device.sparse.validate(in_order).sorted
    by_rows = device.sparse.convert(in_order, "csr")
    np.testing.assert_array_equal(device.sparse.spmv(by_rows, device.ones(7, "float64")).numpy(), want.sum(1))
    for form in ("csr", "csc", "coo"):
        made = device.sparse.coalesce(device.sparse.convert(matrix, form))
        assert device.sparse.validate(made) == (True, 0)
        assert (made.scipy().toarray() == want.toarray()).all()
    assert (device.sparse.to_dense(matrix).numpy() == want.toarray()).all()


@pytest.mark.fake_only(device=["host"])
def test_small_elements_go_and_nan_stays(device: an.Device) -> None:
    a = np.array([[0.5, -2.0, 0.0], [np.nan, 1.0, -0.25]])
    matrix = device.sparse.matrix(a)
    made = device.sparse.prune(matrix, 0.5)
    assert made.offsets.numpy().tolist() == [0, 1, 3]
    assert made.indices.numpy().tolist() == [1, 0, 1]
    explicit = matrix.with_values(device.zeros(5, "float64"))
    assert device.sparse.prune(explicit).nnz == 0
    for form in ("csr", "csc", "coo"):
        found = device.sparse.from_dense(device.put(a), format=form)
        np.testing.assert_array_equal(found.scipy().toarray(), a)
        assert device.sparse.from_dense(device.zeros((2, 0)), format=form).nnz == 0


@pytest.mark.parametrize(
    ("name", "place", "value", "words"),
    [
        ("indices", 2, 3, r"indices\[2\] is 3; allowed: 0 to 2"),
        ("indices", 0, -1, r"indices\[0\] is -1; allowed: 0 to 2"),
        ("offsets", 0, 1, r"offsets\[0\] is 1; allowed: 0"),
        ("offsets", 3, 4, r"offsets\[3\] is 4; allowed: 3"),
        ("offsets", 1, 3, r"offsets\[2\] is 2; allowed: 3 or more"),
    ],
)
@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.fake_only(device=["host"])
def test_bad_indices_are_found_on_the_device(
    device: an.Device, form: str, name: str, place: int, value: int, words: str
) -> None:
    matrix = device.sparse.matrix(np.eye(3), format=form)
    array = matrix.arrays[name].numpy()
    array[place] = value
    device.put(array, out=matrix.arrays[name])
    with pytest.raises(an.InvalidRequest, match=words):
        device.sparse.validate(matrix)


@pytest.mark.fake_only(device=["host"])
def test_rows_of_coo_are_checked(device: an.Device) -> None:
    parts = [device.put(np.array(x)) for x in ([1.0, 2.0], [0, 1], [1, 0])]
    bad = an.SparseMatrix("coo", (2, 2), parts[0], parts[1], rows=parts[2], ordered=True)
    with pytest.raises(an.InvalidRequest, match=r"rows\[1\] is 0; allowed: 1 or more, since ordered=True"):
        device.sparse.validate(bad)
    device.put(np.array([0, 7]), out=parts[2])
    with pytest.raises(an.InvalidRequest, match=r"rows\[1\] is 7; allowed: 0 to 1"):
        device.sparse.validate(bad)


@pytest.mark.fake_only(device=["host"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize(
    ("form", "name", "place", "value", "words"),
    [
        ("csc", "indices", 5, 6, r"indices\[5\] is 6; allowed: 0 to 5"),
        ("csc", "offsets", 3, 2, r"offsets\[3\] is 2; allowed: 4 or more"),
        ("bsr", "indices", 0, 2, r"indices\[0\] is 2; allowed: 0 to 1"),
        ("bsr", "offsets", 3, 9, r"offsets\[3\] is 9; allowed: 4"),
        ("coo", "indices", 1, -2, r"indices\[1\] is -2; allowed: 0 to 3"),
        ("coo", "rows", 3, 6, r"rows\[3\] is 6; allowed: 0 to 5"),
    ],
)
def test_every_format_is_checked(
    device: an.Device, index: str, form: str, name: str, place: int, value: int, words: str
) -> None:
    tall = device.sparse.matrix(np.eye(6, 4) + np.eye(6, 4, -2))
    matrix = device.sparse.convert(tall, form, index_dtype=index, block=2 if form == "bsr" else None)
    assert device.sparse.validate(matrix) == (True, 0)
    array = matrix.arrays[name].numpy().copy()
    array[place] = value
    device.put(array, out=matrix.arrays[name])
    with pytest.raises(an.InvalidRequest, match=words):
        device.sparse.validate(matrix)


@pytest.mark.fake_only(device=["host"])
def test_a_matrix_without_columns_has_no_place(device: an.Device) -> None:
    parts = [device.put(np.array(x)) for x in ([1.0], [0], [0, 1])]
    with pytest.raises(an.InvalidRequest, match=r"indices\[0\] is 0; allowed: none, since the matrix is empty"):
        device.sparse.validate(an.SparseMatrix("csr", (1, 0), *parts))


@pytest.mark.fake_only(device=["host"])
def test_small_blocks_go(device: an.Device) -> None:
    blocks = np.zeros((4, 2, 2))
    blocks[0, 1, 0], blocks[1, 0, 0], blocks[2, 0, 1], blocks[3] = -2.0, 0.5, np.nan, 0.25
    places = (np.array(x) for x in ([1, 0, 0, 1], [0, 2, 2, 4]))
    given = an.SparseMatrix("bsr", (6, 4), device.put(blocks), *(device.put(x) for x in places))
    made = device.sparse.prune(given, 0.5)
    assert made.indices.numpy().tolist() == [1, 0]
    assert made.offsets.numpy().tolist() == [0, 1, 1, 2]
    np.testing.assert_array_equal(made.values.numpy(), blocks[[0, 2]])
    none = device.sparse.prune(made.with_values(device.zeros((2, 2, 2), "float64")))
    assert device.sparse.prune(none).nnz == none.nnz == 0


def test_the_host_follows_no_bad_index(cuda_system: an.System) -> None:
    host = cuda_system.device("host")
    matrix = host.sparse.matrix(np.eye(3))
    host.put(np.array([0, 1, 9], np.int32), out=matrix.indices)
    with pytest.raises(an.InvalidRequest, match="indices has 9; allowed: 0 to 2"):
        host.sparse.spmv(matrix, host.ones(3, "float64")).numpy()
    host.put(np.array([0, 1, 2], np.int32), out=matrix.indices)
    host.put(np.array([0, 2, 1, 3], np.int32), out=matrix.offsets)
    with pytest.raises(an.InvalidRequest, match="without falling"):
        host.sparse.spmv(matrix, host.ones(3, "float64")).numpy()
