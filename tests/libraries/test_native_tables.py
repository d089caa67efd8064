"""The checked-in tables of NVIDIA's libraries, and the tool that writes them, `make tables`.  Needs no GPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import cuda_wheels
import pytest
from cuda_wheels import check_syntax

pytest.importorskip("pycparser", reason="pip install -e '.[test-cuda]'")

import native_tables
from native_headers import Header, HeaderError, NotInstalledError, headers
from native_tables import CYTHON, Names, names

pytestmark = pytest.mark.plain

LISTS = sorted(path.relative_to(CYTHON).as_posix() for path in CYTHON.rglob("*.toml"))


def installed(listed: Names) -> list[Header]:
    """Return the headers of a list, the newest first; skips, saying why, where there are none."""
    try:
        return headers(listed.header, listed.defines)
    except NotInstalledError as error:
        pytest.skip(str(error))


@pytest.mark.abi
@pytest.mark.parametrize("path", LISTS)
def test_tables_are_as_lists_and_headers_say(path: str) -> None:
    listed = names(CYTHON / path)
    newest = installed(listed)[0]
    if newest.major != 13:
        pytest.skip(f"names of parameters are those of CUDA 13; installed is {newest}")
    assert not native_tables.stale(listed), f"make tables writes {listed.output.name} anew"


def redeclared(listed: Names, header: Header, newest: bool, swap: tuple[str, str] = ("", "")) -> str:
    """Return C that compiles only if a table is as a header says; `swap` plants an error."""
    text = listed.output.read_text(encoding="utf-8")
    lines = ["#include <stddef.h>", "#include <stdint.h>", f"#include <{header.name}>"]
    for kind, name in re.findall(r"^typedef ([\w ]+?) ?(\*?\w+);", text, re.M):
        if name.startswith("*"):
            lines.append(f'_Static_assert(__builtin_classify_type(({name[1:]})0) == 5, "{name[1:]} is a pointer");')
        else:
            lines.append(f'_Static_assert(sizeof({name}) == sizeof({kind}), "{name}");')
    lines += [re.sub(r"^(typedef|enum) .*\n", "", text, flags=re.M).replace(*swap)]
    lines += ['#define C(name, value) _Static_assert(name == value, "constant");']
    lines += ['#define S(name, size) _Static_assert(sizeof(name) == size, "struct");']
    # What is unknown has no type.
    lines += ["#define F(result, name, arguments) extern __typeof__(name) name; result name arguments;"]
    for kind in ("CONSTANTS(C)", "STRUCTS(S)", "FUNCTIONS(F)", *["OPTIONAL(F)"] * newest):
        macro = f"ATOMR_{listed.prefix}_{kind}"
        if f"#define {macro}" in text:
            lines.append(macro)
    return "\n".join(lines) + "\n"


def said(listed: Names, header: Header, newest: bool, swap: tuple[str, str] = ("", "")) -> str:
    return check_syntax(redeclared(listed, header, newest, swap), [*header.folders, CYTHON])


@pytest.mark.abi
@pytest.mark.parametrize("path", LISTS)
def test_gcc_takes_tables_beside_the_headers_of_each_cuda(path: str) -> None:
    """Holds the written text against the headers, without the tool."""
    listed = names(CYTHON / path)
    found = installed(listed)
    assert [said(listed, header, header is found[0]) for header in found] == [""] * len(found)


@pytest.mark.abi
@pytest.mark.parametrize(
    ("path", "swap"),
    [
        ("cuda/driver_names.toml", ("CAN_USE_64_BIT_STREAM_MEM_OPS, 122", "CAN_USE_64_BIT_STREAM_MEM_OPS, 92")),
        ("cuda/driver_names.toml", ("CUipcMemHandle, 64", "CUipcMemHandle, 32")),
        ("cuda/driver_names.toml", ("size_t bytesize", "unsigned int bytesize")),
        ("cuda/driver_names.toml", ("cuMemHostRegister_v2", "cuMemHostRegister_v7")),
        ("libraries/cublas/names.toml", ("const float *x, int incx, float *y", "float *x, int incx, float *y")),
        ("libraries/cublaslt/names.toml", ("F(size_t, cublasLtGetVersion", "F(int, cublasLtGetVersion")),
    ],
    ids=["constant", "struct", "argument", "name", "const", "result"],
)
def test_a_planted_error_is_found(path: str, swap: tuple[str, str]) -> None:
    listed = names(CYTHON / path)
    assert swap[0] in listed.output.read_text(encoding="utf-8")
    errors = re.findall(r"error: (.*)", said(listed, installed(listed)[0], True, swap))
    assert errors
    assert all(re.search("static assertion failed|conflicting types|undeclared|redeclared", error) for error in errors)


HEADER = """
#include <stdint.h>
typedef enum { LIB_OK, LIB_BAD = 7 } libStatus_t;
#define LIB_FLAG (LIB_BAD << 2)
#define LIB_WIDE 0x80000000u
typedef struct libContext *libHandle_t;
typedef struct { uint64_t data[8]; } libOpaque;
typedef const libOpaque *libPlan_t;
typedef struct { uint64_t data[2]; } libAlgo_t;
struct libShape { int rank; };
typedef struct libShape libShape_t;
typedef struct libState libState_t;
typedef unsigned long long libKey_v1;
typedef libKey_v1 libKey_t;
typedef int libIndex_t;
typedef libStatus_t (*libCallback_t)(libHandle_t handle, void *user);
#define LIBAPI __attribute__((visibility("default")))
static inline libStatus_t libHelper(void) { return LIB_OK; }
LIBAPI libStatus_t libCreate(libHandle_t *handle);
LIBAPI const char *libText(libStatus_t);
LIBAPI libStatus_t libAxpy(libHandle_t handle, libIndex_t n, const float *const x[], const libAlgo_t *algo);
LIBAPI libStatus_t libRun(libPlan_t plan, libKey_t key, libState_t *state, libCallback_t done);
#define libStop libStop_v2
LIBAPI libStatus_t libReshape(libShape_t *shape);
LIBAPI libStatus_t libStop(libHandle_t handle);
"""

LIST = """
header = "lib.h"
prefix = "LIB"
constants = ["LIB_BAD", "LIB_FLAG"]
structs = ["libAlgo_t"]
needed = ["lib{Create,Text}", "libAxpy"]
optional = ["libRun"]
"""

TABLE = """/* The parts of lib.h that names.toml lists; written by `make tables`. */
#ifndef ATOMR_LIB_NAMES_H
#define ATOMR_LIB_NAMES_H

