"""Contractions for which cuTENSOR compiles a kernel; it is kept on disk for later processes."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Final

from msgspec.json import encode

from ...._lib import cutensor
from ...._lib.cutensor import TensorOperation
from ...._support.disk_cache import cached, discard
from ....builders.cuda.context import CudaContext, library_file
from ....errors import Unsupported
from .cutensor import TensorCall

__all__ = ["compiled_operation"]

_log = logging.getLogger("atomr_native.worker")
_KIND: Final = "cutensor"
#: Raised with every change of the records.
_FORMAT: Final = 1


class _NotSaved(Exception):
    """cuTENSOR has written no kernels."""


def _written(context: CudaContext) -> bytes:
    """Return the file of the kernels that have been compiled."""
    with tempfile.TemporaryDirectory(prefix="atomr-cutensor-") as folder:
        path = Path(folder, "kernels")
        cutensor.write_kernels(context.backend, str(path))
        return path.read_bytes() if path.exists() else b""


def _read(context: CudaContext, record: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="atomr-cutensor-") as folder:
        path = Path(folder, "kernels")
        path.write_bytes(record)
        cutensor.read_kernels(context.backend, str(path))


def compiled_operation(context: CudaContext, call: TensorCall) -> TensorOperation:
    """Return an operation with a kernel of its own, from the disk, or newly compiled and kept there.

    Waits for the compiler, some seconds, in the thread that builds plans; no graph is captured there.  Processes that
    want the same kernel at the same time compile it once.  A record that is damaged, or that cuTENSOR refuses, is made
    again.

    Raises
    ------
    Unsupported, OutOfMemory, LibraryError
        As `TensorOperation`.
    """
    library_file("nvrtc")  # which cuTENSOR opens by its name
    backend, facts = context.backend, context.backend.facts()
    match = (
        _FORMAT, cutensor.load(), cutensor.cuda_version(), int(facts["driver_version"]), str(facts["name"]),
        list(facts["compute_capability"]), int(facts["multiprocessors"]),
    )  # fmt: skip
    parts = (encode(match), encode(call.fields()))
    made: list[TensorOperation] = []

    def make() -> bytes:
        made.append(TensorOperation(backend, call))
        try:
            record = _written(context)
        except (Unsupported, OSError) as error:
            raise _NotSaved(str(error)) from None
        if not record:
            raise _NotSaved("it has compiled none")
        return record

    for _ in range(2):
        try:
            record = cached(_KIND, parts, make)
        except _NotSaved as error:
            _log.info("kernels of cuTENSOR are not kept on disk: %s", error)
            return made[0] if made else TensorOperation(backend, call)
        if made:
            break
        try:
            _read(context, record)
            break
        except (Unsupported, OSError) as error:
            _log.warning("kernels of cuTENSOR on disk are not used, and compiled again: %s", error)
            discard(_KIND, parts)
    return made[0] if made else TensorOperation(backend, call)
