"""The example of a layer of experts: the host device against float64, and the program."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from example_programs import load

import atomr_native as an

pytestmark = [pytest.mark.plain, pytest.mark.alike]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load("experts")


def test_the_layer(example: ModuleType) -> None:
    p = example.parameters(example.parse(["--tokens", "40", "--width", "16", "--inner", "24", "--experts", "5"]))
    p["x"][:, 0], p["router"][0, 3] = 1, -30  # an expert that no token prefers
    want = example.reference(p, 2)
    with an.System() as system:
        found = example.layer(system.device("host"), p, 2, "float32")().numpy()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_the_program(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert example.main(["--device", "host", "--tokens", "16", "--width", "16", "--inner", "16", "--rounds", "1"]) == 0
    assert "16 tokens, 2 of 8 experts each, on host" in capsys.readouterr().out
    assert example.main(["--device", "gpu", "--tokens", "16"]) == 2
    assert "unknown device 'gpu'; allowed: 'host'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        example.main(["--best", "9"])
    assert "--best 9; there are 8 experts" in capsys.readouterr().err
