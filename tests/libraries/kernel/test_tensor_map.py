"""Tensor maps: what they refuse, what the driver is told at each launch, and on a GPU what a tile of one holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_cuda
import fake_kernels
import numpy as np
import pytest
from actions import eventually

import atomr_native as an
from atomr_native.compile import cubin, nvrtc

pytestmark = pytest.mark.plain

#: What the fake driver writes down; see fake_driver/tensor_maps.c.
RECORD = np.dtype(
    [
        ("address", "u8"), ("extents", "u8", 5), ("strides", "u8", 4), ("box", "u2", 5), ("steps", "u1", 5),
        ("type", "u1"), ("axes", "u1"), ("interleave", "u1"), ("swizzle", "u1"), ("promotion", "u1"), ("fill", "u1"),
    ],
    align=True,
)  # fmt: skip
SPY = """
typedef struct { unsigned long long words[16]; } CUtensorMap;
extern "C" __global__ void spy(unsigned long long *out, float *x, const __grid_constant__ CUtensorMap map) {
  for (int i = 0; i < 16; i++) out[i] = map.words[i];
  out[16] = (unsigned long long)x;
}
"""
#: The guide's example.
GUIDE = Path(__file__).parents[3] / "docs" / "libraries" / "kernel.md"
TILE = re.findall(r"```cuda\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)[0]


@pytest.fixture(scope="module")
def host() -> Iterator[an.Device]:
    with an.System(isolation="thread") as system:
        yield system.device("host")


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "text"),
    [
        ((), "f4", {"box": ()}, r"shape \(\); a tensor map has 1 to 5 axes"),
        ((1,) * 6, "f4", {"box": (4,) * 6}, "1 to 5 axes"),
        ((0, 8), "f4", {"box": (1, 4)}, r"shape \(0, 8\); extents of a tensor map are 1 to"),
        ((8, 6), "f4", {"box": (1, 4)}, "axis 0 of ref has a stride of 24 bytes.*multiples of 16"),
        ((8, 8), "f4", {"box": 4}, r"box is 4; it must be 2 integers from 1 to 256"),
        ((8, 8), "f4", {"box": "44"}, "box is '44'"),
        ((8, 8), "f4", {"box": (4,)}, r"box is \(4,\); it must be 2 integers"),
        ((8, 8), "f4", {"box": (0, 4)}, "from 1 to 256"),
        ((8, 8), "f4", {"box": (257, 4)}, "from 1 to 256"),
        ((8, 8), "f4", {"box": (True, 4)}, "from 1 to 256"),
        ((8, 8), "f4", {"box": (1.0, 4)}, "from 1 to 256"),
        ((8, 8), "f4", {"box": (4, 3)}, r"box \(4, 3\) of float32 is 12 bytes wide; it must be a multiple of 16"),
        ((8, 8), "f4", {"box": (4, 4), "element_strides": (9, 1)}, "element_strides is .9, 1.; .* from 1 to 8"),
        ((8, 8), "f4", {"box": (4, 4), "element_strides": (1, 2)}, "the last one must be 1"),
        ((8, 64), "f4", {"box": (4, 16), "swizzle": "32B"}, "64 bytes wide; swizzle 32B takes at most 32"),
        ((8, 8), "f4", {"box": (4, 4), "swizzle": "256B"}, "swizzle='256B'; allowed: 'none', '32B', '64B', '128B'"),
        ((8, 8), "f4", {"box": (4, 4), "interleave": 16}, "interleave=16; allowed: 'none', '16B', '32B'"),
        ((8, 8), "f4", {"box": (4, 4), "l2_promotion": "1"}, "l2_promotion='1'; allowed: 'none', '64B'"),
        ((8, 8), "f4", {"box": (4, 4), "oob_fill": None}, "oob_fill=None; allowed: 'zeros', 'nan'"),
        ((8, 8), "i4", {"box": (4, 4), "oob_fill": "nan"}, "oob_fill is 'nan' for int32"),
        ((8, 8), "f4", {"box": (4, 4), "interleave": "16B"}, r"shape \(8, 8\); .* at least 3 axes"),
        ((2, 4, 8), "f4", {"box": (1, 1, 4), "interleave": "32B"}, "swizzle is 'none'; with interleave '32B'"),
        ((2, 4, 4), "f4", {"box": (1, 1, 4), "interleave": "32B", "swizzle": "32B"}, "16 bytes.*multiples of 32"),
    ],
)
def test_what_a_map_refuses(
    host: an.Device, shape: tuple[int, ...], dtype: str, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        an.TensorMap(host.empty(shape, dtype), **options)


def test_arrays_that_have_no_map(host: an.Device) -> None:
    with pytest.raises(an.InvalidRequest, match="ref is a ndarray; a TensorMap describes a GpuRef"):
        an.TensorMap(np.zeros(4), (4,))  # type: ignore[arg-type]
    with pytest.raises(an.Unsupported, match="ref is of complex64; tensor maps have elements of uint8, "):
        an.TensorMap(host.empty((8, 8), "c8"), (4, 4))
    with pytest.raises(an.InvalidRequest, match=r"strides \(4, 64\); the last axis .* must be contiguous"):
        an.TensorMap(host.empty((16, 16)).T, (4, 4))
    with pytest.raises(an.InvalidRequest, match="stride of -64 bytes"):
        an.TensorMap(host.empty((16, 16))[::-1], (4, 4))


def test_what_a_map_says(host: an.Device) -> None:
    plain = an.TensorMap(host.empty((10, 8, 32), "f2")[:, :, :20], [np.int64(1), 2, 16])
    assert plain.box == (1, 2, 16)
    assert plain.described() == (((20, 2, 16, 1), (8, 64, 2, 1), (10, 512, 1, 1)), (6, 0, 0, 0, 0))
    assert plain.alignment == 16
    full = an.TensorMap(
        host.empty((4, 4, 8)), (1, 2, 8), (1, 2, 1), swizzle="32B", interleave="32B", l2_promotion="256B",
        oob_fill="nan",
    )  # fmt: skip
    assert full.described() == (((8, 4, 8, 1), (4, 32, 2, 2), (4, 128, 1, 1)), (7, 2, 1, 3, 1))
    assert full.alignment == 32
    # By CUtensorMapDataType; types that the driver does not know go by one of their size.
    for dtype, number in {"u1": 0, "i1": 0, "?": 0, "i2": 1, "u4": 2, "i4": 3, "u8": 4, "i8": 5, "f8": 8}.items():
        assert an.TensorMap(host.empty(16, dtype), (16,)).described()[1][0] == number


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Which calls of the fake driver fail."""
    path = tmp_path_factory.mktemp("refusals") / "calls"
    path.touch()
    return path


