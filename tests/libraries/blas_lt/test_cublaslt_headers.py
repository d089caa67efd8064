"""cuBLASLt's table against the real thing: layouts of structs, symbols of the library, attribute sizes asked of it.

`tests/libraries/test_native_tables.py` compares constants and functions.  None of this needs a GPU; `cuda_wheels` says
where the headers come from.  Tests skip, saying why, where there are none.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cuda_wheels import check_syntax, find, includes
from lt_emulator import compile_shared, source

from atomr_native._lib.cublaslt import CONSTANTS

pytestmark = [pytest.mark.abi, pytest.mark.plain]

HEADER = source("libraries/cublaslt/table.h")


def structs() -> dict[str, str]:
    """Return the bodies of the structs that our header declares."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    return {name: body for body, name in re.findall(r"typedef struct \{([^}#]*)\} (cublas\w+);", text)}


def c_source(swap: tuple[str, str] = ("", "")) -> str:
    """Return C that compiles only if our structs are the header's; `swap` plants an error."""
    lines = ["#include <stddef.h>", "#include <stdint.h>", "#include <cublasLt.h>"]
    for name, body in structs().items():
        lines.append(f"struct ours_{name} {{ {body} }};")
        lines.append(f'_Static_assert(sizeof(struct ours_{name}) == sizeof({name}), "sizeof {name}");')
        for field in re.findall(r"(\w+)(?:\[\d+\])?;", body):
            lines.append(
                f'_Static_assert(offsetof(struct ours_{name}, {field}) == offsetof({name}, {field}), "{name}.{field}");'
            )
    return "\n".join(lines).replace(*swap) + "\n"


def test_structs_are_the_headers() -> None:
    assert len(structs()) == 2
    assert check_syntax(c_source(), includes()) == ""


@pytest.mark.parametrize(
    "swap", [("float wavesCount", "double wavesCount"), ("int reserved[4]", "int reserved[8]")], ids=["member", "size"]
)
def test_a_planted_error_is_found(swap: tuple[str, str]) -> None:
    assert swap[0] in c_source()
    errors = re.findall(r"error: (.*)", check_syntax(c_source(swap=swap), includes()))
    assert errors
    assert all("static assertion failed" in error for error in errors)


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    found = find("libcublasLt.so.1[23]")
    if not found:
        pytest.skip("libcublasLt not found; pip install nvidia-cublas, or set ATOMR_NATIVE_CUDA_WHEELS")
    return ctypes.CDLL(str(found[0]))


def test_every_function_is_exported(library: ctypes.CDLL) -> None:
    names = re.findall(r"\bF\([^,()]+, (cublas\w+),", source("libraries/cublaslt/names.h").read_text())
    assert len(names) == 19
    assert [name for name in names if not hasattr(library, name)] == []


def test_attribute_sizes_are_the_librarys(library: ctypes.CDLL) -> None:
    """GetAttribute with size 0 answers the true size; those are the sizes that the plan code passes."""
    sizes = {
        "MatmulDesc": {
            "TRANSA": 4, "TRANSB": 4, "EPILOGUE": 4, "BIAS_POINTER": 8, "BIAS_BATCH_STRIDE": 8,
            "EPILOGUE_AUX_POINTER": 8, "EPILOGUE_AUX_LD": 8, "EPILOGUE_AUX_BATCH_STRIDE": 8, "POINTER_MODE": 4,
            "A_SCALE_POINTER": 8, "B_SCALE_POINTER": 8, "D_SCALE_POINTER": 8, "AMAX_D_POINTER": 8,
            "EPILOGUE_AUX_DATA_TYPE": 4, "FAST_ACCUM": 1, "BIAS_DATA_TYPE": 4, "A_SCALE_MODE": 4, "B_SCALE_MODE": 4,
        },
        "MatrixLayout": {"ORDER": 4, "BATCH_COUNT": 4, "STRIDED_BATCH_OFFSET": 8, "BATCH_MODE": 4},
        "MatmulPreference": {
            "MAX_WORKSPACE_BYTES": 8, "REDUCTION_SCHEME_MASK": 4, "MIN_ALIGNMENT_A_BYTES": 4,
            "MIN_ALIGNMENT_B_BYTES": 4, "MIN_ALIGNMENT_C_BYTES": 4, "MIN_ALIGNMENT_D_BYTES": 4,
        },
    }  # fmt: skip
    prefixes = {"MatmulDesc": "MATMUL_DESC", "MatrixLayout": "MATRIX_LAYOUT", "MatmulPreference": "MATMUL_PREF"}
    arguments: dict[str, tuple[Any, ...]] = {
        "MatmulDesc": (68, 0),
        "MatrixLayout": (0, ctypes.c_uint64(4), ctypes.c_uint64(4), ctypes.c_int64(4)),
        "MatmulPreference": (),
    }
    for kind, attributes in sizes.items():
        handle, written = ctypes.c_void_p(), ctypes.c_size_t()
        assert getattr(library, f"cublasLt{kind}Create")(ctypes.byref(handle), *arguments[kind]) == 0
        for name, size in attributes.items():
            number = CONSTANTS[f"CUBLASLT_{prefixes[kind]}_{name}"]
            get = getattr(library, f"cublasLt{kind}GetAttribute")
            assert get(handle, number, None, ctypes.c_size_t(0), ctypes.byref(written)) == 0
            assert (name, written.value) == (name, size)
        assert getattr(library, f"cublasLt{kind}Destroy")(handle) == 0
    asked = {name for attributes in sizes.values() for name in attributes}
    prefix = re.compile("CUBLASLT_(MATMUL_DESC|MATRIX_LAYOUT|MATMUL_PREF)_")
    declared = {prefix.sub("", name) for name in CONSTANTS if prefix.match(name)}
    assert asked == declared


LOADER = r"""
#include "libraries/cublaslt/table.h"
#include <stdio.h>
int main(int n, char **arguments) {
    char why[2048];
    const atomr_cublaslt *lt = atomr_cublaslt_load(n > 1 ? arguments[1] : NULL, why, sizeof why);
    if (!lt) return printf("%s", why), 1;
    cublasLtHandle_t handle;
    const int status = lt->cublasLtCreate(&handle);
    const atomr_library *library = &atomr_cublaslt_library;
    printf("%zu %s %s", library->version, library->file, lt->cublasLtGetStatusName(status));
    return 0;
}
"""


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loader")
    (folder / "loader.c").write_text(LOADER)
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    command = [gcc, "-std=c11", "-Wall", "-Wextra", f"-I{HEADER.parents[2]}", str(folder / "loader.c")]
    sources = (source("libraries/cublaslt/table.c"), source("cuda/library.c"))
    subprocess.run(
        [*command, *map(str, sources), "-o", str(folder / "loader"), "-ldl", "-pthread"],
        check=True,
    )
    return folder / "loader"


def load(loader: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run([str(loader), *arguments], capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout


def test_the_table_binds_to_the_real_library(loader: Path, library: ctypes.CDLL) -> None:
    path = library._name
    code, said = load(loader, path)
    assert code == 0
    version, file, status = said.split()
    assert (int(version), file) == (library.cublasLtGetVersion(), path)
    assert status.startswith("CUBLAS_STATUS_")  # NOT_INITIALIZED where there is no driver


def test_a_missing_library_is_one_error_with_what_would_help(loader: Path, tmp_path: Path) -> None:
    code, said = load(loader)
    if code == 0:
        pytest.skip("cuBLASLt is on the library path here")
    assert "tried libcublasLt.so.13 and libcublasLt.so.12" in said
    assert "pip install nvidia-cublas" in said
    code, said = load(loader, str(tmp_path / "gone.so"))
    assert (code, "gone.so" in said) == (1, True)


def test_missing_functions_are_named_with_file_and_version(loader: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.c"
    old.write_text("#include <stddef.h>\nsize_t cublasLtGetVersion(void) { return 110304; }\nint cublasLtMatmul;\n")
    library = compile_shared(tmp_path / "libold.so", [old])
    code, said = load(loader, "/no/such/file.so", ATOMR_NATIVE_CUBLASLT=str(library))  # the environment wins
    assert code == 1
    assert str(library) in said
    assert "version 110304" in said
    assert "lacks cublasLtGetCudartVersion, " in said
    assert "cublasLtMatmulPreferenceSetAttribute; pip install" in said
