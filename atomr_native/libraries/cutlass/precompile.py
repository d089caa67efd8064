"""Kernels ahead of time: ``python -m atomr_native cutlass precompile``, from a list of requests or a recording."""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from types import FunctionType
from typing import Any, Final, NamedTuple

from ...errors import AtomrError, InvalidRequest
from ...plans.spec import PlanSpec
from .attributes import ConvolutionAttributes, GemmAttributes
from .code import GemmCode, compiled_kernels
from .recording import VARIABLE

__all__ = ["Wanted", "main", "precompile", "read_recording", "wanted_of"]

_INTERRUPTED: Final = 130


class Wanted(NamedTuple):
    """A plan whose kernel is to be compiled.

    Attributes
    ----------
    spec : PlanSpec
    functions : tuple of function
        The Python functions of its epilogue.
    """

    spec: PlanSpec[GemmAttributes]
    functions: tuple[FunctionType, ...]

    def __str__(self) -> str:
        arrays = ", ".join(f"{one.name} {one.dtype} {one.shape}" for one in self.spec.operands)
        return f"{self.spec.op}: {arrays}"


def wanted_of(requests: Iterable[Any]) -> Iterator[Wanted]:
    """Yield what requests want; their arrays may be of NumPy.

    Raises
    ------
    InvalidRequest
        For an item that is no request of CUTLASS.
    """
    if not isinstance(requests, Iterable):
        raise InvalidRequest(f"the list is a {type(requests).__name__}; allowed: an iterable of requests")
    for index, request in enumerate(requests):
        lowered: Any = getattr(request, "lowered", None)
        code = getattr(lowered, "code", None)
        if not isinstance(code, GemmCode):
            raise InvalidRequest(
                f"item {index} is a {type(request).__name__}; allowed: GemmRequest, GroupedGemmRequest, "
                "FusedConvolutionRequest"
            )
        yield Wanted(lowered.spec(), code.functions)


def read_recording(path: str) -> Iterator[Wanted]:
    """Yield the plans of a recording, each once.

    Functions of epilogues are pickled: read only files that you trust.

    Raises
    ------
    InvalidRequest
        For a line that no recording has.
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(dict.fromkeys(file), 1):
            try:
                found = json.loads(line)
                spec = PlanSpec.from_json(found["spec"], _attributes(found["spec"]))
                functions = tuple(pickle.loads(base64.b64decode(one)) for one in found["functions"])  # noqa: S301
            except (ValueError, LookupError, TypeError, pickle.UnpicklingError) as error:
                raise InvalidRequest(f"line {number} of {path} is {line[:80]!r}: {error}; allowed: lines that "
                                     f"{VARIABLE} has recorded") from None  # fmt: skip
            yield Wanted(spec, functions)


def _attributes(spec: Any) -> type[GemmAttributes]:
    """Return the type of the attributes of a recorded specification."""
    return ConvolutionAttributes if spec["op"] == "cutlass.convolution" else GemmAttributes


def precompile(
    wanted: Sequence[Wanted], capability: tuple[int, int], cancel: threading.Event | None = None
) -> Iterator[tuple[Wanted, float, BaseException | None]]:
    """Compile kernels, as many at once as there are processors; yield each when it is done.

    Parameters
    ----------
    wanted : sequence of Wanted
    capability : tuple of int
        Compute capability of the GPU that will run them.
    cancel : threading.Event, optional
        Ends the compilations when it is set.

    Yields
    ------
    Wanted
    float
        Seconds since the first was begun.
    BaseException or None
        Why it has no kernel.
    """
    began = time.monotonic()
    event = threading.Event() if cancel is None else cancel
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0))), "atomr-precompile") as pool:
        jobs: dict[Future[Any], Wanted] = {
            pool.submit(compiled_kernels, one.spec, one.functions, capability, event): one for one in wanted
        }
        try:
            for job in as_completed(jobs):
                yield jobs[job], time.monotonic() - began, job.exception()
        except BaseException:
            event.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _list(source: str) -> list[Wanted]:
    """Return what a recording, or a list ``module:name``, wants."""
    module, colon, name = source.rpartition(":")
    if not colon or os.path.exists(source):
        return list(read_recording(source))
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(f"the list {source!r} cannot be read: {error}; allowed: module:name, a file") from None
    return list(wanted_of(found() if callable(found) else found))


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    if not major.isdecimal() or not minor.isdecimal() or int(major) < 8:
        raise argparse.ArgumentTypeError(f"{text!r} is no compute capability; allowed: 8.0 and later, as in 9.0")
    return int(major), int(minor)


def main(argv: Sequence[str]) -> int:
    """Run a command of CUTLASS; returns 0, 1 if a kernel does not compile, 2 for a list that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m atomr_native cutlass")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser(
        "precompile",
        help="compile kernels into the cache on disk",
        description="Compile kernels into the cache on disk, where programs find them.  Needs no GPU.",
    )
    one.add_argument("lists", nargs="+", metavar="list", help=f"module:name of requests, or a file of {VARIABLE}")
    one.add_argument("--capability", type=_capability, default=(9, 0), help="compute capability of the GPU (9.0)")
    options = parser.parse_args(argv)
    try:
        wanted = [item for source in options.lists for item in _list(source)]
    except (AtomrError, OSError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 2
    failed = 0
    try:
        for done, (item, seconds, problem) in enumerate(precompile(wanted, options.capability), 1):
            sys.stdout.write(f"[{done}/{len(wanted)}] {seconds:6.1f} s  {item}\n")
            sys.stdout.flush()
            if problem is not None:
                failed += 1
                sys.stderr.write(f"{type(problem).__name__}: {problem}\n")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was compiled stays in the cache\n")
        return _INTERRUPTED
    return 1 if failed else 0
