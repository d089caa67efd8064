"""Machine code and other bytes of plans: the specification has their digest, and each worker gets the bytes once.

A specification is small JSON. Bytes appear in it as ``{"sha256": ..., "nbytes": ...}``, and are sent in the blob of the
first request that needs them.  The worker keeps them for further plans.  The program decides which bytes the worker
drops, so both know the kept ones: requests for plans are served in the order of sending.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from .._lib.guard import Lock
from ..errors import InvalidRequest
from .typed import decode

__all__ = ["Binary", "KeptBinaries", "SentBinaries"]

#: Maximum bytes that a worker keeps, besides those of the last plan.
_LIMIT: Final = 256 << 20


class Binary:
    """Bytes in a plan's specification, compared by digest.  Immutable.

    Parameters
    ----------
    data : bytes

    Attributes
    ----------
    digest : str
        SHA-256, hexadecimal.
    """

    __slots__ = ("data", "digest")

    def __init__(self, data: bytes) -> None:
        import hashlib  # loads OpenSSL, which a worker of plans without binaries does not need

        self.data = data
        self.digest = hashlib.sha256(data).hexdigest()

    @property
    def reference(self) -> dict[str, Any]:
        """Its representation in a specification's JSON."""
        return {"sha256": self.digest, "nbytes": len(self.data)}

    @staticmethod
    def is_reference(value: object) -> bool:
        """Whether JSON is a reference to a binary."""
        return isinstance(value, dict) and value.keys() == {"sha256", "nbytes"}

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Binary) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Binary(digest={self.digest!r})"


class _Reference(Struct, frozen=True, forbid_unknown_fields=True):
    """A binary's place in a specification's JSON."""

    sha256: str
    nbytes: Annotated[int, Meta(ge=0)]


class SentBinaries:
    """The program's record of the binaries kept by one worker.

    The lock is held from `prepare` until the request is sent, so that no request overtakes the bytes that it needs.

    Parameters
    ----------
    limit : int
        Maximum bytes that the worker keeps.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self.lock = Lock()
        self._limit = limit
        self._kept: OrderedDict[str, int] = OrderedDict()  # bytes by digest, least recently used first
        self._doubted: deque[str] = deque()

    def prepare(self, binaries: Iterable[Binary]) -> tuple[list[Binary], list[str]]:
        """Return the bytes to send with a request for these binaries, and the digests that the worker drops."""
        needed = {binary.digest: binary for binary in binaries}
        forgotten = []
        while self._doubted:
            digest = self._doubted.popleft()
            self._kept.pop(digest, None)
            if digest not in needed:
                forgotten.append(digest)
        sending = [binary for digest, binary in needed.items() if digest not in self._kept]
        for digest, binary in needed.items():
            self._kept[digest] = len(binary.data)
            self._kept.move_to_end(digest)
        excess = sum(self._kept.values()) - self._limit
        for digest in list(self._kept):
            if excess <= 0 or digest in needed:
                break
            excess -= self._kept.pop(digest)
            forgotten.append(digest)
        return sending, forgotten

    def doubt(self, digests: Iterable[str]) -> None:
        """Note that the worker may keep these or not, since their request has failed.  Any thread; does not wait.

        They are sent again when they are needed, and forgotten otherwise.
        """
        self._doubted.extend(digests)


class KeptBinaries:
    """The binaries kept by a worker."""

    def __init__(self) -> None:
        self._kept: dict[str, Binary] = {}

    def take(self, parts: Sequence[Mapping[str, Any]], blob: bytes, forgotten: Iterable[str]) -> None:
        """Store the binaries of a request, and drop those that it names.

        Parameters
        ----------
        parts : sequence of dict
            References to the binaries of which the blob is made.
        blob : bytes
        forgotten : iterable of str
            Digests.

        Raises
        ------
        InvalidRequest
            If a digest does not match its bytes, or the sizes do not match the blob; then nothing is stored.
        """
        sizes = [int(part["nbytes"]) for part in parts]
        if min(sizes, default=0) < 0 or sum(sizes) != len(blob):
            raise InvalidRequest(f"a request names binaries of {sizes} bytes and came with {len(blob)}")
        at, found = 0, {}
        for part, nbytes in zip(parts, sizes, strict=True):
            binary = Binary(blob if nbytes == len(blob) else blob[at : at + nbytes])
            if binary.digest != part["sha256"]:
                raise InvalidRequest(
                    f"a binary of {nbytes} bytes has the SHA-256 {binary.digest}, and was announced with "
                    f"{part['sha256']}"
                )
            found[binary.digest] = binary
            at += nbytes
        for digest in forgotten:
            self._kept.pop(digest, None)
        self._kept |= found

    def find(self, reference: object) -> Binary:
        """Return the binary of a reference in a specification's JSON.

        Raises
        ------
        InvalidRequest
            If it is no reference, or its binary is not kept.
        """
        wanted = decode(reference, _Reference, "a reference to a binary")
        found = self._kept.get(wanted.sha256)
        if found is None or len(found.data) != wanted.nbytes:
            raise InvalidRequest(
                f"the worker has no binary of {wanted.nbytes} bytes with the SHA-256 {wanted.sha256!r}; allowed: those "
                f"that came with this plan, or with plans before it"
            )
        return found
