"""The example that solves Poisson's equation in one message."""

from __future__ import annotations

import re

import numpy as np
import pytest
from example_programs import load
from placements import Placement

import atomr_native as an


def test_the_recorded_loop_takes_the_same_rounds(device: an.Device, placement: Placement) -> None:
    program = load("poisson")
    size = 7
    solver = program.Solver(device, size)
    line = 2 * np.eye(size) - np.eye(size, k=1) - np.eye(size, k=-1)
    matrix = np.kron(line, np.eye(size)) + np.kron(np.eye(size), line)
    for seed, tolerance in ((0, 1e-12), (1, 1e-12), (1, 1e-4)):
        b = program.right_side(size, seed)
        given = device.put(b)
        solver.one_by_one(given, tolerance)
        rounds, x = int(solver.rounds), solver.x.numpy()
        solver.plan.tell(given, tolerance=tolerance)
        assert int(solver.rounds) == rounds
        np.testing.assert_array_equal(solver.x.numpy(), x)
        if tolerance < 1e-10:
            np.testing.assert_allclose(x.ravel(), np.linalg.solve(matrix, b.ravel()), atol=1e-11)
            assert rounds > 10
    if placement.cuda:
        assert solver.plan.replays.launched == 2


def test_it_runs_as_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    program = load("poisson")
    assert program.main(["--device", "host", "--size", "5", "--sides", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = [re.fullmatch(r"(.*): (\d+) rounds, .* us each, error (.*)", line) for line in lines[1:]]
    assert [one[1] for one in found if one] == ["message by message", "recorded"]
    assert all(one and float(one[3]) < 1e-8 for one in found)
    with pytest.raises(SystemExit):
        program.main(["--size", "0"])
