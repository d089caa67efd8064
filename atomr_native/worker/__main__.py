"""Start of a worker process: ``python -P -m atomr_native.worker --control-fd N``.

Started by `atomr_native.runtime.placement`, never by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from ..libraries import load_builders
from . import logs
from .contracts import Builders, LanesFactory
from .loop import WorkerLoop

__all__ = ["main"]

#: Imported before the worker reports that it is ready, so a standby has loaded everything.
_PRELOAD = ("numpy", "ml_dtypes", "atomr_native._lib.lanes")


def main(
    arguments: Sequence[str] | None = None,
    *,
    lanes_factory: LanesFactory | None = None,
    builders: Builders | None = None,
) -> NoReturn:
    """Serve one parent until it closes the socket or dies; exit by ``_exit``."""
    parser = argparse.ArgumentParser(
        prog="python -m atomr_native.worker", description="A worker of atomr_native; an atomr_native.System starts it."
    )
    parser.add_argument("--control-fd", type=int, required=True, help="one end of an AF_UNIX stream socket pair")
    parser.add_argument("--parent-pidfd", type=int, default=-1, help="a pidfd of the parent")
    parser.add_argument("--warm", default="", help="prepare for this device, as a standby")
    parser.add_argument("--hot", default="", metavar="UUID", help="with --warm: also open the device with this UUID")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    status = 1
    try:
        for fd in (options.control_fd, options.parent_pidfd):
            if fd >= 0:
                os.set_inheritable(fd, False)
        for name in _PRELOAD:
            # A missing library is reported on use, as the typed answer to a request.
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        with contextlib.suppress(ImportError):
            if not options.warm.startswith("cuda:"):
                load_builders("host")
            importlib.import_module("atomr_native.libraries.blas_lt.host.threads").adopt_process()
        context = None
        if options.warm.startswith("cuda:"):
            # A standby whose driver refuses is useless: it ends here, and the next worker starts from scratch.
            standby = importlib.import_module("atomr_native.worker.cuda.standby")
            standby.warm_up()
            context = standby.heat_up(int(options.warm[5:]), options.hot) if options.hot else None
        with socket.socket(fileno=options.control_fd) as sock:
            loop = WorkerLoop(
                sock,
                placement="process",
                lanes_factory=lanes_factory,
                builders=builders,
                parent_pidfd=options.parent_pidfd,
                context=context,
            )
            logs.install(loop.post_log)
            status = loop.run()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # Threads of lanes and libraries may be running: no interpreter shutdown, no destructors.
        os._exit(status)


if __name__ == "__main__":
    main()
