"""Softmax cross entropy as kernels, wherever rows are held: on the processor, and on a GPU if there is one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from codegen_engines import Engine, engines, need_nvrtc, poison
from lowered import lowered
from placements import GPU

from atomr_native.builders.cuda.target import Target
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.elementwise.cuda.softmax_elements import Kind
from atomr_native.libraries.elementwise.cuda.softmax_rows import cut
from atomr_native.libraries.elementwise.request import SoftmaxCrossEntropyRequest

UNIT = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture(scope="module", params=["cpu", *GPU])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engines(request.param, tmp_path_factory) as made:
        yield made


def rows(n: int, classes: int, dtype: str, pitch: int = 0, start: int = 0) -> np.ndarray:
    """Rows so many elements apart, that begin so many after a multiple of 256 bytes; other bytes are of NaN."""
    pitch, size = pitch or classes, DTYPES[dtype].itemsize
    memory = np.full(n * pitch * size + 512, 0xFF, np.uint8)
    first = -memory.ctypes.data % 256 + start * size
    made = memory[first : first + n * pitch * size].view(DTYPES[dtype]).reshape(n, pitch)[:, :classes]
    made[...] = np.random.default_rng(1).standard_normal((n, classes)) * 3
    return made


def run(engine: Engine, x: np.ndarray, labels: np.ndarray, grad: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    request = SoftmaxCrossEntropyRequest(logits=x, labels=labels, grad_out=grad)
    spec, fresh = lowered(request)
    loss = poison(*fresh)
    engine.run(spec, (x, labels, grad, loss))
    return loss, grad


def check(x: np.ndarray, labels: np.ndarray, loss: np.ndarray, grad: np.ndarray) -> None:
    """Compare with float64; a gradient also loses what two roundings of a probability near 1 lose."""
    n, classes = x.shape
    wide = x.astype(np.float64)
    d = wide - wide.max(1, keepdims=True)
    total = np.exp(d).sum(1, keepdims=True)
    exact = (np.exp(d) / total - (np.arange(classes) == labels[:, None])) / n
    mean = (np.log(total[:, 0]) - d[np.arange(n), labels]).mean()
    single = 2.0**-52 if x.dtype == np.float64 else 2.0**-23
    np.testing.assert_allclose(loss, mean, rtol=1e-6, atol=1e-6)
    atol = (2.0**-25 if x.dtype == np.float16 else 0) + 4 * single / n
    np.testing.assert_allclose(grad.astype(np.float64), exact, rtol=UNIT[x.dtype.name] + 40 * single, atol=atol)


# Rows, classes, and elements from row to row: that can be read by 16 bytes, and that cannot.
CASES = {
    "one class": (5, 1, 0), "one row": (1, 77, 0), "few": (300, 10, 0), "warp": (9, 1000, 0), "block": (3, 4096, 0),
    "rest": (2, 1037, 1040), "odd": (3, 1037, 0), "pitch": (2, 4096, 4101), "fits": (1, 32768, 0),
    "one more": (1, 32771, 0), "long": (2, 34000, 0), "long, odd": (2, 17001, 0),
    "GPT-2": (3, 50257, 50304), "Llama 3": (2, 128256, 0), "Gemma": (2, 262144, 0), "in larger blocks": (2, 330000, 0),
    "read again": (2, 750000, 0),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_rows(engine: Engine, case: str, dtype: str) -> None:
    n, classes, pitch = CASES[case]
    labels = np.random.default_rng(2).integers(0, classes, n)
    labels[-1] = classes - 1
    x, whole = rows(n, classes, dtype, pitch), rows(n, pitch or classes, dtype)
    beside = whole[:, classes:].tobytes()
    loss, grad = run(engine, x, labels, whole[:, :classes])
    check(x, labels, loss, grad)
    assert whole[:, classes:].tobytes() == beside
    # The same order wherever the arrays are, so the same bits.
    moved = rows(n, classes, dtype, pitch, 1)
    for again, into in ((moved, rows(n, classes, dtype, pitch)), (x, rows(n, classes, dtype, pitch, 3))):
        other = run(engine, again, labels, into)
        assert other[0].tobytes() == loss.tobytes()
        assert other[1].tobytes() == grad.tobytes()


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("classes", [17001, 70000])
def test_long_rows_without_clusters(engine: Engine, dtype: str, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "clusters", False)
    x, grad, labels = rows(2, classes, dtype), rows(2, classes, dtype), np.array([5, classes - 1])
    check(x, labels, *run(engine, x, labels, grad))


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("classes", [1000, 20000])
def test_views(engine: Engine, dtype: str, classes: int) -> None:
    labels = np.array([3, classes - 1, 0])
    for x in (rows(3, 2 * classes, dtype)[:, ::2], rows(6, classes, dtype, 0, 1)[::2]):
        loss, grad = run(engine, x, labels, rows(3, classes, dtype))
        check(x, labels, loss, grad)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize(("classes", "hidden"), [(24, 23), (40000, 39000)])
def test_infinities_and_nan(engine: Engine, dtype: str, classes: int, hidden: int) -> None:
    x = rows(6, classes, dtype)
    labels = np.full(6, classes - 1)
    x[0, :hidden] = -np.inf  # whole threads have nothing else
    x[1, 3] = np.inf
    x[2, classes // 2] = np.nan
    x[3] = -np.inf
    labels[4] = -1
    loss, grad = run(engine, x, labels, rows(6, classes, dtype))
    assert np.isnan(loss)
    assert np.isnan(grad[1:5].astype(np.float32)).all()
    few = x[[0, 5]]
    loss, both = run(engine, few, labels[[0, 5]], rows(2, classes, dtype))
    check(few, labels[[0, 5]], loss, both)
    assert (both[0, :hidden] == 0).all()
    assert np.isfinite(grad[[0, 5]].astype(np.float32)).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_they_compile_for_a_gpu(arch: str) -> None:
    need_nvrtc()
    made = Engine(Target(arch), lambda *_: None)
    for dtype, n, classes in (("bfloat16", 8, 4096), ("float16", 8, 50257), ("float64", 1, 20001)):
        request = SoftmaxCrossEntropyRequest(logits=rows(n, classes, dtype), labels=np.zeros(n, np.int32))
        assert made.build(request.lowered.spec()).run.cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("dtype", "apart", "most"),
    [("bfloat16", 0, 65536), ("float32", 0, 32768), ("float64", 0, 8192), ("float16", 1, 32768)],
)
def test_the_longest_row_that_is_read_once(dtype: str, apart: int, most: int) -> None:
    """docs/libraries/elementwise.md: in one block."""
    made = Engine(Target("sm_80"), lambda *_: None, compiled=False)
    for classes, loops in ((most, 0), (most + 16, 2)):
        x, labels = rows(2, classes, dtype, classes + apart), np.zeros(2, np.int32)
        spec = SoftmaxCrossEntropyRequest(logits=x, labels=labels).lowered.spec()
        source = made.build(spec).run.source
        assert source.count(" c = ") == loops * (2 - apart)  # by 16 bytes and by elements


@pytest.mark.parametrize(
    ("dtype", "width", "most"),
    [("bfloat16", 8, 655360), ("float32", 4, 327680), ("float64", 2, 131072), ("float16", 1, 327680)],
)
def test_the_longest_row_that_is_read_once_by_a_cluster(dtype: str, width: int, most: int) -> None:
    """docs/libraries/elementwise.md: in a cluster of a Hopper GPU."""
    kind = Kind(dtype, "float64" if dtype == "float64" else "float32", width)
    for classes, fits in ((most, True), (most + 16, False)):
        found = cut(kind, 2, classes, Target("sm_90a"))
        assert (found.lanes * (found.held + found.kept) >= found.whole) == fits
