"""Kernels ahead of time: lists, recordings, errors and interruptions of ``cutlass precompile``."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native.__main__ import main
from atomr_native.compile.cutlass import compiler
from atomr_native.libraries.cutlass import kernels, precompile, recording
from atomr_native.libraries.cutlass.choice import kernel_of
from atomr_native.libraries.cutlass.precompile import precompile as compile_all
from atomr_native.libraries.cutlass.precompile import read_recording, wanted_of

pytestmark = pytest.mark.plain

LIST = """
import numpy as np
import atomr_native as an

A, B = np.empty((64, 32), "f2"), np.empty((32, 16), "f2")
REQUESTS = [an.GemmRequest(a=A, b=B), an.GemmRequest(a=A, b=B, epilogue="relu(acc)")]

def grouped():
    yield an.GroupedGemmRequest(a=A, b=B[None], offsets=np.empty(1, "i4"))
"""


def shifted(acc: float) -> float:
    return acc + 1.0


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, tuple[str, ...]]]:
    """Kernels that were compiled: entry, architecture, functions; without a compiler."""
    found: list[tuple[str, str, tuple[str, ...]]] = []
    lock = threading.Lock()

    def compile_kernel(rendered: Any, parts: dict[str, bytes], arch: str, *, cancel: object) -> compiler.Compiled:
        assert isinstance(cancel, threading.Event)
        with lock:
            found.append((rendered.source, arch, tuple(parts)))
        if "f_relu(x0" in rendered.source and "broken" in recording.__dict__:
            raise an.LibraryError("nvrtc", 6, "COMPILATION", "compiling", "line 7 is wrong")
        return compiler.Compiled(b"code", b"ptx")

    monkeypatch.setattr(kernels, "compile_kernel", compile_kernel)
    monkeypatch.setattr(kernels, "function_ltoir", lambda *_: b"ltoir")
    return found


def test_a_list(
    made: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shapes_to_compile.py").write_text(LIST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    lists = ["shapes_to_compile:REQUESTS", "shapes_to_compile:grouped"]
    assert main(["cutlass", "precompile", *lists]) == 0
    assert {arch for _, arch, _ in made} == {"sm_90a"}
    assert len({source for source, _, _ in made}) == 3
    said = capsys.readouterr().out.splitlines()
    assert [line[:5] for line in said] == ["[1/3]", "[2/3]", "[3/3]"]
    assert any("cutlass.grouped_gemm: a float16 (64, 32), b float16 (1, 32, 16)" in line for line in said)
    assert main(["cutlass", "precompile", lists[0], "--capability", "8.0"]) == 0
    assert made[-1][1] == "sm_80"
    monkeypatch.setattr(recording, "broken", True, raising=False)
    assert main(["cutlass", "precompile", *lists]) == 1  # the other kernels are compiled
    said = capsys.readouterr()
    assert "[3/3]" in said.out
    assert "line 7 is wrong" in said.err


@pytest.mark.parametrize("epilogue", ["relu(acc)", shifted])
def test_a_recording(made: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epilogue: Any) -> None:
    if epilogue is shifted:
        pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    path = tmp_path / "plans.jsonl"
    monkeypatch.setenv(recording.VARIABLE, str(path))
    a, b = np.empty((64, 32), "f4"), np.empty((32, 16), "f4")
    requests = [an.GemmRequest(a=a, b=b, epilogue=epilogue), an.GemmRequest(a=a, b=b, compute="tf32", alpha=2.0)]
    wanted = list(wanted_of(requests))
    for one in (*wanted, wanted[0]):
        assert [error for _, _, error in compile_all([one], (9, 0))] == [None]
    before = made.copy()
    monkeypatch.delenv(recording.VARIABLE)
    made.clear()
    found = list(read_recording(str(path)))
    assert [one.spec for one in found] == [one.spec for one in wanted]
    assert [function(2.0) for one in found for function in one.functions] == [3.0] * (epilogue is shifted)
    assert main(["cutlass", "precompile", str(path)]) == 0
    assert sorted(made) == sorted(before[:2])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent_module:REQUESTS", "No module named 'absent_module'; allowed: module:name, a file"),
        ("math:absent", "has no attribute 'absent'"),
        ("math:pi", "the list is a float; allowed: an iterable"),
        ("absent.jsonl", "absent.jsonl"),
    ],
)
def test_lists_that_cannot_be_read(name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cutlass", "precompile", name]) == 2
    assert words in capsys.readouterr().err


def test_lines_that_are_no_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("{}", "nothing", '{"spec": {"op": "cutlass.gemm"}, "functions": []}'):
        (tmp_path / "plans.jsonl").write_text(text)
        assert main(["cutlass", "precompile", str(tmp_path / "plans.jsonl")]) == 2
        assert "line 1 of" in capsys.readouterr().err
    with pytest.raises(an.InvalidRequest, match="item 0 is a int; allowed: GemmRequest, GroupedGemmRequest"):
        list(wanted_of([3]))
    with pytest.raises(SystemExit):
        main(["cutlass", "precompile", "x", "--capability", "7.5"])
    assert "'7.5' is no compute capability" in capsys.readouterr().err


def test_an_interruption_ends_compilations(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    begun, ended = threading.Event(), threading.Event()

    def compiled(_spec: object, _functions: object, _capability: object, cancel: threading.Event) -> None:
        begun.set()
        assert cancel.wait(30)
        ended.set()

    def interrupted(jobs: Any) -> Any:
        assert begun.wait(30)
        raise KeyboardInterrupt

    wanted = list(wanted_of([an.GemmRequest(a=np.empty((8, 8), "f4"), b=np.empty((8, 8), "f4"))]))
    monkeypatch.setattr(precompile, "compiled_kernels", compiled)
    monkeypatch.setattr(precompile, "as_completed", interrupted)
    monkeypatch.setattr(precompile, "_list", lambda _: wanted)
    assert main(["cutlass", "precompile", "anything"]) == 130
    assert ended.wait(30)
    assert "interrupted; what was compiled stays in the cache" in capsys.readouterr().err


def test_the_benchmarks_kernels_can_be_listed() -> None:
    from bench.libraries.cutlass._kernels import requests

    found = [one for request in requests() for one in wanted_of([request])]
    assert len(found) == len(requests())
    for one in found:
        kernels.check(kernel_of(one.spec, (9, 0)).kernel)
