"""The size of the disk cache: least recently used entries go first, among any number of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from atomr_native._support import disk_cache
from atomr_native._support.disk_cache import cached
from atomr_native.errors import InvalidRequest

pytestmark = [pytest.mark.plain, pytest.mark.alike]

ROOT = Path(__file__).resolve().parents[2]
#: Of an entry besides its value.
HEAD = len(disk_cache._MAGIC) + disk_cache._CHECK


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def limit(monkeypatch: pytest.MonkeyPatch, entries: int, nbytes: int = 1000) -> int:
    """Have room for a number of entries of a size; returns the limit."""
    size = entries * (nbytes + HEAD)
    monkeypatch.setenv("ATOMR_NATIVE_CACHE_SIZE", str(size))
    return size


def keep(number: int, kind: str = "kind", nbytes: int = 1000) -> None:
    value = b"%d" % number + bytes(nbytes - len(str(number)))
    assert cached(kind, (b"%d" % number,), lambda: value) == value


def kept(numbers: Iterable[int], kind: str = "kind") -> list[int]:
    """Return which entries are there; uses none of them."""
    root = disk_cache.cache_directory()
    digests = {number: disk_cache._digest((b"%d" % number,)) for number in numbers}
    return [n for n, digest in digests.items() if (root / kind / digest[:2] / f"{digest}.{kind}").exists()]


def age(cache: Path) -> None:
    """Make all entries older than whatever is used from now on."""
    for path in cache.rglob("*.*"):
        if path.is_file() and len(path.stem) == 64:
            found = path.stat()
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - 10**9))


def total(cache: Path) -> int:
    return sum(path.stat().st_size for path in cache.rglob("*") if path.is_file() and len(path.stem) == 64)


def test_the_least_recently_used_entries_go_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = limit(monkeypatch, 10)
    for n in range(10):
        keep(n, "kind" if n % 2 else "other")
        age(cache)
    assert kept(range(10)) + kept(range(10), "other") == [1, 3, 5, 7, 9, 0, 2, 4, 6, 8]
    keep(0, "other")
    keep(3)
    age(cache)
    keep(10)  # exceeds the limit by one entry, and a tenth becomes free
    assert kept(range(11)) == [3, 5, 7, 9, 10]
    assert kept(range(11), "other") == [0, 4, 6, 8]
    assert total(cache) <= 0.9 * size


def test_a_damaged_entry_counts_as_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 4)
    for n in range(4):
        keep(n)
        age(cache)
    digest = disk_cache._digest((b"0",))
    path = cache / "kind" / digest[:2] / f"{digest}.kind"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    keep(0)  # made again
    age(cache)
    keep(4)
    assert 0 in kept(range(5))
    assert 1 not in kept(range(5))


def test_a_value_larger_than_the_limit_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 3)
    keep(0)
    keep(1)
    keep(2, nbytes=4000)
    assert kept(range(3)) == [0, 1]
    keep(3, nbytes=2900)  # as large as nearly everything
    assert kept(range(4)) == [3]
    monkeypatch.setenv("ATOMR_NATIVE_CACHE_SIZE", "0")
    keep(4)
    assert kept(range(5)) == [3]


def test_nothing_else_is_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 2)
    keep(0)
    others = [
        cache / "tuning" / "ab" / f"{'ab' * 32}.json",
        cache / "kind" / "ab" / "notes.kind",
        cache / "mine" / "ab" / f"{'ab' * 32}.mine",  # a folder without locks is not the cache's
        cache / "kind" / "ab" / ".new.tmp",
    ]
    stale = cache / "kind" / "ab" / ".old.tmp"
    for path in (*others, stale):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(5000))
        os.utime(path, (0, 0) if path.name != ".new.tmp" else None)
    for n in range(1, 5):
        keep(n)
    assert kept(range(5)) == [4]
    assert [path for path in others if not path.exists()] == []
    assert not stale.exists()


@pytest.mark.parametrize("days", [-2, 2])
def test_a_sum_of_another_day_is_taken_again(cache: Path, days: int) -> None:
    keep(0)
    (cache / ".size").write_bytes(b"%018d %018d\n" % (10**6, int(time.time()) + days * 86400))
    keep(1)
    assert int((cache / ".size").read_bytes().split()[0]) == total(cache)


def test_the_sum_is_taken_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = []
    real = disk_cache._entries
    monkeypatch.setattr(disk_cache, "_entries", lambda root: (scans.append(root), real(root))[1])
    limit(monkeypatch, 20)
    for n in range(20):
        keep(n)
    assert len(scans) == 1
    keep(20)
    assert len(scans) == 2
    keep(21)
    assert len(scans) == 2
    assert int((cache / ".size").read_bytes().split()[0]) == total(cache)


@pytest.mark.parametrize("wrong", [b"", b"x y", b"7", b"\xff\xff", b"-1", b"99999 %d", b"99999 0"])
def test_a_wrong_sum_is_corrected(cache: Path, monkeypatch: pytest.MonkeyPatch, wrong: bytes) -> None:
    limit(monkeypatch, 20)
    for n in range(10):
        keep(n)
    (cache / ".size").write_bytes(wrong % int(time.time()) if b"%" in wrong else wrong)
    keep(10)
    assert len(kept(range(11))) == 11
    assert int((cache / ".size").read_bytes().split()[0]) == total(cache)


@pytest.mark.parametrize("given", ["4GiB", "-1", "1.5", "", " 1", "1" * 30])
def test_the_limit_is_checked(cache: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_CACHE_SIZE", given)
    if not given:
        assert disk_cache.size_limit() == 4 << 30
        return
    with pytest.raises(InvalidRequest, match=rf"ATOMR_NATIVE_CACHE_SIZE='{given}'; allowed: a number of bytes"):
        keep(0)


FILLING = """
import sys
from atomr_native._support.disk_cache import cached

for n in range(120):
    number = b"%d" % (n * int(sys.argv[1]) % 60)
    value = number + bytes(1000)
    assert cached("kind", (number,), lambda: value) == value
"""


def test_processes_share_the_limit(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = limit(monkeypatch, 20)
    processes = [
        subprocess.Popen([sys.executable, "-c", FILLING, str(step)], env={**os.environ, "PYTHONPATH": str(ROOT)})
        for step in (1, 7, 11, 13)
    ]
    assert [process.wait(120) for process in processes] == [0] * 4
    keep(1000)
    assert total(cache) <= size
    assert not list(cache.rglob("*.tmp"))
