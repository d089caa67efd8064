"""Start of a worker process: ``python -P -m atomr_native.worker --control-fd N``.

Started by `atomr_native.runtime.placement`, never by hand.  Every restart waits for this, so it imports as little as it
can: builders are imported with the first plan that needs them, or ahead of time in a standby.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from ..libraries import load_builders
from . import logs
from .contracts import Builders, LanesFactory
from .loop import WorkerLoop

__all__ = ["main"]

#: Imported before the worker reports that it is ready, so a standby has loaded everything.
_PRELOAD = ("numpy", "ml_dtypes", "atomr_native._lib.lanes")
_USAGE: Final = """\
usage: python -m atomr_native.worker --control-fd FD [--parent-pidfd FD] [--warm DEVICE] [--hot UUID]

A worker of atomr_native; an atomr_native.System starts it.

  --control-fd FD    one end of an AF_UNIX stream socket pair
  --parent-pidfd FD  a pidfd of the parent
  --warm DEVICE      prepare for this device, as a standby
  --hot UUID         with --warm: also open the device with this UUID
"""


class _Options:
    """The options of the command line.  Its parser is small, since argparse would cost every start milliseconds."""

    def __init__(self, arguments: Sequence[str]) -> None:
        given = dict(zip(arguments[::2], arguments[1::2], strict=False))
        try:
            self.control_fd = int(given.pop("--control-fd"))
            self.parent_pidfd = int(given.pop("--parent-pidfd", "-1"))
            self.warm = given.pop("--warm", "")
            self.hot = given.pop("--hot", "")
        except (KeyError, ValueError):
            given["wrong"] = ""
        if given or len(arguments) % 2:
            sys.stderr.write(_USAGE)
            raise SystemExit(2)


def main(
    arguments: Sequence[str] | None = None,
    *,
    lanes_factory: LanesFactory | None = None,
    builders: Builders | None = None,
) -> NoReturn:
    """Serve one parent until it closes the socket or dies; exit by ``_exit``."""
    options = _Options(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")  # all ranks are on this machine
    status = 1
    try:
        for fd in (options.control_fd, options.parent_pidfd):
            if fd >= 0:
                os.set_inheritable(fd, False)
        for name in _PRELOAD:
            # A missing library is reported on use, as the typed answer to a request.
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        importlib.import_module("atomr_native.libraries.blas_lt.host.threads").adopt_process()
        context: Any = None
        if options.warm.startswith("cuda:"):
            # A standby whose driver refuses is useless: it ends here, and the next worker starts from scratch.
            standby = importlib.import_module("atomr_native.worker.cuda.standby")
            standby.warm_up()
            context = standby.heat_up(int(options.warm[5:]), options.hot) if options.hot else None
        elif options.warm:
            with contextlib.suppress(ImportError):
                load_builders("host")
        gc.freeze()  # modules and classes live as long as the process: no collection need look at them
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
