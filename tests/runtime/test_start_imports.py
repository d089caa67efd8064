"""Modules that programs and workers load when they start: each delays the first array and every restart."""

from __future__ import annotations

import subprocess
import sys

import pytest

from atomr_native.libraries import OPERATIONS

pytestmark = [pytest.mark.plain, pytest.mark.alike]

#: Costly, and not needed by a program's first array.
SPARED = {"argparse", "asyncio", "secrets", "scipy", "ssl"}

PROGRAM = """
import sys
import atomr_native as an

with an.System(standby="off") as system:
    device = system.device("host")
    device.put([1.0]).numpy()
print(*sys.modules)
"""

WORKER = """
import socket, sys
from atomr_native.worker import __main__ as start

class Loop:
    def __init__(self, *arguments, **options):
        pass

    def post_log(self, message):
        return True

    def run(self):
        print(*sys.modules)
        return 0

start.WorkerLoop = Loop
ours, theirs = socket.socketpair()
start.main(["--control-fd", str(theirs.detach()), *sys.argv[1:]])
"""


def modules_of(code: str, *arguments: str) -> set[str]:
    command = [sys.executable, "-c", code, *arguments]
    return set(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split())


BUILDERS = {
    f"atomr_native.libraries.{library.name}.{operation.host.partition(':')[0]}"
    for library, operation in OPERATIONS.values()
    if operation.host
}


def test_a_program_loads_no_more_than_it_uses() -> None:
    assert not modules_of(PROGRAM) & SPARED


def test_a_worker_loads_builders_at_their_first_use() -> None:
    loaded = modules_of(WORKER)
    assert {"numpy", "atomr_native._lib.lanes"} <= loaded
    assert not loaded & (SPARED | BUILDERS | {"hashlib", "threadpoolctl", "atomr_native.builders.cuda"})


def test_a_standby_loads_all_builders_ahead_of_time() -> None:
    assert modules_of(WORKER, "--warm", "host") >= BUILDERS
