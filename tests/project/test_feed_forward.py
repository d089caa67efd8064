"""The example of a transformer's feed-forward block: gradients against float64, on both kinds of device."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from example_programs import load

import atomr_native as an

pytestmark = [pytest.mark.plain, pytest.mark.alike]

BOUNDS = {"bfloat16": 0.02, "float8": 0.2}
CASES = [(name, precision) for name in ("cuda:0", "host") for precision in BOUNDS]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load("feed_forward")


@pytest.mark.fake_only(case=[case for case in CASES if case != ("cuda:0", "float8")])  # Numba's kernels cast to float8
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_block_and_its_gradients(example: ModuleType, cuda_system: an.System, case: tuple[str, str]) -> None:
    name, precision = case
    rng = np.random.default_rng(1)
    tokens, width = 48, 32
    shapes = {
        "x": (tokens, width), "w1": (4 * width, width), "b1": (4 * width,), "w2": (width, 4 * width), "b2": (width,),
        "seed": (tokens, width),
    }  # fmt: skip
    p = {key: rng.standard_normal(shape, dtype=np.float32) for key, shape in shapes.items()}
    p["w1"] /= np.sqrt(width)
    p["w2"] /= np.sqrt(4 * width)
    step = getattr(example, precision)(cuda_system.device(name), p | {"ones": np.ones((tokens, 1), np.float32)}, False)
    step()
    for key, value in example.reference(p).items():
        found = step()[key].numpy().astype(np.float64)
        assert np.abs(found - value).max() <= BOUNDS[precision] * np.abs(value).max(), key


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")  # torch's, in the example's comparison
def test_the_program(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert example.main(["--device", "host", "--tokens", "16", "--width", "16", "--rounds", "1"]) == 0
    assert "16 tokens, width 16, on host" in capsys.readouterr().out
    assert example.main(["--device", "gpu", "--tokens", "16"]) == 2
    assert "unknown device 'gpu'; allowed: 'host'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        example.main(["--width", "24"])
    assert "--width 24; it must be a multiple of 16" in capsys.readouterr().err
