"""Kills at random over thousands of messages: one reply each, effects exactly once, groups equal to a commit.

Short by default; see tests/helpers/chaos.py.
"""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Iterator

import pytest
from chaos import FAULTS, LONG, run_chaos
from crash import PATIENT, kill
from gpu import CODES

import atomr_native as an

pytestmark = pytest.mark.chaos


@pytest.fixture
def device(nothing_left: None) -> Iterator[an.Device]:
    """Lend a device with small mailboxes that may die as often as it likes."""
    with an.System(allow_crash=True, mailbox_size=64, standby="warm", **PATIENT) as system:
        yield system.device("host")


@pytest.mark.timeout(0)
def test_chaos(device: an.Device) -> None:
    kills = 0

    def harm(rng: random.Random) -> None:
        nonlocal kills
        # From outside: an operation that ends its worker by itself would be quarantined.
        kill(device, rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        kills += 1

    senders = run_chaos(device, harm)
    assert kills >= device.generation - 1 - sum(sender.runs for sender in senders)


@pytest.mark.timeout(0)
def test_chaos_on_cuda(cuda_engine: str, nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills, and faults of the GPU, of every kind that ends."""
    monkeypatch.setenv("FAKE_CUDA_DELAY_US", "200")  # work of the fake driver starts late by chance
    harms = 0
    with an.System(
        allow_crash=True, mailbox_size=64, standby="warm", watchdog=60.0 if LONG else None, **PATIENT
    ) as system:
        device = system.device("cuda:0")

        def harm(rng: random.Random) -> None:
            nonlocal harms
            harms += 1
            how = rng.choice(["kill", "kill", *CODES, "illegal address while idle"])
            if how == "kill":
                kill(device, rng.choice([signal.SIGKILL, signal.SIGTERM]))
                return
            with contextlib.suppress(*FAULTS):
                device.inject_fault(how)

        senders = run_chaos(device, harm)
        assert harms >= device.generation - 1 - sum(sender.runs for sender in senders)
        assert device.stats()["state"] == "open"
