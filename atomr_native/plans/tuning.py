"""Tuning results: one small file per entry in the cache directory, and files to ship.

An entry is the result for one operation on one kind of GPU with one version of a library.  The store does not know
operations: an entry's key contains the digest of a specification, and its value is any JSON. Each entry has a checksum,
and is written completely or not at all.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeGuard

from .._support.disk_cache import cache_directory, write_whole
from .._support.locks import exclusive
from ..errors import InvalidRequest

__all__ = [
    "Entry",
    "ProgressBar",
    "Tuned",
    "TuningKey",
    "TuningStore",
    "as_progress",
    "read_file",
    "spec_digest",
    "write_file",
]

_FORMAT: Final = "atomr-native tuning 2"
_LARGEST: Final = 64 << 20
_log = logging.getLogger("atomr_native")
#: Damaged files that have been named.
_damaged: set[Path] = set()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _digest(value: object) -> str:
    import hashlib  # at first use, since it loads OpenSSL

    return hashlib.sha256(_canonical(value)).hexdigest()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parsed(data: bytes) -> Any:
    """Return JSON.

    Raises
    ------
    ValueError
        If it is not JSON, contains infinities, or is nested too deeply.
    """
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _checksum(entry: Mapping[str, Any]) -> str:
    return _digest({k: v for k, v in entry.items() if k != "checksum"})


def spec_digest(spec: object) -> str:
    """Return the digest of a specification (any JSON) for a `TuningKey`."""
    return _digest(spec)


@dataclass(frozen=True, slots=True)
class TuningKey:
    """The problem that a result belongs to.

    Attributes
    ----------
    library : str
        ``"cublaslt"``, for example.
    version : int
        The library's own version number.
    gpu : dict
        The properties that distinguish kinds of GPUs, any JSON.
    operation : str
        ``"blas_lt.matmul"``, for example.
    spec : str
        See `spec_digest`.
    """

    library: str
    version: int
    gpu: dict[str, Any]
    operation: str
    spec: str

    @property
    def digest(self) -> str:
        """The name of the entry."""
        return _digest([_FORMAT, asdict(self)])


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of measuring candidates.

    Attributes
    ----------
    choice : tuple of int
        The fastest candidate, in the operation's encoding.
    workspace : int
        Bytes of workspace that it needs.
    microseconds, heuristic_microseconds : float
        Times of the fastest candidate, and of the heuristic's first choice: from memory, or the geometric mean of that
        and the time from the cache where the operands fit into it.
    config : dict
        The choice in readable form.
    """

    choice: tuple[int, ...]
    workspace: int
    microseconds: float
    heuristic_microseconds: float
    config: dict[str, Any]

    @classmethod
    def from_json(cls, value: object) -> Tuned | None:
        """Return the object from its `asdict` form, or None if the value is not one."""
        if not isinstance(value, dict) or value.keys() != {field.name for field in fields(cls)}:
            return None
        kinds = {"choice": list, "workspace": int, "config": dict}
        for name, part in value.items():
            if not isinstance(part, kinds.get(name, (int, float))) or isinstance(part, bool):
                return None
        if not all(type(word) is int for word in value["choice"]):
            return None
        return cls(**{**value, "choice": tuple(value["choice"])})

    def __str__(self) -> str:
        config = ", ".join(f"{name} {value}" for name, value in sorted(self.config.items()))
        heuristic = f"{self.heuristic_microseconds:.1f} us by the heuristic's choice"
        return f"tuned: {self.microseconds:.1f} us, {heuristic}; {config}"


#: A key and its value.
Entry = tuple[TuningKey, Any]


def _dumped(key: TuningKey, value: Any) -> dict[str, Any]:
    entry = {**asdict(key), "value": value}
    return {**entry, "checksum": _checksum(entry)}


