"""What collectives compute: every one, every type, in place and not, against NumPy."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from communicator_kinds import made_of, names

import atomr_native as an
from atomr_native._lib.seats import PIECE
from atomr_native.dtypes import DTYPES, as_dtype
from atomr_native.libraries.collective.reductions import REDUCIBLE

Arrays = list[np.ndarray[Any, Any]]
FLOAT8 = {as_dtype("float8_e4m3fn"): 448.0, as_dtype("float8_e5m2"): 57344.0}
#: One element, primes, more than a piece; none.
SIZES = (0, 1, 7, 1009, PIECE // 4 + 13)


def values(n: int, size: int, dtype: str, seed: int = 0) -> Arrays:
    """Return an array a rank, of small integers, whose sums and products most types hold exactly."""
    rng = np.random.default_rng(seed)
    low = 0 if dtype.startswith("u") or dtype == "bool" else -3
    return [rng.integers(low, 4, size).astype(as_dtype(dtype)) for _ in range(n)]


def put(comm: an.Communicator, arrays: Arrays) -> list[an.GpuRef]:
    return [device.put(array) for device, array in zip(comm.devices, arrays, strict=True)]


def same(refs: list[an.GpuRef], expected: Arrays) -> None:
    for ref, array in zip(refs, expected, strict=True):
        assert ref.numpy().tobytes() == array.tobytes()
        assert (ref.shape, ref.dtype) == (array.shape, array.dtype)


def stepwise(arrays: Arrays, ufunc: Any) -> np.ndarray[Any, Any]:
    """Reduce in rank order, each step in float64 (integers as they are), rounded to the element type."""
    dtype = arrays[0].dtype
    if dtype.kind in "iu":
        return functools.reduce(ufunc, arrays)  # type: ignore[no-any-return]

    def step(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        exact = ufunc(x.astype(np.float64), y.astype(np.float64))
        if dtype in FLOAT8:
            exact = np.clip(exact.astype(np.float16), -FLOAT8[dtype], FLOAT8[dtype])
        return exact.astype(dtype)  # type: ignore[no-any-return]

    return functools.reduce(step, arrays)


@pytest.mark.parametrize("dtype", REDUCIBLE)
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_reductions_of_every_type_bit_by_bit(pair: an.Communicator, dtype: str, op: str) -> None:
    rng = np.random.default_rng(5)
    raw = [rng.integers(0, 256, 4096, np.uint8).view(as_dtype(dtype)) for _ in range(2)]
    with np.errstate(all="ignore"):
        raw = [np.where(np.isfinite(x.astype(np.float64)), x, np.asarray(1, x.dtype)) for x in raw]
    ufunc = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    with np.errstate(all="ignore"):
        expected = stepwise(raw, ufunc)
    if op in ("min", "max"):  # of zeros of both signs either may win
        found = [ref.numpy() for ref in pair.all_reduce(put(pair, raw), op=op)]  # type: ignore[arg-type]
        assert all(np.array_equal(x.astype(np.float64), expected.astype(np.float64)) for x in found)
    else:
        same(pair.all_reduce(put(pair, raw), op=op), [expected] * 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.fake_only(size=[0, 1009])
def test_sums_in_place_and_not(comm: an.Communicator, size: int) -> None:
    arrays = values(comm.size, size, "float32")
    total = functools.reduce(np.add, arrays)
    refs = put(comm, arrays)
    same(comm.all_reduce(refs), [total] * comm.size)
    same(refs, arrays)
    root = comm.size - 1
    same([comm.reduce(refs, root)], [total])
    assert comm.reduce(refs, root, refs[root]) is refs[root]
    same(refs, [*arrays[:-1], total])
    assert comm.all_reduce(refs, out=refs) == refs
    again = functools.reduce(np.add, [*arrays[:-1], total])
    same(refs, [again] * comm.size)


@pytest.mark.host_only
def test_the_order_is_that_of_the_ranks(system: an.System, kind: str) -> None:
    comm = made_of(system, kind, 2, 0, 1)
    arrays = [np.asarray([x], np.float32) for x in (1e8, 1.0, -1e8)]
    expected = (arrays[0] + arrays[1]) + arrays[2]
    assert expected != (arrays[0] + arrays[2]) + arrays[1]
    same(comm.all_reduce(put(comm, arrays)), [expected] * 3)
    comm.close()


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8"])
@pytest.mark.fake_only(dtype=["bfloat16", "int32"])
def test_averages_and_factors(comm: an.Communicator, dtype: str) -> None:
    arrays = values(comm.size, 101, dtype)
    kind = as_dtype(dtype)
    exact = sum(x.astype(np.float64) for x in arrays)
    rounding = 0.0 if kind.kind in "iu" else 4 * float(ml_dtypes.finfo(kind).eps)
    for ref in comm.all_reduce(put(comm, arrays), op="avg"):
        wanted = np.trunc(exact / comm.size) if kind.kind in "iu" else exact / comm.size
        np.testing.assert_allclose(ref.numpy().astype(np.float64), wanted, rtol=rounding, atol=4 * rounding)
    same(comm.all_reduce(put(comm, arrays), factor=2), [(2 * exact).astype(kind)] * comm.size)
    factors = [np.asarray([rank + 1]).astype(kind) for rank in range(comm.size)]
    weighted = sum(x.astype(np.float64) * (rank + 1) for rank, x in enumerate(arrays))
    same(comm.all_reduce(put(comm, arrays), factor=put(comm, factors)), [weighted.astype(kind)] * comm.size)


def test_integers_wrap_and_float8_saturates(pair: an.Communicator) -> None:
    same(pair.all_reduce(put(pair, [np.full(3, 100, np.int8)] * 2)), [np.full(3, -56, np.int8)] * 2)
    for name in ("float8_e4m3fn", "float8_e5m2"):
        most = np.full(3, FLOAT8[as_dtype(name)]).astype(as_dtype(name))
        same(pair.all_reduce(put(pair, [most, most])), [most] * 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_of_every_type(pair: an.Communicator, dtype: str) -> None:
    arrays = values(2, 24, dtype)
    same(pair.all_gather(put(pair, arrays)), [np.concatenate(arrays)] * 2)
    same(pair.broadcast(pair.devices[1].put(arrays[1])), [arrays[1]] * 2)


@pytest.mark.parametrize("rows", [0, 1, 5, PIECE // 8 // 3 + 7])
@pytest.mark.fake_only(rows=[0, 5])
def test_moves(comm: an.Communicator, rows: int) -> None:
    n = comm.size
    arrays = [x.reshape(rows, 3) for x in values(n, 3 * rows, "int64", seed=rows)]
    wide = [x.reshape(n * rows, 3) for x in values(n, 3 * n * rows, "int64", seed=rows + 1)]
    refs, wide_refs = put(comm, arrays), put(comm, wide)
    same(comm.all_gather(refs), [np.concatenate(arrays)] * n)
    same([comm.gather(refs, n - 1)], [np.concatenate(arrays)])
    same(comm.scatter(wide_refs[1]), [wide[1][rows * r : rows * (r + 1)] for r in range(n)])
    same(comm.broadcast(refs[1]), [arrays[1]] * n)
    same([comm.send(refs[0], n - 1)], [arrays[0]])
    crossed = [np.concatenate([wide[s][rows * r : rows * (r + 1)] for s in range(n)]) for r in range(n)]
    same(comm.all_to_all(wide_refs), crossed)
    total = functools.reduce(np.add, wide)
    same(comm.reduce_scatter(wide_refs), [total[rows * r : rows * (r + 1)] for r in range(n)])


def test_moves_in_place(comm: an.Communicator) -> None:
    n, k = comm.size, 5
    wide = values(n, n * k, "int32")
    parts = [slice(r * k, (r + 1) * k) for r in range(n)]

    def fresh() -> tuple[list[an.GpuRef], list[an.GpuRef]]:
        refs = put(comm, wide)
        return refs, [ref[part] for ref, part in zip(refs, parts, strict=True)]

    refs, views = fresh()
    comm.all_gather(views, out=refs)
    same(refs, [np.concatenate([x[part] for x, part in zip(wide, parts, strict=True)])] * n)
    refs, views = fresh()
    comm.reduce_scatter(refs, out=views)
    same(views, [functools.reduce(np.add, wide)[part] for part in parts])
    refs, views = fresh()
    comm.scatter(refs[0], out=[views[0], *(ref[parts[0]] for ref in refs[1:])])
    same([ref[parts[0]] for ref in refs], [wide[0][part] for part in parts])
    assert comm.broadcast(refs[1], out=refs) == refs


def test_uneven_parts(comm: an.Communicator) -> None:
    n = comm.size
    counts = [[(3 * i + 2 * j) % 5 for j in range(n)] for i in range(n)]
    arrays = [x.reshape(-1, 2) for x in (values(1, 2 * sum(row), "int16", seed=i)[0] for i, row in enumerate(counts))]
    starts = [np.cumsum([0, *row]) for row in counts]
    expected = [np.concatenate([arrays[i][starts[i][j] : starts[i][j + 1]] for i in range(n)]) for j in range(n)]
    same(comm.all_to_all(put(comm, arrays), counts=counts), expected)


def test_views_of_larger_arrays(pair: an.Communicator) -> None:
    wide = values(2, 40, "float64")
    refs = put(pair, wide)
    pair.all_reduce([ref[10:20] for ref in refs], out=[ref[30:40] for ref in refs])
    total = wide[0][10:20] + wide[1][10:20]
    same(refs, [np.concatenate([x[:30], total]) for x in wide])


def test_groups_are_one_message(pair: an.Communicator) -> None:
    arrays = values(2, 11, "float32")
    refs, before = put(pair, arrays), pair.stats()["messages"]
    with pair.group():
        sums = pair.all_reduce(refs, factor=3)
        most = pair.all_reduce(refs, op="max")
        [first, _] = pair.broadcast(refs[0])
        sent = pair.send(refs[1], 0)
    assert pair.stats()["messages"] == before + 1
    same(sums, [3 * (arrays[0] + arrays[1])] * 2)
    same(most, [np.maximum(*arrays)] * 2)
    same([first, sent], arrays)
    with pytest.raises(an.InvalidRequest, match="op='mean'"), pair.group():
        pair.all_reduce(pair.all_reduce(refs, out=refs), op="mean")  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="do not depend"), pair.group():
        pair.all_reduce(pair.all_reduce(refs))
    with pytest.raises(an.InvalidRequest, match="one at a time"), pair.group(), pair.group():
        pass
    same(refs, arrays)
    assert pair.stats()["messages"] == before + 1


def test_they_are_ordered_by_data_beside_other_work(pair: an.Communicator) -> None:
    refs = [device.zeros(1000) for device in pair.devices]
    for _ in range(20):
        for device, ref in zip(pair.devices, refs, strict=True):
            device.elementwise.run("x + 1", x=ref, out=ref)
        pair.all_reduce(refs, out=refs)
    expected = np.float32(0)
    for _ in range(20):
        expected = np.float32(2) * (expected + np.float32(1))
    same(refs, [np.full(1000, expected)] * 2)


def test_plans_and_replies(pair: an.Communicator) -> None:
    arrays = values(2, 9, "float32")
    refs = put(pair, arrays)
    out = [device.empty(9) for device in pair.devices]
    plan = pair.plan(an.CollectiveRequest("all_reduce", refs, out=out))
    plan.tell(refs, out=out)
    same(out, [arrays[0] + arrays[1]] * 2)
    reply = plan.ask(refs, out=out)
    called: list[an.CollectiveReply] = []
    assert reply.result(60) == out
    reply.add_done_callback(called.append)
    assert called == [reply]
    assert reply.done()
    assert reply.exception() is None
    assert pair.barrier().result(60) is None


async def _awaited(system: an.System, devices: list[str]) -> list[Any]:
    comm = await system.communicator_async(devices)
    refs = [device.put([1.0, 2.0]) for device in comm.devices]
    plan = await comm.plan(an.CollectiveRequest("all_reduce", refs))
    found = await comm.ask(an.CollectiveRequest("all_reduce", refs))
    again = await plan.ask(refs)
    comm.close()
    return [(await ref).numpy().tolist() for ref in (*found, *again)]


def test_everything_can_be_awaited(system: an.System, kind: str, pair: an.Communicator) -> None:
    assert asyncio.run(_awaited(system, names(kind, 0, 1))) == [[2.0, 4.0]] * 4


def test_parts_of_a_communicator(system: an.System, kind: str) -> None:
    comm = made_of(system, kind, 0, 1, 2, 3)
    even = comm.sub([2, 0])
    assert [device.index for device in even.devices] == [2, 0]
    halves = comm.split(["a", "b", "a", None])
    assert {color: [d.index for d in part.devices] for color, part in halves.items()} == {"a": [0, 2], "b": [1]}
    for part in (even, *halves.values()):
        refs = [device.put([float(device.index)]) for device in part.devices]
        same(part.all_reduce(refs), [np.asarray([sum(d.index for d in part.devices)], float)] * part.size)
        assert part.rank_of(part.devices[-1]) == part.size - 1
        part.close()
    comm.close()
    assert comm.stats()["state"] == "closed"
    assert "closed" in repr(comm)