@pytest.fixture(scope="module")
def device(fake_environment: dict[str, str], refusals: Path) -> Iterator[an.Device]:
    """Run on the fake driver, where a kernel can look at the map that it gets."""
    variables = {**fake_environment, "FAKE_CUDA_REFUSE": str(refusals)}
    with fake_cuda.using(variables), an.System(allow_crash=True) as system:
        yield system.device("cuda:0")


def seen(out: an.GpuRef) -> tuple[np.void, int]:
    """Return the map that a kernel got, and the address of `x`."""
    data = out.numpy()
    return data[:16].view(np.uint8)[: RECORD.itemsize].view(RECORD)[0], int(data[16])


def test_the_driver_is_told_the_address_of_each_launch(device: an.Device) -> None:
    kernel = fake_kernels.make(device, SPY, "spy", (8, 8, 128))
    out, x, y = device.zeros(17, "u8"), device.empty((16, 32)), device.empty((16, 32))
    options: dict[str, Any] = {"swizzle": "64B", "l2_promotion": "128B", "oob_fill": "nan"}
    plan = kernel[1, 1].plan(out, x, an.TensorMap(x, (8, 16), (2, 1), **options))
    addresses = []
    for ref in (x, y):
        plan.ask(out, ref, ref).result(60)
        found, address = seen(out)
        assert found["address"] == address
        addresses.append(address)
        assert found["extents"].tolist() == [32, 16, 0, 0, 0]
        assert found["strides"].tolist() == [128, 0, 0, 0]
        assert found["box"].tolist() == [16, 8, 0, 0, 0]
        assert found["steps"].tolist() == [1, 2, 0, 0, 0]
        modes = [int(found[name]) for name in ("type", "axes", "interleave", "swizzle", "promotion", "fill")]
        assert modes == [7, 2, 0, 2, 2, 1]
    assert addresses[0] != addresses[1]
    generation = device.generation
    device.inject_fault("exit")
    eventually(lambda: device.generation > generation)
    device.wait_ready(60)
    out, fresh = device.zeros(17, "u8"), device.empty((16, 32))
    plan.ask(out, fresh, fresh).result(60)
    found, address = seen(out)
    assert found["address"] == address


