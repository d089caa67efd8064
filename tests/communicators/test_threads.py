"""Several threads, several communicators over the same devices, in any order: no deadlock, and every sum is right."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest
from communicator_kinds import KINDS, made_of, names, using

import atomr_native as an


def test_threads_with_communicators_in_any_order(request: pytest.FixtureRequest, kind: str) -> None:
    isolation: Any = "thread" if kind == "thread" else "process"
    with (
        using(request, kind),
        an.System(isolation=isolation, standby="off", timeout=60.0, mailbox_size=32) as system,
    ):
        comms = [made_of(system, kind, *ranks) for ranks in [(0, 1), (1, 0), (2, 0, 1), (1, 2)]]
        failures: list[BaseException] = []

        def work(seed: int) -> None:
            draw = random.Random(seed)
            try:
                for _ in range(40):
                    comm = draw.choice(comms)
                    value = float(draw.randrange(100))
                    refs = [device.put(np.full(draw.choice([1, 4000]), value)) for device in comm.devices[:1]]
                    refs += [device.put(np.full(refs[0].size, value)) for device in comm.devices[1:]]
                    if draw.random() < 0.3:
                        with comm.group():
                            found = comm.all_reduce(refs)
                            comm.broadcast(refs[0])
                    elif draw.random() < 0.2:
                        found = [comm.devices[0].copy(refs[-1])]
                        assert (found[0].numpy() == value).all()
                        continue
                    else:
                        found = comm.all_reduce(refs)
                    if draw.random() < 0.5:
                        assert all((ref.numpy() == value * comm.size).all() for ref in found)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        assert not failures
        assert not list(system.dead_letters)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "thread"])
def test_threads_that_make_communicators_at_once(request: pytest.FixtureRequest, kind: str) -> None:
    with using(request, kind), an.System(standby="off") as system:
        made_of(system, kind, 0, 1, 2).close()  # or skips
        made: list[an.Communicator] = []

        def make(order: list[str]) -> None:
            made.append(system.communicator(order))

        orders = [names(kind, 0, 1, 2), names(kind, 2, 1, 0)] * 3
        threads = [threading.Thread(target=make, args=(order,)) for order in orders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert len(made) == 6
        for comm in made:
            refs = [device.put([1.0]) for device in comm.devices]
            assert comm.all_reduce(refs)[0].numpy().tolist() == [3.0]
