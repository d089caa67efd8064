"""NCCL's interface: our declarations beside the headers and libraries of every version that is there, and elements.

Wheels of NCCL are large, so nothing installs them for tests; name folders of theirs in ATOMR_NATIVE_CUDA_WHEELS.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes  # noqa: F401 - registers dtypes
import numpy as np
import pytest
from cuda_wheels import check_syntax, find

from atomr_native._lib.nccl import CONSTANTS, element, version_text
from atomr_native.builders.cuda.context import library_file
from atomr_native.dtypes import as_dtype
from atomr_native.libraries.collective.attributes import Step
from atomr_native.libraries.collective.cuda.calls import NcclCall, calls_of

CYTHON = Path(__file__).resolve().parents[3] / "cython"
MEMBERS = (
    "size", "magic", "version", "blocking", "cgaClusterSize", "minCTAs", "maxCTAs", "netName", "splitShare",
)  # fmt: skip
#: Of the config and of the library from 2.27 and 2.28 on.
LATER_MEMBERS = ("trafficClass", "commName", "collnetEnable", "CTAPolicy", "shrinkShare", "nvlsCTAs")
LATER = ("ncclCommWindowRegister", "ncclCommWindowDeregister", "ncclAlltoAll")


def found(name: str) -> list[Path]:
    """Return the files of a name in wheels of NCCL, or skip."""
    files = [path for path in find(name) if path.parent.parent.name == "nccl"]
    if not files:
        pytest.skip(f"{name} not found; name folders of wheels of NCCL in ATOMR_NATIVE_CUDA_WHEELS")
    return files


@pytest.mark.abi
@pytest.mark.plain
def test_declarations_are_those_of_each_header() -> None:
    text = (CYTHON / "libraries/nccl/names.h").read_text(encoding="utf-8")
    table = (CYTHON / "libraries/nccl/table.h").read_text(encoding="utf-8")
    form = r"F\(ncclResult_t, %s,\s*(?:\\\s*)?(\(.*?\))\)\s*(?:\\|$)"
    later = {name: re.search(form % name, table, re.M) for name in LATER}
    config = re.search(r"typedef struct \{\n    size_t size;.*?\} atomr_nccl_config;", table, re.S)
    assert config is not None
    runtime = []
    for name, wheel in (("cuda_runtime.h", "nvidia-cuda-runtime"), ("crt/host_defines.h", "nvidia-cuda-crt")):
        paths = find(name)
        if not paths:
            pytest.skip(f"{name}, which nccl.h includes, is in no wheel of {wheel}")
        runtime += [Path(str(path).removesuffix(name)) for path in paths]
    assert all(later.values())
    for header in found("nccl.h"):
        given = header.read_text(encoding="utf-8")
        body = "".join(line for line in text.splitlines(True) if not line.startswith(("typedef", "enum")))
        if "ncclFloat8e4m3" not in given:  # before 2.24, where bfloat16 is there for C++ only
            body = re.sub(r".*nccl(Float8|Bfloat16).*\n", "", body)
        lines = ["#include <stddef.h>", "#include <stdint.h>", "#include <nccl.h>", body, config[0]]
        lines += ['#define C(name, value) _Static_assert(name == value, "constant");', "ATOMR_NCCL_CONSTANTS(C)"]
        lines += ['#define S(name, size) _Static_assert(sizeof(name) == size, "struct");', "ATOMR_NCCL_STRUCTS(S)"]
        lines += ["#define F(result, name, arguments) extern __typeof__(name) name; result name arguments;"]
        lines += ["ATOMR_NCCL_FUNCTIONS(F)"]
        lines += [
            f'_Static_assert(offsetof(ncclConfig_t, {m}) == offsetof(atomr_nccl_config, {m}), "{m}");'
            for m in (*MEMBERS, *(m for m in LATER_MEMBERS if "CTAPolicy" in given))
        ]
        lines += [f"ncclResult_t {name}{found[1]};" for name, found in later.items() if found and f" {name}(" in given]
        if "NCCL_CTA_POLICY_ZERO" in given:
            lines += ['_Static_assert(NCCL_WIN_COLL_SYMMETRIC == 1 && NCCL_CTA_POLICY_ZERO == 2, "constants");']
        lines += ["ncclResult_t ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);"]
        lines += ["ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);"]
        includes = [header.parent, *runtime, CYTHON]
        assert check_syntax("\n".join(lines) + "\n", dict.fromkeys(includes)) == "", header


@pytest.mark.abi
@pytest.mark.plain
def test_libraries_are_opened_and_say_their_versions() -> None:
    for library in found("libnccl.so.2"):
        program = f"from atomr_native._lib import nccl; print(nccl.load({str(library)!r}))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert 21800 <= int(done.stdout) < 30000, library


@pytest.mark.plain
@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("float16", "Float16"), ("bfloat16", "Bfloat16"), ("float32", "Float32"), ("float64", "Float64"),
        ("float8_e4m3fn", "Float8e4m3"), ("float8_e5m2", "Float8e5m2"), ("int8", "Int8"), ("int32", "Int32"),
        ("uint64", "Uint64"),
    ],
)  # fmt: skip
def test_a_number_as_an_element(dtype: str, kind: str) -> None:
    wanted = as_dtype(dtype)
    rng = np.random.default_rng(3)
    numbers = [0.0, 1.0, 2.0, 3.0, 100.0]
    if wanted.kind not in "iu":
        numbers += [-0.0, -1.5, 1 / 3, 0.1, 5e-8, 1e-3, 2.0**-9, 3 * 2.0**-10, 447.0, *rng.normal(size=200) * 10]
    for number in numbers:
        exact = np.asarray([number]).astype(wanted)
        assert element(CONSTANTS[f"nccl{kind}"], number)[: wanted.itemsize] == exact.tobytes(), number


@pytest.mark.plain
def test_versions_for_people() -> None:
    assert [version_text(n) for n in (21803, 22809, 23203)] == ["2.18.3", "2.28.9", "2.32.3"]


def pairs(calls: list[NcclCall], kind: str) -> list[tuple[int, int]]:
    return [(call.peer, call.count) for call in calls if call.kind == CONSTANTS[f"ATOMR_NCCL_{kind}"]]


@pytest.mark.plain
@pytest.mark.parametrize(
    "step",
    [
        Step("gather", "int16", 3, root=1),
        Step("scatter", "float64", 5, root=2),
        Step("send", "bool", 7, root=2, target=0),
        Step("all_to_all", "float32", 10, counts=((0, 1, 2), (3, 0, 0), (4, 0, 0))),
    ],
    ids=lambda step: step.kind,
)
def test_sends_and_receives_match(step: Step) -> None:
    """Each send has its receive, of as many bytes, and no call is of none."""
    calls = [calls_of(step, rank, 3, 22809) for rank in range(3)]
    sent = sorted((rank, peer, n) for rank in range(3) for peer, n in pairs(calls[rank], "SEND"))
    received = sorted((peer, rank, n) for rank in range(3) for peer, n in pairs(calls[rank], "RECEIVE"))
    assert sent == received
    assert sent
    assert all(n > 0 for *_, n in sent)


@pytest.mark.plain
def test_all_to_all_is_one_call_where_the_library_has_it() -> None:
    even = Step("all_to_all", "float32", 18, counts=((2,) * 3,) * 3, x=0, out=1)
    [call] = calls_of(even, 1, 3, 22803)
    assert (call.kind, call.count, call.x, call.out) == (CONSTANTS["ATOMR_NCCL_ALL_TO_ALL"], 8, 0, 1)
    assert len(pairs(calls_of(even, 1, 3, 22802), "SEND")) == 3


@pytest.mark.plain
def test_no_second_copy_is_loaded_beside_a_file_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL calls its own exported functions by name: another copy that is loaded for all would answer them."""
    asked: list[str] = []

    def load(key: str) -> SimpleNamespace:
        asked.append(key)
        return SimpleNamespace(abs_path=f"/somewhere/{key}")

    monkeypatch.setitem(sys.modules, "cuda.pathfinder", SimpleNamespace(load_nvidia_dynamic_lib=load))
    monkeypatch.setenv("ATOMR_NATIVE_NCCL", "/elsewhere/libnccl.so.2")
    assert library_file.__wrapped__("nccl") == ""
    assert asked == []
    monkeypatch.delenv("ATOMR_NATIVE_NCCL")
    assert library_file.__wrapped__("nccl") == "/somewhere/nccl"
