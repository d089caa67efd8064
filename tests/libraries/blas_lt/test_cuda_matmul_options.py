"""Options of matmuls on CUDA devices, against float64: every compute mode, all options together, far apart rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from matmul_device import send
from matmul_reference import check, random, reference
from matmul_requests import requests

import atomr_native as an
from atomr_native.arrays.layout import layout_from
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.blas_lt.types import RULES

#: Everything that a CUDA device refuses of what a request takes: what it says, by words.
REFUSED = ("aligned", "multiples of 4", "Blackwell")
MODES = [(types, mode) for types, rule in RULES.items() for mode in rule.modes]


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


@pytest.mark.parametrize(("types", "mode"), MODES, ids=lambda x: x if isinstance(x, str) else "-".join(x))
@pytest.mark.parametrize("epilogue", ["default", "bias"])
def test_every_compute_mode(
    device: an.Device, cuda_engine: str, types: tuple[str, str], mode: str, epilogue: str
) -> None:
    rng = np.random.default_rng(MODES.index((types, mode)))
    rule = RULES[types]
    a, b = random(rng, (48, 128), types[0]), random(rng, (32, 128), types[1])
    bias = random(rng, (32,), rule.side(types[0], rule.outputs[0])[0]) if epilogue == "bias" else None
    request = MatmulRequest(a=a, b=b, trans_b=True, compute=mode, epilogue=epilogue, bias=bias)
    refused = ""
    try:
        send(device, request, cuda_engine)
    except an.Unsupported as error:
        refused = str(error)
    assert not refused or (mode == "bfloat16x9" and device.name != "host" and "Blackwell" in refused)


def test_options_shapes_and_scales(cuda: an.Device, cuda_engine: str) -> None:
    """As on the host: a refusal is one of few, and names its rule."""

    @given(request=requests())
    @settings(max_examples=40 if cuda_engine == "gpu" else 15)
    def each(request: MatmulRequest) -> None:
        if (request.a.dtype, request.out_dtype) == (np.int8, "float16"):
            return  # sums overflow, in which order is not said
        refused = ""
        try:
            send(cuda, request, cuda_engine)
        except an.Unsupported as error:
            refused = str(error)
        assert not refused or any(words in refused for words in REFUSED), refused

    each()


def test_int8_is_rounded_to_the_nearest(device: an.Device) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((64, 512), (96, 512)))
    exact = a.astype(np.int64) @ b.T.astype(np.int64)
    x, y = device.put(a), device.put(b)
    for alpha in (2.0**-13, -(2.0**-15)):  # exact in float32, so that nothing but the rounding of D is left
        got = device.blas_lt.matmul(x, y, trans_b=True, alpha=alpha, out_dtype="int8").numpy().astype(float)
        assert np.max(abs(got - np.clip(exact * alpha, -128, 127))) <= 0.5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_more_matrices_than_a_grid_has_rows(cuda: an.Device, cuda_engine: str, dtype: str) -> None:
    many, few = (280, 260) if cuda_engine == "gpu" else (14, 13)
    rng = np.random.default_rng(3)
    for a_batch, b_batch in (((many * few,), (many * few,)), ((many, 1), (few,))):  # evenly, and by addresses
        a, b = random(rng, (*a_batch, 4, 8), dtype), random(rng, (*b_batch, 8, 8), dtype)
        send(cuda, MatmulRequest(a=a, b=b), cuda_engine)


@pytest.fixture(scope="module")
def roomy(cuda_engine: str) -> Iterator[an.System]:
    """Lend a System whose devices have more memory than rows far apart need; almost none of it is touched."""
    options = {} if cuda_engine == "gpu" else {"memory_limit": 20 << 30}
    with an.System(standby="off", **options) as made:
        if cuda_engine == "gpu" and made.device("cuda:0").stats()["memory"]["free"] < 40 << 30:
            pytest.skip("the GPU has less than 40 GiB free")
        yield made


def far(device: an.Device, array: np.ndarray, rows: int) -> an.GpuRef:
    """Return a copy of a matrix whose rows begin so many elements apart."""
    size = array.itemsize
    whole = device.empty((((array.shape[0] - 1) * rows + array.shape[1]) * size,), "uint8")
    kind = next(name for name, dtype in DTYPES.items() if dtype == array.dtype)
    return device.copy(device.put(array), out=whole.view_as(layout_from(array.shape, (rows * size, size), kind), 0))


@pytest.mark.parametrize("name", ["cuda:0", "host"])
@pytest.mark.parametrize(
    ("dtype", "leading"),
    [("int8", 2**32 + 16), ("bfloat16", 2**31 + 64), ("float32", 2**30 + 16), ("float8_e4m3fn", 2**31 + 64)],
)
def test_enormous_leading_dimensions(roomy: an.System, cuda_engine: str, name: str, dtype: str, leading: int) -> None:
    device, rng = roomy.device(name), np.random.default_rng(2)
    a, b = random(rng, (2, 32), dtype), random(rng, (16, 32), dtype)
    x, y = far(device, a, leading), device.put(b)
    want = reference(MatmulRequest(a=a, b=b, trans_b=True), gpu=cuda_engine == "gpu")
    check({"out": device.blas_lt.matmul(x, y, trans_b=True).numpy()}, want, 16)
    del x
    if dtype in ("bfloat16", "float32"):  # of B, and of D, which is C too
        leading //= 1 if cuda_engine == "gpu" else 2  # the fake has 8 GiB
        x, y = device.put(a), far(device, np.ascontiguousarray(b[:2]), leading)
        c = far(device, random(rng, (2, 2), dtype), leading)
        request = MatmulRequest(a=a, b=b[:2], trans_b=True, c=c.numpy(), beta=1.0, epilogue="relu")
        want = reference(request, gpu=cuda_engine == "gpu")
        options = {"trans_b": True, "beta": 1.0, "epilogue": "relu"}
        check({"out": device.blas_lt.matmul(x, y, c=c, out=c, **options).numpy()}, want, 2)