def _is_whole(entry: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(entry, dict) and entry.get("checksum") == _checksum(entry)


def _loaded(entry: dict[str, Any]) -> Entry | None:
    """Return an entry with a correct checksum, or None if it is malformed."""
    kinds = {"library": str, "version": int, "gpu": dict, "operation": str, "spec": str}
    if "value" not in entry or any(type(entry.get(name)) is not kind for name, kind in kinds.items()):
        return None
    return TuningKey(**{name: entry[name] for name in kinds}), entry["value"]


class TuningStore:
    """Entries on disk, under the cache directory.

    Parameters
    ----------
    folder : Path, optional
        ``tuning`` in the cache directory by default.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_directory() / "tuning"

    def _path(self, key: TuningKey) -> Path:
        digest = key.digest
        return self.folder / digest[:2] / f"{digest}.json"

    def find(self, key: TuningKey) -> Any:
        """Return the value of a key, or None if there is no sound entry."""
        found = _read(self._path(key))
        return found[1] if found is not None and found[0] == key else None

    def keep(self, key: TuningKey, value: Any) -> None:
        """Write an entry, completely or not at all.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        write_whole(self._path(key), _canonical(_dumped(key, value)))

    @contextlib.contextmanager
    def single_flight(self, key: TuningKey) -> Iterator[None]:
        """Hold the measuring lock of a key, among all processes with this cache.

        After two minutes, or if the cache cannot be written, a caller proceeds without it.
        """
        with exclusive(self.folder, key.digest):
            yield

    def entries(self, operation: str) -> Iterator[Entry]:
        """Yield every sound entry of an operation."""
        for path in sorted(self.folder.glob("*/*.json")):
            found = _read(path)
            if found is not None and found[0].operation == operation:
                yield found


def _read(path: Path) -> Entry | None:
    """Return the entry of a file, or None; of a damaged one a process says so once."""
    found = None
    with contextlib.suppress(ValueError):
        try:
            entry = _parsed(path.read_bytes())
        except OSError:
            return None
        found = _loaded(entry) if _is_whole(entry) else None
    if found is None and path not in _damaged:
        _damaged.add(path)
        _log.warning("the tuning result %s is damaged and not used; tuning measures it again", path)
    return found


def write_file(path: Path, entries: Iterable[Entry]) -> None:
    """Write a tuning file to ship."""
    body = {"format": _FORMAT, "entries": [_dumped(key, value) for key, value in entries]}
    write_whole(path, json.dumps({**body, "checksum": _checksum(body)}, indent=1, sort_keys=True).encode() + b"\n")


def read_file(
    path: Path,
    operation: str,
    is_sound: Callable[[Any], bool],
    older: Mapping[str, Callable[[dict[str, Any]], Entry | None]],
) -> list[Entry]:
    """Read a tuning file.

    Parameters
    ----------
    path : Path
    operation : str
        The operation that all entries must have.
    is_sound : callable
        Validates a value of that operation; files come from anywhere.
    older : dict
        Older formats of the operation, by name: functions that convert an entry of such a file, or return None if it is
        malformed.

    Raises
    ------
    InvalidRequest
        If it is not a tuning file, is damaged, or has another format or operation.
    """
    if path.stat().st_size > _LARGEST:
        raise InvalidRequest(f"{path} has {path.stat().st_size} bytes; a tuning file has at most {_LARGEST}")
    try:
        body = _parsed(path.read_bytes())
    except ValueError as error:
        raise InvalidRequest(f"{path} is not a tuning file: {error}") from None
    loaders = {_FORMAT: _loaded, **older}
    form = body.get("format") if isinstance(body, dict) else type(body).__name__
    if not isinstance(body, dict) or not isinstance(form, str) or form not in loaders:
        raise InvalidRequest(f"{path} has format {form!r}; allowed: {', '.join(map(repr, loaders))}")
    listed = body.get("entries")
    if not _is_whole(body) or not isinstance(listed, list):
        raise InvalidRequest(f"{path} is damaged: its checksum is wrong; export it again")
    entries = []
    for index, entry in enumerate(listed):
        found = loaders[form](entry) if _is_whole(entry) else None
        if found is not None and found[0].operation != operation:
            raise InvalidRequest(f"{path} has an entry of {found[0].operation!r}; allowed: {operation!r}")
        if found is None or not is_sound(found[1]):
            raise InvalidRequest(f"{path} is damaged: entry {index} is not sound; export it again")
        entries.append(found)
    return entries


class ProgressBar:
    """A progress bar in the terminal, from the first reported step to the last one, or `close`.

    Parameters
    ----------
    title : str
        The object of tuning.
    """

    def __init__(self, title: str) -> None:
        from rich.progress import Progress

        self._title = title
        self._bar = Progress()
        self._task = self._bar.add_task(title)

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show the progress of tuning, and the last measured candidate."""
        self._bar.start()
        self._bar.update(self._task, completed=done, total=total, description=f"{self._title}: {what[:40]}")
        if done >= total:
            self._bar.stop()

    def close(self) -> None:
        """Stop the bar in its current state."""
        self._bar.stop()


def as_progress(wanted: object, title: str) -> Callable[[int, int, str], object]:
    """Return the progress callback: the given function, or a bar with a title.

    Raises
    ------
    InvalidRequest
        If it is neither a function nor True.
    """
    if callable(wanted):
        return wanted
    if wanted is not True:
        raise InvalidRequest(f"progress={wanted!r}; allowed: True, False, None, or a function of (done, total, what)")
    return ProgressBar(title)