def test_maps_of_remembered_launches(device: an.Device) -> None:
    launch = fake_kernels.make(device, SPY, "spy", (8, 8, 128))[1, 1]
    out, x, y, wide = device.zeros(17, "u8"), device.empty((16, 32)), device.empty((16, 32)), device.empty((16, 64))
    maps = [
        an.TensorMap(x, (8, 16)), an.TensorMap(y, (8, 16)), an.TensorMap(x, (8, 8)), an.TensorMap(x, (8, 16), (2, 1)),
        an.TensorMap(x, (8, 16), swizzle="64B"), an.TensorMap(wide, (8, 16)),
    ]  # fmt: skip
    known = len(launch.kernel.actor.launches)
    for _ in range(2):
        for one in maps:
            launch(out, one.ref if one.ref.layout == x.layout else x, one).result(60)
            found, address = seen(out)
            axes, modes = one.described()
            told = list(zip(*(found[name].tolist()[:2] for name in ("extents", "box", "steps")), strict=True))
            assert told == [(axis[0], *axis[2:]) for axis in axes]
            assert (found["address"] == address) == (one.ref is not wide)
            assert found["swizzle"] == modes[2]
    assert len(launch.kernel.actor.launches) == known + len(maps) - 1  # x and y are alike


def test_a_map_that_the_driver_refuses(device: an.Device, refusals: Path) -> None:
    kernel = fake_kernels.make(device, SPY, "spy", (8, 8, 128))
    out, x = device.zeros(17, "u8"), device.empty((16, 32))
    refusals.write_text("cuTensorMapEncodeTiled 1 1\n")
    with pytest.raises(an.LibraryError, match="cuTensorMapEncodeTiled"):
        kernel[1, 1](out, x, an.TensorMap(x, (8, 16))).result(60)
    out, x = device.zeros(17, "u8"), device.empty((16, 32))
    kernel[1, 1](out, x, an.TensorMap(x, (8, 16))).result(60)


def test_an_address_that_no_map_can_have(device: an.Device) -> None:
    kernel = fake_kernels.make(device, SPY, "spy", (8, 8, 128))
    out, x = device.zeros(17, "u8"), device.empty((16, 32))
    part = x[:, 1:17]
    with pytest.raises(an.Unsupported, match="no multiple of 16 bytes"):
        kernel[1, 1](out, x, an.TensorMap(part, (8, 16))).result(60)


def test_where_a_map_stands(device: an.Device) -> None:
    out, x = device.zeros(17, "u8"), device.empty((16, 32))
    tile = an.TensorMap(x, (8, 16))
    kernel = fake_kernels.make(device, SPY, "spy", (8, 8, 128))
    with pytest.raises(an.InvalidRequest, match=r"x is a TensorMap; float \* takes a GpuRef"):
        kernel[1, 1](out, tile, tile)
    with pytest.raises(an.InvalidRequest, match=r"map is a GpuRef; CUtensorMap takes bytes, .*, a TensorMap"):
        kernel[1, 1](out, x, x)
    small = fake_kernels.make(device, SPY, "spy", (8, 8, 64))
    with pytest.raises(
        an.InvalidRequest, match="map is a TensorMap, of 128 bytes by value; it is declared as CUtensorMap of 64"
    ):
        small[1, 1](out, x, tile)


def test_too_many(device: an.Device) -> None:
    names = ", ".join(f"const __grid_constant__ CUtensorMap m{i}" for i in range(17))
    source = SPY + f'extern "C" __global__ void many(float *x, {names}) {{ }}'
    x = device.empty((16, 32))
    kernel = fake_kernels.make(device, source, "many", (8, *(128,) * 17))
    with pytest.raises(an.Unsupported, match="17 tensor maps; at most 16"):
        kernel[1, 1](x, *[an.TensorMap(x, (8, 16))] * 17).result(60)


def test_a_tile_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))
    try:
        made = nvrtc.compile_program(TILE, "sm_90a", names=["tile"])
    except an.Unsupported as error:
        pytest.skip(str(error))
    assert cubin.kernels(made.code) == {"tile": (8, 128, 4, 4)}


@pytest.mark.gpu
def test_a_tile_of_a_gpu() -> None:
    with an.System() as system:
        device = system.device("cuda:0")
        if device.facts["compute_capability"][0] < 9:
            pytest.skip("tensor maps need compute capability 9.0")
        data = np.random.default_rng(1).standard_normal((64, 128)).astype(np.float32)
        x, out = device.put(data), device.empty((8, 32))
        launch = device.cuda_kernel(TILE, "tile")[1, 128]
        for column, row in ((0, 0), (40, 11), (112, 60)):
            launch(out, an.TensorMap(x, (8, 32)), column, row).result(60)
            expected = np.zeros((8, 32), np.float32)  # outside of the array
            inside = data[row : row + 8, column : column + 32]
            expected[: inside.shape[0], : inside.shape[1]] = inside
            np.testing.assert_array_equal(out.numpy(), expected)
