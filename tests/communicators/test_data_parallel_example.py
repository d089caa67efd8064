"""The example of data-parallel training: whichever rank dies, the curve is that of one device."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterator

import pytest
from example_programs import load

import atomr_native as an

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="needs the extra [demo]: scikit-learn"
)


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """Take back the level of the logger that the program sets."""
    logger = logging.getLogger("atomr_native.dead_letters")
    before = logger.level
    yield
    logger.setLevel(before)


def test_a_rank_dies(capsys: pytest.CaptureFixture[str]) -> None:
    program = load("data_parallel")
    assert program.main(["--steps", "16"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^step 8: killing the worker of host:1, process \d+$", out, re.MULTILINE)
    assert re.search(r"^back at step [78], generation 2 of the communicator$", out, re.MULTILINE)
    apart = re.search(r"^at most (\S+) from the curve of one device$", out, re.MULTILINE)
    assert apart is not None
    assert float(apart[1]) < 1e-4
    with pytest.raises(SystemExit):
        program.main(["--devices", "host", "host:1", "host:2", "host:3", "host:4"])


def test_replicas_return_to_the_commit_that_all_have() -> None:
    program = load("data_parallel")
    with an.System(isolation="thread", standby="off") as system:
        comm = system.communicator(["host", "host:1"])
        replicas = [program.Replica(device) for device in comm.devices]
        group = comm.durable_group([replica.state for replica in replicas])
        program.one_step(comm, replicas, group, program.digits(), 1)
        first = {name: ref.numpy() for name, ref in replicas[1].state.items()}
        program.one_step(comm, replicas, group, program.digits(), 2)
        assert group.tag == 2
        group._numbers[0][group.groups[0].sequence] = 1  # rank 0 lost its last commit, say
        assert group.restore() == 1
        for name, ref in replicas[1].state.items():
            assert (ref.numpy() == first[name]).all(), name
