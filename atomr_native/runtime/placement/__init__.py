"""Placement of a worker: in a separate process, or in a thread of this one.

Both kinds have the same life cycle and the same control protocol; see `Worker`.  `thread.ThreadWorker` is not imported
here: it imports the worker's modules, which a program with worker processes has no use for.
"""

from __future__ import annotations

from .environment import WORKER_MODULE, worker_command, worker_environment
from .process import ProcessWorker
from .standby import StandbyPool
from .worker import Worker

__all__ = [
    "WORKER_MODULE",
    "ProcessWorker",
    "StandbyPool",
    "Worker",
    "worker_command",
    "worker_environment",
]
