"""The example that prices an option: its digits depend on neither device nor batches."""

from __future__ import annotations

import re

import pytest
from example_programs import load

import atomr_native as an

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.mark.parametrize("name", ["host", GPU])
def test_batches_make_no_difference(name: str) -> None:
    program = load("option_price")
    with an.System(isolation="thread", standby="off") as system:
        whole = program.price(system.device(name), 3000, 3000, 7)
        assert program.price(system.device(name), 3000, 700, 7) == whole
        assert program.price(system.device(name), 3000, 3000, 8)[2] != whole[2]
        if name != "host":
            assert program.price(system.device("host"), 3000, 3000, 7) == whole
    expected, error, _ = whole
    assert abs(expected - 5.84) < 4 * error  # of 10**6 paths by NumPy's own generator
    assert 0.1 < error < 0.2


def test_it_runs_as_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    program = load("option_price")
    assert program.main(["--device", "host", "--paths", "500", "--batch", "400"]) == 0
    assert re.fullmatch(
        r"500 paths on host, random numbers [0-9a-f]{16}\nprice \d\.\d{10}, standard error 0\.\d{4}\n",
        capsys.readouterr().out,
    )
    with pytest.raises(SystemExit):
        program.main(["--paths", "0"])
