"""Where a worker lives: a process of its own, or a thread of this one.

Both kinds have the same life and speak the same control protocol; see `Worker`.
"""

from __future__ import annotations

from ._environment import WORKER_MODULE, worker_command, worker_environment
from ._process import ProcessWorker
from ._standby import StandbyPool
from ._thread import ThreadWorker
from ._worker import Worker

__all__ = [
    "WORKER_MODULE",
    "ProcessWorker",
    "StandbyPool",
    "ThreadWorker",
    "Worker",
    "worker_command",
    "worker_environment",
]
