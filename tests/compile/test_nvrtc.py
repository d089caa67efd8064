"""Kernels compiled by NVRTC: that the sources of builders compile, and what the cache on disk does."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import signal
import tempfile
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codegen_engines import ARITHMETIC, COMPARE, UNARY, Engine, each, need_nvrtc, outputs, random
from group_memory import Group
from plan_builds import build_cuda

from atomr_native._support import disk_cache
from atomr_native.builders.cuda import cubin
from atomr_native.builders.cuda.target import KernelProgram, Target, number_of
from atomr_native.compile import nvrtc as _nvrtc
from atomr_native.compile import precompiled_headers
from atomr_native.dtypes import DTYPES
from atomr_native.errors import LibraryError, Unsupported
from atomr_native.libraries.elementwise.request import (
    ElementwiseRequest,
    ReduceRequest,
    SoftmaxCrossEntropyRequest,
)
from atomr_native.libraries.memory.spec import copy_spec, fill_spec
from atomr_native.plans.spec import OVERWRITE, WRITE, OperandSpec, PlanSpec

pytestmark = pytest.mark.plain


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lend an empty cache."""
    need_nvrtc()
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


KERNEL = 'extern "C" __global__ void k(float *x) { x[0] = expf(x[1]); }\n'


def _specs(arch: str) -> Iterator[PlanSpec]:
    x = {name: random((32, 48), name) for name in DTYPES}
    sources = each(UNARY, "{}(x)") | {f"t{k}": v for k, v in each([*ARITHMETIC, *COMPARE], "x {} y").items()}
    if arch != "sm_90a":  # the functions are the same everywhere
        sources = dict(list(sources.items())[::5])
    for dtype in ("float64", "bfloat16", "int8"):
        made = outputs(sources, (32, 48), {"x": dtype, "y": dtype})
        yield ElementwiseRequest(program=sources, operands={**made, "x": x[dtype], "y": x[dtype].copy()}).lowered.spec()
    yield ElementwiseRequest(
        program="x ** y + tanh(x)", operands={"x": x["complex64"], "y": x["complex128"]}
    ).lowered.spec()
    yield ElementwiseRequest(program="x + y", operands={"x": x["float8_e4m3fn"].T, "y": x["float16"].T}).lowered.spec()
    big = np.broadcast_to(np.float32(0), (70000, 70000))
    yield PlanSpec(
        "memory.fill", (OperandSpec("out", "float32", big.shape, (280000, 4), WRITE | OVERWRITE),), ("float64",)
    )
    for source, target in (("bfloat16", "float8_e5m2"), ("float64", "float16"), ("float32", "float8_e4m3fn")):
        yield copy_spec(x[source], x[target].T.copy().T)
    for op in ("sum", "argmax"):
        yield ReduceRequest(op=op, x=x["bfloat16"], axis=1).lowered.spec()
        yield ReduceRequest(op=op, x=np.broadcast_to(x["int32"].ravel(), (4000, 1536))).lowered.spec()
    labels = np.zeros(32, np.int64)
    yield SoftmaxCrossEntropyRequest(logits=x["float16"], labels=labels).lowered.spec()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_sources_compile(cache: Path, arch: str) -> None:
    for i, spec in enumerate(_specs(arch)):
        if i % 4 != {"sm_80": 0, "sm_100": 1}.get(arch, i % 4):
            continue  # all for Hopper, each kind for another, too; sm_80 has no instructions for 8 bits
        built = build_cuda(spec, Target(arch, 132))
        assert isinstance(built.run, KernelProgram)
        assert built.run.cubin.startswith(b"\x7fELF")
        for launch in built.run.launches:
            assert launch.function.encode() in built.run.cubin
    engine = Engine(Target(arch), lambda *_: None)
    for op in ("group.commit", "group.restore"):
        assert engine.build(Group(engine, True).spec(op)).run.cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("capability", "arch"),
    [
        ((7, 0), "sm_70"), ((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_87"),
        ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((10, 1), "sm_101a"), ((10, 3), "sm_103a"),
        ((11, 0), "sm_110a"), ((12, 0), "sm_120a"), ((12, 1), "sm_121a"),
    ],
)  # fmt: skip
def test_architectures(capability: tuple[int, int], arch: str) -> None:
    assert _nvrtc.arch_of(capability) == arch
    assert Target(arch).overlaps == (capability >= (9, 0))
    assert number_of(arch) == 10 * capability[0] + capability[1]


def test_nvrtc_compiles_for_every_architecture_that_it_has(cache: Path) -> None:
    need_nvrtc()
    library = _nvrtc._library()
    known = _nvrtc._call("nvrtcGetSupportedArchs", library.nvrtcGetSupportedArchs)
    assert 90 in known
    for number in known:
        code = cubin.compile_cubin(KERNEL, _nvrtc.arch_of(divmod(number, 10)))
        assert code.startswith(b"\x7fELF")


def test_the_cache_is_used_and_checked(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = cubin.compile_cubin(KERNEL, "sm_90a")
    (entry,) = cache.rglob("*.cubin")
    assert [path for path in cache.rglob("[!.]*") if path.is_file()] == [entry]
    real = _nvrtc._compile
    monkeypatch.setattr(_nvrtc, "_compile", None)
    assert cubin.compile_cubin(KERNEL, "sm_90a") == first
    monkeypatch.setattr(_nvrtc, "_compile", real)
    good = entry.read_bytes()
    for damaged in (good[:-1], good[:100] + bytes([good[100] ^ 1]) + good[101:], b"", good[:40]):
        entry.write_bytes(damaged)
        with caplog.at_level(logging.WARNING, "atomr_native.worker"):
            assert cubin.compile_cubin(KERNEL, "sm_90a") == first
        assert "is corrupt" in caplog.text
        caplog.clear()
        assert entry.read_bytes() == good
    cubin.compile_cubin(KERNEL, "sm_80")
    cubin.compile_cubin(KERNEL, "sm_90a", ("--fmad=true",))
    assert len(list(cache.rglob("*.cubin"))) == 3


def test_a_cache_that_cannot_be_written_is_no_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_text("no folder")
    with caplog.at_level(logging.WARNING, "atomr_native.worker"):
        assert cubin.compile_cubin(KERNEL, "sm_90a").startswith(b"\x7fELF")
    assert "cannot be cached" in caplog.text


def test_one_compilation_for_many_threads(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, go = [], threading.Event()

    def slow(*arguments: Any) -> bytes:
        calls.append(arguments)
        assert go.wait(10)
        return bytes([2, *[0] * 7]) + b"{}code"

    monkeypatch.setattr(_nvrtc, "_compile", slow)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(cubin.compile_cubin("x", "sm_90"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert found == [b"code"] * 4
    assert len(calls) == 1


def test_headers_are_read_once_by_sources_that_begin_alike(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if _nvrtc.version() < precompiled_headers.SINCE:
        pytest.skip(f"NVRTC keeps headers since {precompiled_headers.SINCE}")
    monkeypatch.setattr(precompiled_headers, "_kept", OrderedDict())
    real, how = _nvrtc._compile, list[str]()

    def compiling(source: str, arch: str, flags: tuple[str, ...], *rest: Any) -> bytes:
        how.extend(found := [flag.partition("=")[0] for flag in flags if "-pch=" in flag] or ["plain"])
        assert len(found) == 1
        return real(source, arch, flags, *rest)

    monkeypatch.setattr(_nvrtc, "_compile", compiling)
    folder, temporary = tmp_path / "headers", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def header(factor: int) -> None:
        (folder / "h.cuh").write_text(f"#define FACTOR {factor}\n")

    def code(added: int, before: str = "", **options: Any) -> bytes:
        text = f'/* of the\n tests */ {before}\n#include "h.cuh"\n// more\n' + KERNEL.replace(
            "x[1]", f"x[FACTOR] + {added}"
        )
        return _nvrtc.compile_program(text, "sm_90", include=[str(folder)], **options).code

    header(3)
    codes = [code(added) for added in range(4)]
    assert how == ["plain", "--create-pch", "--use-pch", "--use-pch"]
    assert len(set(codes)) == 4
    monkeypatch.setattr(precompiled_headers, "_kept", OrderedDict())
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "another"))
    assert code(3) == codes[3]  # without kept headers
    assert code(2) == codes[2]
    how.clear()
    header(5)  # within the same second, and of the same size
    assert code(3) != codes[3]
    assert len({code(3, before="\n#define OTHER"), code(3, headers={"other.cuh": ""}), code(3, output="ltoir")}) > 1
    assert how == ["plain"] * 4
    assert code(4)
    how.clear()
    with pytest.raises(LibraryError, match='identifier "oops" is undefined') as caught:
        code("oops(")  # type: ignore[arg-type]
    assert how == ["--use-pch", "plain"]
    assert "precompiled" not in str(caught.value)
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("", None),
        ("// #include <a>\nint x;\n#include <b>\n", None),
        ("#define A \\\n  1\n# include <a>\nint x;", "#define A \\\n  1\n# include <a>\n"),
        (
            "/* int x; */ #pragma once\n#include <a>\n\n#if A\n__device__",
            "/* int x; */ #pragma once\n#include <a>\n\n#if A\n",
        ),
    ],
)
def test_what_a_source_begins_with(source: str, found: str | None) -> None:
    assert precompiled_headers.preamble(source) == found


def test_compile_errors(cache: Path) -> None:
    with pytest.raises(LibraryError, match=r'atomr\.cu\(2\): error: identifier "expg" is undefined') as caught:
        cubin.compile_cubin(KERNEL.replace("{", "{\n").replace("expf", "expg"), "sm_90a")
    assert (caught.value.lib, caught.value.name) == ("nvrtc", "NVRTC_ERROR_COMPILATION")
    with pytest.raises(LibraryError, match="invalid value for --gpu-architecture"):
        cubin.compile_cubin(KERNEL, "sm_7")
    assert not list(cache.rglob("*.cubin"))
    assert not disk_cache._flights


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ATOMR_NATIVE_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert disk_cache.cache_directory() == tmp_path / ".cache" / "atomr_native"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert disk_cache.cache_directory() == Path("/x/atomr_native")
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", "/y")
    assert disk_cache.cache_directory() == Path("/y")
    for name in ("ATOMR_NATIVE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert disk_cache.cache_directory() == Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache", "atomr_native")


def test_users_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_user(_: int) -> Any:
        raise KeyError("getpwuid(): uid not found")

    for name in ("ATOMR_NATIVE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_user)
    made = iter([b"1", b"2"])
    assert [disk_cache.cached("cubin", (b"key",), lambda: next(made)) for _ in range(2)] == [b"1", b"2"]


def test_a_forked_child_makes_what_a_thread_of_its_parent_was_making(cache: Path) -> None:
    begun, done = threading.Event(), threading.Event()

    def slowly() -> bytes:
        begun.set()
        done.wait(60)
        return b"of the parent"

    thread = threading.Thread(target=disk_cache.cached, args=("cubin", (b"key",), slowly))
    thread.start()
    assert begun.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python >= 3.12 warns of threads
        pid = os.fork()
    if pid == 0:
        # Another process's lock would be waited for, rightly; the parent's threads are not here.
        disk_cache.exclusive = lambda *_: contextlib.nullcontext(False)
        os._exit(disk_cache.cached("cubin", (b"key",), lambda: b"of the child") != b"of the child")
    deadline = time.monotonic() + 60
    found, status = os.waitpid(pid, os.WNOHANG)
    while not found and time.monotonic() < deadline:
        time.sleep(0.01)
        found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    done.set()
    thread.join()
    assert (found, status) == (pid, 0)


def test_without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        if not name.startswith("cuda"):  # the module of another package, imported for the first time
            return found(name)
        raise ModuleNotFoundError(f"No module named {name!r}")

    found = _nvrtc.importlib.import_module
    monkeypatch.setattr(_nvrtc.importlib, "import_module", missing)
    with pytest.raises(Unsupported, match=r"cuda\.bindings.*pip install '\.\[cu13\]'"):
        build_cuda(fill_spec(np.empty(3)), Target("sm_90a"))
