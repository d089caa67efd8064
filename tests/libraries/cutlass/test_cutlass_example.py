"""The example with an epilogue in Python: its product is that of float64."""

from __future__ import annotations

import re

import pytest
from example_programs import load

pytest.importorskip("numba")
GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.mark.filterwarnings("ignore:`torch:DeprecationWarning")  # which torch.compile meets in PyTorch itself
@pytest.mark.parametrize("name", ["host", GPU])
def test_it_runs_as_a_program(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = load("epilogue_in_python")
    assert program.main(["--device", name, "--rows", "37", "--columns", "48", "--inner", "32", "--rounds", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"(37, 32) by (32, 48) in bfloat16 on {name}")
    found = re.search(r"^Python .* error (\S+)$", said, re.MULTILINE)
    assert found is not None
    assert 0 < float(found[1]) < 2**-6
    with pytest.raises(SystemExit):
        program.main(["--columns", "12"])
