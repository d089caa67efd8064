"""Plans of cuDNN on disk: a later worker takes them from there, and none that is damaged or of something else."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import using

import atomr_native as an
from atomr_native._support import disk_cache
from atomr_native.libraries.cudnn.cuda import saved_plans
from atomr_native.libraries.cudnn.cuda.descriptors import GraphDescription

DESCRIPTION = GraphDescription([1, 2, 3], [], 1, 4, 1 << 20)
FACTS = {"name": "a GPU", "compute_capability": (9, 0), "multiprocessors": 132, "driver_version": 13000}


class Backend:
    def __init__(self, **facts: object) -> None:
        self._facts = {**FACTS, **facts}

    def facts(self) -> dict[str, object]:
        return self._facts


class Plan:
    """A plan of a library that refuses every text but that of a plan; its engine tells whence it comes."""

    text = b"the text\nof a plan"

    def __init__(self, backend: Backend, description: GraphDescription, saved: bytes = b"", engine: int = -1) -> None:
        if saved not in (b"", self.text):
            raise an.Unsupported("cuDNN refuses a saved plan", rule="cudnn.saved_plan")
        self.is_loaded = bool(saved)
        self.engine = engine if saved else 7

    def save(self) -> bytes:
        return self.text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(saved_plans, "GraphPlan", Plan)
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "plans"))
    return tmp_path / "plans"


def is_loaded(description: GraphDescription = DESCRIPTION, version: int = 91900, **facts: object) -> bool:
    plan = saved_plans.saved_plan(Backend(**facts), description, version)
    assert plan.engine == 7
    return bool(plan.is_loaded)


def entry(folder: Path) -> Path:
    (path,) = folder.glob("cudnn/*/*.cudnn")
    return path


def test_a_later_request_takes_the_plan_from_the_disk(folder: Path) -> None:
    assert [is_loaded(), is_loaded()] == [False, True]
    assert len(entry(folder).read_bytes()) > len(Plan.text)


@pytest.mark.parametrize(
    "options",
    [
        {"description": replace(DESCRIPTION, words=[1, 2, 4])},
        {"description": replace(DESCRIPTION, banned=5)},
        {"description": replace(DESCRIPTION, workspace_limit=1 << 21)},
        {"version": 91901},
        {"name": "another GPU"},
        {"compute_capability": (10, 0)},
        {"multiprocessors": 131},
        {"driver_version": 13010},
    ],
    ids=str,
)
def test_other_graphs_libraries_and_devices_have_plans_of_their_own(folder: Path, options: dict[str, object]) -> None:
    assert not is_loaded()
    assert [is_loaded(**options), is_loaded(**options), is_loaded()] == [False, True, True]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value[:-1],
        lambda value: value.partition(b"\n")[0] + b"\n",
        lambda value: b"no record",
        lambda value: value.replace(b'"cudnn":91900', b'"cudnn":91901'),
        lambda value: value.replace(b'"format":', b'"format":1'),
        lambda value: value.replace(b'"driver":', b'"driver":1'),
        lambda value: value.replace(b'"device":["', b'"device":["another '),
        lambda value: value.replace(b'"key":"', b'"key":"0'),
    ],
    ids=["text", "empty", "head", "cudnn", "format", "driver", "device", "key"],
)
def test_a_record_that_does_not_match_is_said_once_and_replaced(
    folder: Path, change: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    is_loaded()
    start = len(disk_cache._MAGIC) + 32
    before = entry(folder).read_bytes()
    value = change(before[start:])
    assert value != before[start:]
    entry(folder).write_bytes(disk_cache._MAGIC + hashlib.sha256(value).digest() + value)
    with caplog.at_level(logging.WARNING, "atomr_native"):
        assert [is_loaded(), is_loaded(), is_loaded()] == [False, True, True]
    assert caplog.text.count("a plan of cuDNN on disk is not used") == 1
    assert entry(folder).read_bytes() == before


def test_a_damaged_record_is_said_once_and_replaced(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    is_loaded()
    data = bytearray(entry(folder).read_bytes())
    data[-3] ^= 1
    entry(folder).write_bytes(data)
    with caplog.at_level(logging.WARNING, "atomr_native"):
        assert [is_loaded(), is_loaded()] == [False, True]
    assert caplog.text.count("is corrupt") == 1


def test_a_folder_that_cannot_be_written_costs_the_records_only(folder: Path) -> None:
    folder.write_text("a file")
    assert [is_loaded(), is_loaded()] == [False, False]


def test_a_plan_without_text_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "text", b"")
    assert [is_loaded(), is_loaded()] == [False, False]
    assert list(folder.glob("cudnn/*/*.cudnn")) == []


def test_requests_at_the_same_time_all_get_a_plan(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: is_loaded(), range(16)))
    assert found.count(False) == 1


def test_a_later_worker_computes_with_the_plan_on_disk(fake_environment: dict[str, str], tmp_path: Path) -> None:
    """An entry that is used stays the file that it was; one that is refused would be replaced."""
    found = []
    with using({**fake_environment, "ATOMR_NATIVE_CACHE": str(tmp_path / "plans")}):
        for _ in range(2):
            with an.System(standby="off") as system:
                device = system.device("cuda:0")
                x, w = device.put(np.full((1, 8, 4, 4), 0.5, "float32")), device.put(np.ones((8, 8, 1, 1), "float32"))
                assert (device.cudnn.convolution(x, w).numpy() == 4).all()
            found.append((entry(tmp_path / "plans").stat().st_ino, entry(tmp_path / "plans").read_bytes()))
    assert found[0] == found[1]
