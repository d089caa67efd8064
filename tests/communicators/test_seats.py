"""The memory in which ranks meet: steps, failures in the middle, and ranks that are lost."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import atomr_native as an
from atomr_native._lib.seats import PIECE, Page, RankAbsent, Seat
from atomr_native._lib.sender import DEVICE_FAULT


def seats(n: int) -> tuple[Page, list[Seat]]:
    page = Page([f"host:{rank}" for rank in range(n)])
    return page, [Seat(page.fd, page.nbytes, rank) for rank in range(n)]


def test_ranks_meet_and_see_what_the_others_wrote() -> None:
    _, ranks = seats(3)

    def work(seat: Seat) -> int:
        total = 0
        for step in range(1, 200):
            area = np.frombuffer(seat.stage(seat.rank, step & 1), np.int64)
            area[0] = step * 10 + seat.rank
            seat.meet(1, step)
            total += sum(int(np.frombuffer(seat.stage(rank, step & 1), np.int64)[0]) for rank in range(seat.size))
        return total

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, ranks)) == [sum(30 * step + 3 for step in range(1, 200))] * 3


def test_a_rank_that_fails_in_the_middle_ends_the_others() -> None:
    _, ranks = seats(3)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(seat.meet, 7, 2) for seat in ranks[1:]]
        ranks[0].meet  # noqa: B018 - it never comes
        ranks[0].fail(7, "MemoryError", "no room for é")
        for one in waiting:
            with pytest.raises(RankAbsent, match="no room for é") as met:
                one.result(60)
            assert met.value.name == "host:0\n1\npython\nMemoryError"


def test_a_rank_that_is_lost_ends_the_others_unless_it_was_there() -> None:
    page, ranks = seats(2)
    page.lose(1, 5, DEVICE_FAULT, 3)
    with pytest.raises(RankAbsent) as met:
        ranks[0].meet(5, 2)
    assert (met.value.status, met.value.name) == (3, f"host:1\n{DEVICE_FAULT}\n\n")
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(ranks[0].meet, 6, 1)  # a later message: the rank may be back for it
        ranks[1].meet(6, 1)
        later.result(60)
    page.lose(1, 6, DEVICE_FAULT, 4)
    ranks[0].meet(6, 1)  # it had come before it died


def test_pages_are_checked() -> None:
    page, _ = seats(2)
    with pytest.raises(an.InvalidRequest, match="rank 2"):
        Seat(page.fd, page.nbytes, 2)
    with pytest.raises(an.InvalidRequest, match="smaller than"):
        Seat(page.fd, page.nbytes + 4096, 0)
    fd = os.memfd_create("none")
    try:
        with pytest.raises(an.InvalidRequest, match="could become smaller"):
            Seat(fd, 4096, 0)
    finally:
        os.close(fd)
    with pytest.raises(an.InvalidRequest, match="rank 5; allowed: 0 to 1"):
        Seat(page.fd, page.nbytes, 0).stage(5, 0)
    assert len(Seat(page.fd, page.nbytes, 1).stage(0, 1)) == PIECE