#include "cuda/fields.h"

typedef struct libContext *libHandle_t;
typedef int libStatus_t;
typedef int libIndex_t;
typedef const struct libOpaque *libPlan_t;
typedef unsigned long long libKey_t;
typedef struct libState libState_t;
typedef libStatus_t (*libCallback_t)(libHandle_t handle, void *user);

#define ATOMR_LIB_CONSTANTS(C) \\
    C(LIB_BAD, 7) \\
    C(LIB_FLAG, 28)

enum { ATOMR_LIB_CONSTANTS(ATOMR_ENUMERATOR) };

#define ATOMR_LIB_STRUCTS(S) \\
    S(libAlgo_t, 16)

#define ATOMR_LIB_FUNCTIONS(F) \\
    F(libStatus_t, libCreate, (libHandle_t *handle)) \\
    F(const char *, libText, (libStatus_t)) \\
    F(libStatus_t, libAxpy, (libHandle_t handle, libIndex_t n, const float *const x[], const libAlgo_t *algo))

#define ATOMR_LIB_OPTIONAL(F) \\
    F(libStatus_t, libRun, (libPlan_t plan, libKey_t key, libState_t *state, libCallback_t done))

#endif
"""


class TestTool:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two CUDA majors: 13 with all headers in one folder, 12 with one for each library."""
        if shutil.which("gcc") is None:
            pytest.skip("gcc is not installed")
        self.root = tmp_path
        monkeypatch.setattr(cuda_wheels, "roots", lambda: [tmp_path / "wheels"])
        monkeypatch.setattr(native_tables, "CYTHON", tmp_path)
        for major, toolkit, own in ((13, "cu13", "cu13"), (12, "cuda_runtime", "lib")):
            for name, part, text in (("cuda.h", toolkit, f"#define CUDA_VERSION {major}010\n"), ("lib.h", own, HEADER)):
                file = tmp_path / "wheels" / part / "include" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)

    def source(self, swap: tuple[str, str] = ("", ""), old: tuple[str, str] = ("", "")) -> str:
        """Return the table; `swap` changes the list, and `old` CUDA 12's header."""
        assert swap[0] in LIST
        assert old[0] in HEADER
        (self.root / "wheels/lib/include/lib.h").write_text(HEADER.replace(*old))
        (self.root / "lib").mkdir(exist_ok=True)
        (self.root / "lib" / "names.toml").write_text(LIST.replace(*swap))
        return native_tables.source(names(self.root / "lib" / "names.toml"))

    def test_a_table(self) -> None:
        table = self.source()
        assert re.sub(r" +\\$", r" \\", table, flags=re.M) == TABLE
        assert {len(line) for line in table.splitlines() if line.endswith("\\")} == {119}

    def test_both_majors_are_read(self) -> None:
        assert [(header.major, header.folders[0].parent.name) for header in headers("lib.h")] == [
            (13, "cu13"), (12, "lib")
        ]  # fmt: skip

    @pytest.mark.parametrize(
        "old",
        [
            ("libHandle_t handle, libIndex_t n", "libHandle_t context, libIndex_t size"),
            ("LIBAPI libStatus_t libRun(libPlan_t plan, libKey_t key, libState_t *state, libCallback_t done);", ""),
            ("data[8]", "data[4]"),
            ("typedef struct { uint64_t data[2]", "#include <cstddef>\ntypedef struct { alignas(8) uint64_t data[2]"),
        ],
        ids=["names of parameters", "no optional function", "an opaque struct", "a header of C++"],
    )
    def test_may_differ(self, old: tuple[str, str]) -> None:
        assert self.source(old=old) == self.source()

    def test_a_header_that_is_not_complete_is_as_none(self) -> None:
        lacks = r"crt/none\.h, which .*lib/include/lib\.h includes, is not installed"
        with pytest.raises(NotInstalledError, match=lacks):
            self.source(old=("#include <stdint.h>", '#include "crt/none.h"'))
        with pytest.raises(pytest.skip.Exception, match=lacks):
            check_syntax("#include <lib.h>\n", [self.root / "wheels/lib/include"])
        assert "fatal error: none.h" in check_syntax("#include <none.h>\n", [])  # what is ours to have

    @pytest.mark.parametrize(
        ("swap", "message"),
        [
            (('"LIB_FLAG"', '"LIB_FLAGS"'), r"lib\.h of CUDA 13 .* has no constant LIB_FLAGS; near: .*LIB_FLAG"),
            (('"libAxpy"', '"libAxpi"'), r"lib\.h of CUDA 13 .* has no function libAxpi; near: \['libAxpy'"),
            (('"libRun"', '"libRuns"'), r"lib\.h of CUDA 13 .* has no function libRuns; near: \['libRun'"),
            (('"libAxpy"', '"libStop"'), r"lib\.h of CUDA 13 .* has no function libStop; near: .*libStop_v2"),
            (('"LIB_FLAG"', '"LIB_WIDE"'), r"constant LIB_WIDE is 2147483648; the table holds numbers of 32 bits"),
            (('["libAlgo_t"]', "[]"), r"libAlgo_t is a struct; declare it by hand"),
            (('"libRun"', '"libReshape"'), r"libShape_t is a struct; declare it by hand"),
            (('"libAlgo_t"', '"libAlgos_t"'), r"lib\.h of CUDA 13 .* has no struct libAlgos_t; near: \['libAlgo_t'"),
            (('"libAxpy"', '"libAxpy", "libText"'), r"libText twice among the functions"),
            (('["libAlgo_t"]', '"libAlgo_t"'), r"structs is 'libAlgo_t'; it is a list of names"),
            (("needed", "wanted"), r"wanted unknown or missing; a list has .*'needed'"),
            (('"lib.h"', '"no.h"'), r"no\.h is not installed: pip install"),
        ],
    )
    def test_a_wrong_list_is_named(self, swap: tuple[str, str], message: str) -> None:
        with pytest.raises(HeaderError, match=message):
            self.source(swap)

    @pytest.mark.parametrize(
        ("old", "message"),
        [
            (("LIB_BAD = 7", "LIB_BAD = 8"), r"constant LIB_BAD differs: 7 in lib\.h of CUDA 13 .*; 8 in .* CUDA 12"),
            (("LIB_FLAG", "LIB_OTHER"), r"lib\.h of CUDA 12 .* has no constant LIB_FLAG"),
            (("libIndex_t n", "long n"), r"function libAxpy differs: .*'libIndex_t'.* CUDA 13 .*; .*'long'.* CUDA 12"),
            (("int libIndex_t", "long libIndex_t"), r"type libIndex_t differs: .*int libIndex_t.*; .*long libIndex_t"),
            (("data[2]", "data[3]"), r"size of libAlgo_t differs: 16 in .* CUDA 13 .*; 24 in .* CUDA 12"),
            (("libText", "libName"), r"lib\.h of CUDA 12 .* has no function libText"),
        ],
    )  # fmt: skip
    def test_a_difference_between_majors_is_named(self, old: tuple[str, str], message: str) -> None:
        with pytest.raises(HeaderError, match=message):
            self.source(old=old)

    def test_a_name_of_which_there_is_a_later_version(self) -> None:
        later = ("#define libStop libStop_v2", "#define libText libText_v2\nconst char *libText(libStatus_t);")
        with pytest.raises(
            HeaderError, match=r"CUDA 12 .* renames libText to libText_v2: list libText_v2, or libText in"
        ):
            self.source(old=later)
        assert self.source(('"libRun"]', '"libRun"]\nearlier = ["libText"]'), later) == self.source()
