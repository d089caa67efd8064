"""Kernels that cuTENSOR compiles for a contraction: measured with the others, and kept on disk for later processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import scripts
from fake_cuda import using

#: Builders are in a program whose device is in a thread of its own.
PROGRAM = """
import json, sys
import numpy as np
import atomr_native as an
from atomr_native.libraries.tensor.cuda import einsum as built
from atomr_native.libraries.tensor.cuda.choice import Choice

way, shapes = json.loads(sys.argv[1])
built.StepTuner.tuned = lambda self, measure, seconds: (Choice.of(tuple(way)), "")
rng = np.random.default_rng(0)
notes = []
with an.System(isolation="thread", standby="off") as system:
    device = system.device("cuda:0")
    for n in shapes:
        a, b = rng.standard_normal((6, 5, n)), rng.standard_normal((n, 5, 7))
        refs = [device.put(x) for x in (a, b)]
        request = an.EinsumRequest(subscripts="ijk,kjl->il", operands=refs, tune="known")
        assert np.allclose(device.tensor.tell(request).numpy(), np.einsum("ijk,kjl->il", a, b)), n
        notes += device.tensor.plan(request).notes
print(json.dumps(notes))
"""
COMPILED = (3, -1, -1, 1)  # as `Choice.words` has it


@pytest.fixture
def ran(fake_environment: dict[str, str], tmp_path: Path) -> Callable[..., int]:
    """Runs the program, and returns how many kernels it has compiled."""
    log = tmp_path / "compiled"

    def run(*shapes: int, way: tuple[int, ...] = COMPILED, **more: str) -> int:
        log.unlink(missing_ok=True)
        environment = {
            **fake_environment,
            "ATOMR_NATIVE_CACHE": str(tmp_path / "cache"),
            "FAKE_CUDA_TENSOR_COMPILED": str(log),
            **more,
        }
        with using(environment):
            notes = json.loads(scripts.run(PROGRAM, json.dumps([way, shapes])))
        assert all(note.endswith(": cuTENSOR") for note in notes)
        return len(log.read_text().split()) if log.exists() else 0

    return run


def records(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "cutensor").rglob("*.cutensor"))


def test_a_kernel_is_compiled_once_for_all_processes(ran: Callable[..., int], tmp_path: Path) -> None:
    assert ran(9) == 1
    assert len(records(tmp_path)) == 1
    assert ran(9, 8) == 1  # another one
    assert ran(8, 9) == 0
    assert len(records(tmp_path)) == 2


def test_others_are_not_compiled_nor_kept(ran: Callable[..., int], tmp_path: Path) -> None:
    assert ran(9, way=COMPILED[:3]) == 0
    assert records(tmp_path) == []
    assert ran(9, ATOMR_NATIVE_CACHE_SIZE="0") == 1
    assert records(tmp_path) == []


def test_records_that_are_damaged_or_that_the_library_refuses_are_made_again(
    ran: Callable[..., int], tmp_path: Path
) -> None:
    """The latter as one of another GPU."""
    assert ran(9) == 1
    (record,) = records(tmp_path)
    record.write_bytes(record.read_bytes()[:-2])
    assert ran(9) == 1
    refusals = tmp_path / "refusals"
    refusals.write_text("cutensorReadKernelCacheFromFile 7 1\n")
    assert ran(9, FAKE_CUDA_REFUSE=str(refusals)) == 1
    assert ran(9) == 0
