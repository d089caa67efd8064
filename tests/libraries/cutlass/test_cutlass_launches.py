"""Products on the fake driver: what CUTLASS's kernels are given, by a kernel in C that reads the same parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fake_cuda
import fake_cutlass
import numpy as np
import pytest
from actions import eventually

import atomr_native as an
from atomr_native.libraries.cutlass.choice import kernel_of
from atomr_native.libraries.cutlass.kernels import check, walk

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda.bindings is not installed")
RNG = np.random.default_rng(4)


@pytest.fixture(scope="module")
def seen(fake_environment: dict[str, str]) -> Iterator[fake_cutlass.Seen]:
    with pytest.MonkeyPatch.context() as patch, fake_cuda.using(fake_environment):
        yield fake_cutlass.install(patch)


@pytest.fixture(scope="module")
def device(seen: fake_cutlass.Seen) -> Iterator[an.Device]:
    with an.System(allow_crash=True) as system:
        yield system.device("cuda:0")


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    if dtype == "int8":
        return RNG.integers(-100, 100, shape).astype(dtype)
    return RNG.standard_normal(shape).astype(dtype)


def columns(device: an.Device, array: np.ndarray) -> an.GpuRef:
    """Return a matrix whose columns are contiguous."""
    return device.put(np.ascontiguousarray(array.T)).T


@pytest.mark.parametrize(
    ("dtype", "order", "compute", "arch"),
    [
        ("float32", "CC", None, "sm_80"),
        ("float32", "CF", "tf32", "sm_90a"),
        ("float32", "CC", "tf32", "sm_80"),
        ("float32", "FC", None, "sm_80"),
        ("float64", "FF", None, "sm_80"),
        ("int8", "CF", None, "sm_90a"),
    ],
)
def test_products(
    device: an.Device, seen: fake_cutlass.Seen, dtype: str, order: str, compute: str | None, arch: str
) -> None:
    a, b = values(6, 32, dtype=dtype), values(32, 16, dtype=dtype)
    given = [columns(device, one) if how == "F" else device.put(one) for one, how in zip((a, b), order, strict=True)]
    found = device.cutlass.gemm(*given, compute=compute, epilogue="acc" if dtype == "int8" else None)
    np.testing.assert_allclose(found.numpy(), a.astype("f8") @ b.astype("f8"), rtol=1e-5, atol=1e-5)
    kernel = seen[-1]
    assert kernel.arch == arch
    assert [kernel.a.layout, kernel.b.layout] == [{"C": "row", "F": "column"}[one] for one in order]
    assert kernel.a.dtype == ("tfloat32" if compute else dtype)


def test_a_tree_with_everything(device: an.Device, seen: fake_cutlass.Seen) -> None:
    a, b, c, x = values(2, 8, 32), values(32, 16), values(2, 8, 16), values(2, 1, 16)
    column, scale = values(8, 1), np.array([3.0], "f4")
    options: dict[str, Any] = {
        "epilogue": "pre = alpha * acc + x; out = relu(pre) * c + column * scale - 0.5 * shift", "c": device.put(c),
        "operands": {"x": device.put(x), "column": device.put(column), "scale": device.put(scale), "shift": 2.0},
    }  # fmt: skip
    given = device.put(a), columns(device, b)
    for alpha in (2.0, -1.0):
        found, pre = device.cutlass.gemm(*given, alpha=alpha, outputs={"pre": "float32"}, compute="tf32", **options)
        want = alpha * (a.astype("f8") @ b) + x
        np.testing.assert_allclose(pre.numpy(), want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.numpy(), np.maximum(want, 0) * c + column * 3 - 1, rtol=1e-4, atol=1e-4)
    assert seen[-1].arch == "sm_90a"
    host = device.system.device("host")
    mirrored = options | {"c": host.put(c), "operands": {
        name: one if isinstance(one, float) else host.put(one.numpy()) for name, one in options["operands"].items()
    }}  # fmt: skip
    expected, _ = host.cutlass.gemm(
        host.put(a), host.put(b), alpha=-1.0, outputs={"pre": "float32"}, compute="tf32", **mirrored
    )
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("m", "turned"), [(8, True), (72, False)])
def test_few_rows_are_columns_of_the_transposes(
    device: an.Device, seen: fake_cutlass.Seen, m: int, turned: bool
) -> None:
    a, b, gate, mask = values(m, 32), values(32, 128), values(m, 128), values(m, 128)
    bias, factor = values(128), values(m, 1)
    text = "pre = acc + bias; most = sum(pre, 0); row = max(pre, 1); out = relu(pre) * gate + factor * mask"
    given = {"bias": bias, "gate": gate, "factor": factor, "mask": mask}
    outputs = {"pre": "float32", "most": "float32", "row": "float32"}
    found = device.cutlass.gemm(
        device.put(a), columns(device, b), compute="tf32", epilogue=text, outputs=outputs,
        operands={name: device.put(one) for name, one in given.items()},
    )  # fmt: skip
    x = a.astype("f8") @ b + bias
    wanted = np.maximum(x, 0) * gate + factor * mask, x, x.sum(0), x.max(1)
    for one, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), want, rtol=1e-4, atol=1e-4)
    kernel = seen[-1]
    assert kernel.arch == "sm_90a"
    assert kernel.d.layout == ("column" if turned else "row")
    assert kernel.c is not None  # a matrix of the epilogue, and the other one is a tensor
    assert [node.op for node in walk(kernel.tree) if node.op in ("source", "tensor")].count("tensor") == 1


@pytest.mark.parametrize("order", ["C", "F"])
def test_reductions_begin_anew_with_each_message(device: an.Device, seen: fake_cutlass.Seen, order: str) -> None:
    batch = (2,) if order == "C" else ()
    a, b = values(*batch, 6, 64), values(64, 16)
    out = device.put(np.zeros((*batch, 6, 16), "f4")) if order == "C" else columns(device, np.zeros((6, 16), "f4"))
    for alpha in (1.0, -2.0):
        found = device.cutlass.gemm(
            device.put(a), device.put(b), out=out, outputs=dict.fromkeys(("rows", "most", "columns"), "float32"),
            epilogue="mid = alpha * acc; rows = sum(mid, 0); most = max(mid); columns = sum(acc, 1); out = mid + acc",
            alpha=alpha,
        )  # fmt: skip
        x = a.astype("f8") @ b
        wanted = (alpha + 1) * x, alpha * x.sum(-2), (alpha * x).max((-2, -1))[..., None], x.sum(-1)
        for one, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one.numpy(), want, rtol=1e-4, atol=1e-4)
    names = {node.op for node in walk(seen[-1].tree) if node.op.startswith("reduce")}
    assert names == {"reduce_row", "reduce_column", "reduce_scalar"}


@pytest.mark.parametrize("groups", [1, 4, 0])
def test_a_converted_operand_with_factors_of_its_groups(
    device: an.Device, seen: fake_cutlass.Seen, groups: int
) -> None:
    a, b = values(2, 6, 256).astype("f2"), values(256, 16, dtype="int8")
    scale = np.exp2(RNG.integers(-9, -6, (groups, 16))).astype("f2") if groups else None
    row, column, c = values(16), values(6, 1), values(2, 6, 16).astype("f2")
    weights = device.put(np.ascontiguousarray(b.T)).T
    found = device.cutlass.gemm(
        device.put(a), weights, b_scale=None if scale is None else device.put(scale), c=device.put(c),
        epilogue="pre = acc * column + row; out = pre + c", outputs={"pre": "float32"}, out_dtype="float32",
        operands={"row": device.put(row), "column": device.put(column)},
    )  # fmt: skip
    wide = b.astype("f8") * (1 if scale is None else np.repeat(scale.astype("f8"), 256 // groups, axis=0))
    want = a.astype("f8") @ wide * column + row
    np.testing.assert_allclose(found[1].numpy(), want, rtol=2e-3, atol=2e-3 * np.abs(want).max())
    np.testing.assert_allclose(found[0].numpy(), want + c, rtol=2e-3, atol=2e-3 * np.abs(want).max())
    kernel = seen[-1]
    check(kernel)
    assert (kernel.a.dtype, kernel.b.dtype, kernel.d.layout) == ("int8", "float16", "column")
    assert kernel.scale == ("float16" if groups else "")


def test_converted_operands_that_no_kernel_reads(device: an.Device) -> None:
    a, b = device.zeros((8, 256), "float16"), device.zeros((256, 16), "int8")
    with pytest.raises(an.Unsupported, match=r"b whose columns are not contiguous; .* along K"):
        device.cutlass.gemm(a, b)
    weights, scale = device.zeros((16, 256), "int8").T, device.zeros((8, 16), "float16")
    with pytest.raises(an.Unsupported, match="b_scale for 32 neighbours along K; allowed: multiples of 64, K"):
        device.cutlass.gemm(a, weights, b_scale=scale)
    with pytest.raises(an.Unsupported, match="rows must be contiguous, since b is converted"):
        device.cutlass.gemm(a, weights, out=device.zeros((16, 8), "float16").T)
    with pytest.raises(an.Unsupported, match=r"products of float16 by int8; allowed: compute capability 9\.0"):
        device.cutlass.gemm(a, weights, config=an.GemmConfig(arch="sm_80"))


def test_columns_of_d_are_the_product_of_the_transposes(device: an.Device, seen: fake_cutlass.Seen) -> None:
    a, b, row, column = values(6, 8), values(8, 4), values(4), values(6, 1)
    out = columns(device, np.full((6, 4), np.nan, "f4"))
    c = columns(device, values(6, 4))
    operands = {"row": device.put(row), "column": device.put(column)}
    device.cutlass.gemm(
        device.put(a), device.put(b), out=out, c=c, epilogue="acc * row + column * c", operands=operands
    )
    np.testing.assert_allclose(out.numpy(), a.astype("f8") @ b * row + column * c.numpy(), rtol=1e-4, atol=1e-4)
    assert [one.layout for one in (seen[-1].a, seen[-1].b, seen[-1].d)] == ["column", "column", "row"]
    with pytest.raises(an.Unsupported, match=r"c of shape \(6, 4\) .*it must have the order of out"):
        device.cutlass.gemm(device.put(a), device.put(b), c=c, beta=1.0)


def test_d_is_added_to_in_place(device: an.Device) -> None:
    a, b, c = values(6, 8), values(8, 4), values(6, 4)
    out = device.put(c)
    device.cutlass.gemm(device.put(a), device.put(b), c=out, out=out, beta=2.0)
    np.testing.assert_allclose(out.numpy(), a.astype("f8") @ b + 2 * c, rtol=1e-4, atol=1e-4)


def test_batches_of_one_stride(device: an.Device) -> None:
    a, b = values(2, 3, 4, 8), values(3, 8, 4)
    device_a = device.put(a)
    with pytest.raises(an.Unsupported, match=r"b of shape \(3, 8, 4\) .*a batch \(2, 3\) must be one stride"):
        device.cutlass.gemm(device_a, device.put(b))
    found = device.cutlass.gemm(device_a, device.put(b[0]))
    np.testing.assert_allclose(found.numpy(), a.astype("f8") @ b[0], rtol=1e-4, atol=1e-4)


def test_views_at_addresses_that_the_kernel_cannot_read(device: an.Device) -> None:
    x, b = device.put(values(4, 33)), device.put(values(32, 4))
    assert device.cutlass.gemm(x[:, :32], b).shape == (4, 4)  # elements one by one
    wide = device.put(values(4, 36))
    device.cutlass.gemm(wide[:, :32], b).numpy()
    with pytest.raises(an.Unsupported, match="no multiple of 16 bytes"):
        device.cutlass.gemm(wide[:, 1:33], b).numpy()


@pytest.mark.parametrize(
    ("config", "wanted"), [({"decomposition": "stream_k"}, "stream_k"), ({"splits": 3}, "stream_k"), ({}, "tiles")]
)
def test_counters_of_blocks_that_share_sums_are_zero(
    device: an.Device, seen: fake_cutlass.Seen, config: dict[str, Any], wanted: str
) -> None:
    a, b = values(6, 64), values(64, 16)
    for _ in range(2):  # the first message leaves its counters in the workspace
        found = device.cutlass.gemm(device.put(a), device.put(b), config=an.GemmConfig(**config))
        np.testing.assert_allclose(found.numpy(), a.astype("f8") @ b, rtol=1e-4, atol=1e-4)
    assert seen[-1].decomposition == wanted
    batch = device.zeros((2, 6, 64), "float32")
    if config:
        with pytest.raises(an.Unsupported, match="of 2 products; allowed: 'tiles'"):
            device.cutlass.gemm(batch, device.put(b), config=an.GemmConfig(**config))


@pytest.mark.parametrize("m", [16, 512, 8192])
@pytest.mark.parametrize("schedule", ["cooperative", "pingpong"])
@pytest.mark.parametrize("groups", [False, True])
def test_the_tile_follows_the_schedule(m: int, schedule: str, groups: bool) -> None:
    a, config = np.empty((m, 64), "f2"), an.GemmConfig(schedule=schedule)
    if groups:
        b, ends = np.empty((4, 64, 128), "f2"), np.empty(4, "i4")
        request: Any = an.GroupedGemmRequest(a=a, b=b, offsets=ends, config=config)
    else:
        request = an.GemmRequest(a=a, b=np.empty((64, 128), "f2"), config=config)
    kernel = kernel_of(request.lowered.spec(), (9, 0)).kernel
    check(kernel)
    assert kernel.schedule == schedule
    for rows, wanted in ((64, "pingpong"), (256, "cooperative")):  # and the schedule follows the tile
        tall = an.GemmRequest(a=a, b=np.empty((64, 128), "f2"), config=an.GemmConfig(tile=(rows, 128, 64)))
        kernel = kernel_of(tall.lowered.spec(), (9, 0)).kernel
        check(kernel)
        assert kernel.schedule == wanted


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 264), (264, 1), (5, 3)])
def test_directions_of_single_rows_and_columns(device: an.Device, m: int, n: int) -> None:
    a, b = values(m, 8), values(8, n)
    found = device.cutlass.gemm(device.put(a), columns(device, b))
    np.testing.assert_allclose(found.numpy(), a.astype("f8") @ b, rtol=1e-4, atol=1e-4)
    for dtype in ("f2", "f4"):  # K is contiguous in both, and the kernels read 16 bytes of it at once
        request = an.GemmRequest(a=np.empty((m, 8), dtype), b=np.empty((n, 8), dtype).T)
        kernel = kernel_of(request.lowered.spec(), (8, 0)).kernel
        check(kernel)
        assert {kernel.a.alignment, kernel.b.alignment} == {16 // np.dtype(dtype).itemsize}


@pytest.mark.parametrize("how", [{"decomposition": "stream_k"}, {"splits": 4}])
def test_blocks_of_any_product_can_share_sums(how: dict[str, Any]) -> None:
    request = an.GemmRequest(a=np.empty((6, 64), "f2"), b=np.empty((64, 16), "f2"), config=an.GemmConfig(**how))
    kernel = kernel_of(request.lowered.spec(), (9, 0)).kernel
    check(kernel)
    assert (kernel.arch, kernel.schedule, kernel.decomposition) == ("sm_90a", "cooperative", "stream_k")


def test_few_tiles_of_long_sums_are_shared(device: an.Device) -> None:
    for k, arch, wanted in ((8192, None, "stream_k"), (1024, None, "tiles"), (8192, "sm_80", "tiles")):
        a, b = np.empty((128, k), "f2"), np.empty((k, 128), "f2")
        request = an.GemmRequest(a=a, b=b, config=an.GemmConfig(arch=arch, tile=None if arch else (128, 128, 64),
                                                                schedule=None if arch else "cooperative"))  # fmt: skip
        assert kernel_of(request.lowered.spec(), (9, 0)).kernel.decomposition == wanted


def test_a_problem_that_cutlass_refuses(device: an.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = device.put(values(4, 30)), device.put(values(30, 4))
    found = fake_cutlass._sources

    def odd(one: Any) -> Any:
        body, build, *rest = found(one)
        return (body, build.replace("== 0;", "== 7;"), *rest)

    monkeypatch.setattr(fake_cutlass, "_sources", odd)
    with pytest.raises(an.Unsupported, match="CUTLASS cannot compute M=4, N=4, K=30") as caught:
        device.cutlass.gemm(a, b).numpy()
    assert caught.value.rule == "cutlass.kernel"


def test_a_plan_outlives_a_restart(device: an.Device) -> None:
    a, b = values(4, 8), values(8, 4)
    layer = device.cutlass.bind("layer", device.put(a), device.put(b), epilogue="relu(acc)")
    layer.tell(device.put(a)).numpy()
    generation = device.generation
    device.inject_fault("exit")
    eventually(lambda: device.generation > generation)
    device.wait_ready(60)
    layer.refit(b=device.put(-b))
    np.testing.assert_allclose(layer.tell(device.put(a)).numpy(), np.maximum(-(a @ b), 0), rtol=1e-4, atol=1e-4)


def test_nothing_is_a_product_of_nothing(device: an.Device) -> None:
    assert device.cutlass.gemm(device.zeros((0, 4), "float32"), device.zeros((4, 4), "float32")).numpy().shape == (0, 4)


def test_equal_messages_of_two_launches_are_launched_from_a_record(device: an.Device, seen: fake_cutlass.Seen) -> None:
    a, b, out = (device.put(values(*shape)) for shape in ((72, 32), (32, 128), (72, 128)))
    rows = device.zeros(128, "float32")

    def call(alpha: float = 2.0) -> None:
        text = "mid = acc * alpha; rows = sum(mid, 0); out = mid"
        device.cutlass.gemm(a, b, epilogue=text, outputs={"rows": rows}, out=out, alpha=alpha)

    def replays() -> int:
        return int(device.stats()["records"]["replays"])  # type: ignore[index,call-overload]

    def replayed() -> bool:
        call()
        out.wait()
        return replays() > before

    before = replays()
    eventually(replayed)
    for alpha in (2.0, 3.0):  # of another number there is no record yet
        x = values(72, 32)
        device.put(x, out=a)
        call(alpha)
        want = alpha * (x.astype("f8") @ b.numpy())
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(rows.numpy(), want.sum(0), rtol=1e-4, atol=1e-4)
    assert replays() == before + 2
