"""Workers of `fake_worker`, started as the library starts them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wire import until

import atomr_native
from atomr_native.protocol.messages import ABI, package_version
from atomr_native.runtime.placement import ProcessWorker, Worker, worker_environment

HELPERS = Path(__file__).resolve().parent
ROOT = Path(atomr_native.__file__).resolve().parents[1]


def worker_variables(**extra: str) -> dict[str, str]:
    """Return the environment of a worker process that runs `fake_worker`."""
    base = {**os.environ, **extra}
    base["PYTHONPATH"] = os.pathsep.join([str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return worker_environment(base)


def start_worker(**extra: str) -> ProcessWorker:
    """Start such a worker."""
    return ProcessWorker.start("host", worker_variables(**extra), module="fake_worker")


def initialise(worker: Worker, **config: Any) -> dict[str, Any]:
    """Tell a worker what it works on; its answer."""
    p = os.memfd_create("p", os.MFD_CLOEXEC)
    os.write(p, b"ring".ljust(8192, b"\0"))
    try:
        answer = worker.client.request(
            "init", (p,), version=package_version(), abi=ABI, placement="process", config=config, timeout=20
        )
    finally:
        os.close(p)
    os.close(answer.take_fd())
    return answer.fields


def pump_until(worker: Worker, condition: Callable[[], object], seconds: float = 30.0) -> bool:
    """Wait for a condition, and serve the worker meanwhile; whether it came true."""

    def step() -> object:
        worker.pump()
        return condition()

    return until(step, seconds)
