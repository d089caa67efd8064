"""The example of a block that is divided over devices: its results are those of one device, and of float64."""

from __future__ import annotations

import re

import pytest
from communicator_kinds import names, using
from example_programs import load


@pytest.mark.parametrize(
    ("kind", "ranks"), [("host", 2), ("host", 4), ("fake", 2), pytest.param("gpu", 2, marks=pytest.mark.gpu)]
)
def test_results_are_those_of_one_device(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], kind: str, ranks: int
) -> None:
    program = load("tensor_parallel")
    with using(request, kind):
        assert program.main(["--devices", *names(kind, *range(ranks)), "--tokens", "24", "--width", "16"]) == 0
    out = capsys.readouterr().out
    errors = [float(error) for error in re.findall(r"at most (\S+) from (?:float64|one device)$", out, re.MULTILINE)]
    assert len(errors) == 3
    assert max(errors) < 1e-5  # sums of 64 products in float32
    assert errors[0] > 0


def test_each_rank_has_its_part(capsys: pytest.CaptureFixture[str]) -> None:
    program = load("tensor_parallel")
    p = program.parameters(8, 8)
    with program.an.System(isolation="thread", standby="off") as system:
        comm = system.communicator(["host", "host:1"])
        block = program.Block(comm, p, "float32")
        assert [mine["w1"].shape for mine in block.ranks] == [(16, 8)] * 2
        found = block.step()
        assert [mine["w2"].shape for mine in found] == [(8, 16)] * 2
        assert (found[0]["x"].numpy() == found[1]["x"].numpy()).all()
    with pytest.raises(SystemExit):
        program.main(["--devices", "host", "host:1", "host:2", "--width", "8"])
    assert "divides 4 * --width" in capsys.readouterr().err
