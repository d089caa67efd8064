"""Fixtures of copies: arrays of one KiB that count as large."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from transfer_rig import all_back, narrow, shrink

import atomr_native as an


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make arrays of one KiB large ones."""
    shrink(monkeypatch)


@pytest.fixture
def pieces(tiny: None, device: an.Device) -> Iterator[an.Device]:
    """Lend a device to which arrays of one KiB are large; it must have its staging memory back after each test."""
    yield narrow(device)
    all_back(device)
