"""Collectives by torch.distributed with NCCL, a process for each of two GPUs: ``python -m ... ORDINAL ORDINAL``.

It answers as ranks.c does, see serve.h; besides it has the work ``chain``, whose bytes are the elements of an
all-reduce: products of 8192 x 8192 bfloat16 in a chain, with an all-reduce started beside each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

SIDE = 8192


def _call(torch: Any, rank: int, work: str, x: Any, out: Any) -> Callable[[], object]:
    dist, part = torch.distributed, x.numel() // 2
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(x),
        "reduce": lambda: dist.reduce(x, 0),
        "broadcast": lambda: dist.broadcast(x, 0),
        "all_gather": lambda: dist.all_gather_into_tensor(out, x[:part]),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(out[:part], x),
        "all_to_all": lambda: dist.all_to_all_single(out, x),
        "send": lambda: dist.send(x, 1) if rank == 0 else dist.recv(out, 0),
    }
    return calls[work]


def _chain(torch: Any, x: Any) -> Callable[[], object]:
    square = torch.zeros((SIDE, SIDE), dtype=torch.bfloat16, device="cuda")
    into = torch.empty_like(square)

    def one() -> object:
        torch.mm(square, square, out=into)
        return torch.distributed.all_reduce(x, async_op=True)

    return one


class _Rank:
    """One process: its arrays, and the turns that it is told to make."""

    def __init__(self, rank: int, ordinal: int, meeting: str) -> None:
        import torch

        torch.cuda.set_device(ordinal)
        torch.distributed.init_process_group(
            "nccl", init_method=f"file://{meeting}", rank=rank, world_size=2, device_id=torch.device("cuda", ordinal)
        )
        self._torch, self._rank = torch, rank
        self._calls: dict[tuple[str, int], Callable[[], object]] = {}
        self._x = self._out = torch.zeros(0, device="cuda")

    def turn(self, work: str, nbytes: int, way: str, count: int) -> float:
        """Microseconds of each of `count` calls."""
        torch = self._torch
        if nbytes // 4 > self._x.numel():
            self._calls.clear()
            self._x = self._out = None
            self._x, self._out = (torch.zeros(nbytes // 4, device="cuda") for _ in range(2))
        if (work, nbytes) not in self._calls:
            x, out = self._x[: nbytes // 4], self._out[: nbytes // 4]
            self._calls[work, nbytes] = _chain(torch, x) if work == "chain" else _call(torch, self._rank, work, x, out)
        call, last = self._calls[work, nbytes], None
        for _ in range(5 if nbytes < 1 << 28 else 1):
            call()
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(count):
            last = call()
            if way == "synchronize":
                torch.cuda.synchronize()
        if way == "caller":
            spent = time.perf_counter_ns() - start
            torch.cuda.synchronize()
        else:
            if hasattr(last, "wait"):
                last.wait()  # type: ignore[union-attr]
            torch.cuda.synchronize()
            spent = time.perf_counter_ns() - start
        return spent / 1e3 / max(1, count)


def _say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


def _first(ordinal: int, meeting: str, second: IO[str]) -> None:
    rank: _Rank | None = None
    for line in sys.stdin:
        name, count = line.split()
        work, nbytes, way = name.split(":")
        second.write(f"{work} {nbytes} {way} {count}\n")
        second.flush()
        rank = rank or _Rank(0, ordinal, meeting)
        us = rank.turn(work, int(nbytes), way, int(count))
        _say({"us": us} if int(count) else {"ready": True})


def _second(ordinal: int, meeting: str) -> None:
    import torch  # noqa: F401  # which takes seconds, meanwhile

    rank: _Rank | None = None
    for line in sys.stdin:
        work, nbytes, way, count = line.split()
        rank = rank or _Rank(1, ordinal, meeting)
        rank.turn(work, int(nbytes), way, int(count))


def main(words: list[str]) -> int:
    """Serve as the first process, or with a third word, where both meet, as the second."""
    if len(words) == 3:
        _second(int(words[1]), words[2])
        return 0
    try:
        import torch
    except ImportError as error:
        why = f"torch does not import: {error}"
    else:
        why = "" if torch.cuda.device_count() > max(map(int, words)) else "torch sees fewer than two GPUs"
    if why:
        for _ in sys.stdin:
            _say({"unavailable": why})
        return 0
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        command = [sys.executable, "-m", "bench.cases.communicators._torch", *words, meeting]
        second = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        assert second.stdin is not None
        try:
            _first(int(words[0]), meeting, second.stdin)
        finally:
            second.stdin.close()
            try:
                second.wait(10)
            except subprocess.TimeoutExpired:
                second.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
