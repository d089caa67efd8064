"""Workers that are forked from a process which has imported them: Python with NumPy takes 0.3 s of a processor.

`install` has ordinary workers of this process start so; others start as programs' workers do: those with a prefix,
another module or thread count, and the first with an environment that no process is prepared for.  A forked worker is
a child of this process, in a session of its own, with its limits, processors and folder, as if it had started it.

``ATOMR_TESTS_FORK=0`` switches it off.  It is not used where tests are about the start of workers (`STARTED` in
tests/conftest.py), nor beside a GPU, where this process could not share memory with forked workers.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["install", "kept_descriptors", "kept_processes"]

_MODULE: Final = "atomr_native.worker"
_FDS: Final = ("--control-fd", "--parent-pidfd")
#: Read by the worker while it runs, so they may differ from those of the process that it is forked from.
_READ_LATER: Final = ("ATOMR_NATIVE_", "FAKE_CUDA_", "PYTEST_", "TMPDIR", "CUDA_VISIBLE_DEVICES")
#: Threads of BLAS do not survive a fork.
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "1")
_LIMITS: Final = (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_CORE)
_CLONE_PARENT: Final = 0x8000
_SYS_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_AT_MOST: Final = 3  # prepared processes
#: Modules that workers import when they are first used.
_LATER: Final = (
    "atomr_native.worker.cuda.device", "scipy.fft", "scipy.linalg", "scipy.sparse.linalg", "scipy.special",
)  # fmt: skip

_Key = tuple[tuple[str, str], ...]


class _Prepared:
    """A process that has imported the worker, and forks it on demand."""

    def __init__(self, environment: Mapping[str, str], flags: Sequence[str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *flags, str(Path(__file__).resolve()), str(theirs.fileno())],
                env=dict(environment), stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip
        self._socket = ours
        self._lock = threading.Lock()
        self.pid, self.fd = self._process.pid, ours.fileno()

    def fork(self, request: dict[str, Any], fds: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            return int(self._socket.recv(64))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


class _Starter:
    """Stands in for `subprocess` in the module that starts workers."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.seen: set[_Key] = set()
        self.prepared: dict[_Key, _Prepared] = {}
        self._preparing = threading.Lock()
        atexit.register(self._close)

    def _close(self) -> None:
        if os.getpid() == self.owner:
            for each in self.prepared.values():
                each.close()
            self.prepared.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: list[str], **given: Any) -> subprocess.Popen[bytes]:  # noqa: N802
        found = self._find(command, given["env"])
        try:
            folder = os.getcwd()
        except FileNotFoundError:
            found = None
        if found is None:
            return subprocess.Popen(command, **given)
        options = command[command.index(_MODULE) + 1 :]
        places = [place + 1 for place, option in enumerate(options) if option in _FDS]
        request = {
            "options": options, "places": places, "environment": given["env"], "folder": folder,
            "processors": sorted(os.sched_getaffinity(0)), "limits": [resource.getrlimit(kind) for kind in _LIMITS],
        }  # fmt: skip
        pid = found.fork(request, [given["stdout"], *(int(options[place]) for place in places)])
        return _adopted(command, pid)

    def _find(self, command: list[str], environment: Mapping[str, str]) -> _Prepared | None:
        if command[0] != sys.executable or _MODULE not in command or os.getpid() != self.owner:
            return None
        if (environment.get(_ONE_THREAD[0]), "1") != (_ONE_THREAD[1], "1"):
            return None
        fixed = {name: value for name, value in environment.items() if not name.startswith(_READ_LATER)}
        key = tuple(sorted(fixed.items()))
        with self._preparing:
            if key not in self.prepared:
                if key not in self.seen or len(self.prepared) == _AT_MOST:
                    self.seen.add(key)
                    return None
                self.prepared[key] = _Prepared(fixed, command[1 : command.index("-m")])
            return self.prepared[key]


def _adopted(command: list[str], pid: int) -> subprocess.Popen[bytes]:
    """Return what `subprocess.Popen` returns for a child that is there already."""
    made: Any = subprocess.Popen.__new__(subprocess.Popen)
    made.args, made.pid, made.returncode = command, pid, None
    made.stdin = made.stdout = made.stderr = None
    made._child_created, made._waitpid_lock = True, threading.Lock()
    made._input, made._communication_started = None, False
    made.text_mode = None
    return made  # type: ignore[no-any-return]


_starter: _Starter | None = None


def kept_processes() -> set[int]:
    """Prepared processes, which stay until the tests end."""
    return {each.pid for each in _starter.prepared.values()} if _starter else set()


def kept_descriptors() -> set[int]:
    """Descriptors of their sockets."""
    return {each.fd for each in _starter.prepared.values()} if _starter else set()


@contextlib.contextmanager
def install() -> Iterator[None]:
    """Have workers that are started meanwhile be forked."""
    global _starter
    from atomr_native.runtime.listing import has_gpu
    from atomr_native.runtime.placement import process

    module: Any = process
    if os.environ.get("ATOMR_TESTS_FORK") == "0" or os.uname().machine not in _SYS_CLONE or has_gpu():
        yield
        return
    _starter = _starter or _Starter()
    real = module.subprocess
    module.subprocess = _starter
    try:
        yield
    finally:
        module.subprocess = real


# ------------------------------------------------------------------------------------------ the prepared process


def _fork_sibling() -> int:
    """Fork a child of this process's parent; as `os.fork`, 0 in the child.  There must be no other thread."""
    libc, python = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid: int = libc.syscall(_SYS_CLONE[os.uname().machine], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """Turn into the worker."""
    from atomr_native.worker.__main__ import main

    output, *given = fds
    os.setsid()
    for fd in (1, 2):
        os.dup2(output, fd)
    os.close(output)
    options = list(request["options"])
    for place, fd in zip(request["places"], given, strict=True):
        options[place] = str(fd)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["processors"])
    for kind, limits in zip(_LIMITS, request["limits"], strict=True):
        resource.setrlimit(kind, tuple(limits))
    main(options)


def _serve(fd: int) -> None:
    import gc
    import importlib

    from atomr_native.libraries import load_builders
    from atomr_native.worker import __main__ as worker

    for name in (*worker._PRELOAD, *_LATER):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for kind in ("host", "cuda"):
        with contextlib.suppress(ImportError):
            load_builders(kind)
    gc.freeze()
    channel = socket.socket(fileno=fd)
    channel.set_inheritable(False)
    while True:
        data, fds, _, _ = socket.recv_fds(channel, 1 << 20, 8)
        if not data:
            return
        pid = _fork_sibling()
        if pid == 0:
            channel.close()
            _become(json.loads(data), fds)
        for each in fds:
            os.close(each)
        channel.send(str(pid).encode())


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: a worker does not see it either
    _serve(int(sys.argv[1]))
