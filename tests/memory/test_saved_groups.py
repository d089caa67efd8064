"""Commits of durable groups in files, and in the memory of other devices."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from crash import PATIENT, filled, occupy, restart
from placements import Placement

import atomr_native as an

Make = Callable[..., an.System]


def members(device: an.Device) -> dict[str, an.GpuRef]:
    """Arrays whose places in the shadow have gaps between them."""
    return {
        "w": device.put(np.arange(5, dtype="float32"), durable=True),
        "step": device.put(np.int64(7), durable=True),
        "none": device.zeros((0, 3), "float64", durable=True),
        "half": device.put(np.linspace(0, 1, 6).reshape(2, 3).astype(ml_dtypes.bfloat16), durable=True),
    }


def fresh(device: an.Device) -> an.DurableGroup:
    return device.durable_group(
        {name: device.full(ref.shape, 9, ref.dtype, durable=True) for name, ref in members(device).items()}
    )


def assert_holds(group: an.DurableGroup, expected: dict[str, np.ndarray[Any, Any]]) -> None:
    for name, array in expected.items():
        found = group.members[name].numpy()
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tobytes() == array.tobytes(), name


@pytest.mark.parametrize("where", ["file", "device"])
def test_the_last_commit_and_nothing_later_is_saved(device: an.Device, tmp_path: Path, where: str) -> None:
    arrays = members(device)
    group = device.durable_group(arrays)
    expected = {name: ref.numpy() for name, ref in arrays.items()}
    group.commit(-3)
    arrays["w"].fill(5)  # after the commit
    saved = group.save(tmp_path / "state" if where == "file" else device)
    assert saved.tag == -3
    assert {name: array.tobytes() for name, array in saved.arrays().items()} == {
        name: array.tobytes() for name, array in expected.items()
    }
    again = fresh(device)
    assert again.load(tmp_path / "state" if where == "file" else saved) == -3
    assert_holds(again, expected)
    assert (again.sequence, again.tag) == (1, -3)
    again.members["w"].fill(1)
    again.restore().result(60)
    assert_holds(again, expected)  # what was loaded is committed
    assert arrays["w"].numpy().tolist() == [5.0] * 5  # a save changes nothing
    if where == "file":
        again.members["step"].fill(8)
        again.commit(4).result(60)
        again.save(str(tmp_path / "state"))
        assert group.load(tmp_path / "state") == 4
        assert group.members["step"].item() == 8
        assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_commits_wait_for_a_save_and_it_sees_one_of_them(device: an.Device, tmp_path: Path) -> None:
    state = {"a": device.zeros((3000,), "int64", durable=True), "b": device.zeros((), "int64", durable=True)}
    group = device.durable_group(state)
    group.commit(0).result(60)
    done = threading.Event()

    def commits() -> None:
        for step in range(1, 200):
            state["a"].fill(step)
            state["b"].fill(step)
            group.commit(step)
            if done.is_set():
                return

    thread = threading.Thread(target=commits)
    thread.start()
    try:
        for number in range(5):
            saved = group.save(tmp_path / str(number))
            arrays = saved.arrays()
            assert set(arrays["a"].tolist()) == {int(arrays["b"])} == {saved.tag}
    finally:
        done.set()
        thread.join()


def test_a_commit_is_saved_and_loaded_after_a_rollback(make_system: Make, worker_process: Placement) -> None:
    device = make_system(**PATIENT).device()
    a = filled(device, 1.0)
    group = device.durable_group({"a": a})
    group.commit(1).result(60)
    a.fill(2.0)
    occupy(device.lane("x"), a, half=5.0)
    restart(device)
    with pytest.raises(an.GpuRefStale):
        a.numpy()
    other = device.system.device("host:1")
    saved = group.save(other)
    assert (saved.arrays()["a"] == 1.0).all()
    assert group.load(saved) == 1
    assert (a.numpy() == 1.0).all()


def test_bad_input(device: an.Device, tmp_path: Path) -> None:
    group = device.durable_group(members(device))
    path = tmp_path / "state"
    with pytest.raises(an.InvalidRequest, match="nothing has been committed"):
        group.save(path)
    group.commit(1)
    with pytest.raises(an.InvalidRequest, match="where=3"):
        group.save(3)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="saved=3"):
        group.load(3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        group.save(tmp_path / "none" / "state")
    with pytest.raises(FileNotFoundError):
        group.load(path)
    group.save(path)
    other = device.durable_group({"w": device.zeros((5,), durable=True)})
    with pytest.raises(an.InvalidRequest, match="member 'step' is missing in the group, and int64"):
        other.load(path)
    wrong = fresh(device)
    changed = {**wrong.members, "w": device.zeros((6,), durable=True)}
    del wrong
    with pytest.raises(an.InvalidRequest, match=r"member 'w' is float32\[6\] in the group, and float32\[5\]"):
        device.durable_group(changed).load(path)


@pytest.mark.parametrize("damage", ["end", "byte", "magic", "header", "length", "empty"])
def test_a_damaged_file_is_refused(device: an.Device, tmp_path: Path, damage: str) -> None:
    group = device.durable_group({"w": device.put(np.arange(50.0), durable=True)})
    group.commit(1)
    path = tmp_path / "state"
    group.save(path)
    data = bytearray(path.read_bytes())
    match damage:
        case "end":
            del data[-8:]
        case "byte":
            data[-9] ^= 1
        case "magic":
            data[0] ^= 1
        case "header":
            data[40] = 0
        case "length":
            data[27] = 0xFF
        case "empty":
            data.clear()
    path.write_bytes(data)
    group.members["w"].fill(3)
    with pytest.raises(an.InvalidRequest, match="damaged"):
        group.load(path)
    assert group.members["w"].numpy().tolist() == [3.0] * 50


def test_a_save_that_fails_leaves_the_older_file(
    device: an.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = device.durable_group({"w": device.put([1.0], durable=True)})
    group.commit(1)
    group.save(tmp_path / "state")
    group.commit(2)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            group.save(tmp_path / "state")
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert group.load(tmp_path / "state") == 1
    saved = pickle.loads(pickle.dumps(group.save(tmp_path / "state")))
    assert saved.tag == 1
    assert saved.data == tmp_path / "state"
