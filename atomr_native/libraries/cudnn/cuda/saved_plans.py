"""Plans of cuDNN on disk: a later process takes the engine and its code from there, and asks no heuristics."""

from __future__ import annotations

import array
import hashlib
import logging
from typing import Any, Final

import msgspec

from ...._lib.cudnn import GraphPlan
from ...._support.disk_cache import cached, discard
from ....errors import Unsupported
from .descriptors import GraphDescription

__all__ = ["saved_plan"]

_log = logging.getLogger("atomr_native")
_KIND: Final = "cudnn"
#: Raised with every change of the records, and of how a graph becomes a plan.
_FORMAT: Final = 2


class _Match(msgspec.Struct, frozen=True):
    """Everything that a record must match.

    Attributes
    ----------
    format : int
    cudnn : int
        Version of the library.
    driver : int
        Version of CUDA that the driver has.
    device : tuple
        Name, compute capability and number of multiprocessors.
    key : str
        Digest of the graph and of the rules by which its engine was chosen.
    """

    format: int
    cudnn: int
    driver: int
    device: tuple[str, int, int, int]
    key: str


class _Head(msgspec.Struct, frozen=True):
    """The first line of a record; the plan's text follows."""

    match: _Match
    engine: int


class _NotSaved(Exception):
    """cuDNN has no text of a plan."""


def _match(backend: Any, description: GraphDescription, version: int) -> _Match:
    facts = backend.facts()
    digest = hashlib.sha256(array.array("q", description.words).tobytes())
    digest.update(b"%d %d %d" % (description.banned, description.workspace_limit, description.only))
    device = (str(facts["name"]), *facts["compute_capability"], int(facts["multiprocessors"]))
    return _Match(_FORMAT, version, int(facts["driver_version"]), device, digest.hexdigest())


def _loaded(backend: Any, description: GraphDescription, match: _Match, record: bytes) -> GraphPlan | None:
    """Return the plan of a record, or None if the record is not of this graph, or cuDNN refuses it."""
    line, _, text = record.partition(b"\n")
    try:
        head = msgspec.json.decode(line, type=_Head)
        if head.match == match and text:
            return GraphPlan(backend, description, text, head.engine)
        reason = "it is of another graph, library or device"
    except msgspec.DecodeError as error:
        reason = str(error)
    except Unsupported as error:
        if error.rule != "cudnn.saved_plan":
            raise
        reason = error.message
    _log.warning("a plan of cuDNN on disk is not used, and made again: %s", reason)
    return None


def saved_plan(backend: Any, description: GraphDescription, version: int) -> GraphPlan:
    """Return the plan of a description: from the disk, or newly built and kept there.

    Processes that want the same plan at the same time build it once.  A record that is damaged, or of another version
    of cuDNN, CUDA driver, device, format or graph, is not used, and is replaced.

    Parameters
    ----------
    backend : CudaBackend
    description : GraphDescription
    version : int
        Of cuDNN.

    Raises
    ------
    Unsupported, OutOfMemory, LibraryError
        As `GraphPlan`.
    """
    match = _match(backend, description, version)
    parts = (msgspec.json.encode(match),)
    built: list[GraphPlan] = []

    def make() -> bytes:
        built.append(GraphPlan(backend, description))
        text = built[0].save()
        if not text:
            raise _NotSaved
        return msgspec.json.encode(_Head(match, built[0].engine)) + b"\n" + text

    for _ in range(2):
        try:
            record = cached(_KIND, parts, make)
        except _NotSaved:
            break
        found = built[0] if built else _loaded(backend, description, match, record)
        if found is not None:
            return found
        discard(_KIND, parts)
    return built[0] if built else GraphPlan(backend, description)
