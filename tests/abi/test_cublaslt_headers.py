"""cublaslt.h against the real thing: NVIDIA's headers with gcc, the library's symbols, and attribute sizes asked of it.

None of this needs a GPU.  The wheels are found where the `nvidia` packages are installed, or below the folders of
ATOMR_NATIVE_CUDA_WHEELS (separated as PATH is); tests skip, saying why, where there are none.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cuda_wheels import check_syntax, find
from lt_emulator import compile_shared, source

from atomr_native.worker.cuda.lt_tables import CONSTANTS

pytestmark = [pytest.mark.abi, pytest.mark.plain]

HEADER = source("cublaslt.h")


#: A header, and the wheel that ships it.
HEADERS = {
    "cublasLt.h": "nvidia-cublas",
    "library_types.h": "nvidia-cuda-runtime",
    "crt/host_defines.h": "nvidia-cuda-crt",
    "nv/target": "nvidia-cuda-cccl",
}


def includes() -> list[Path]:
    """Return the folders to include from, or skip."""
    found = {name: find(name) for name in HEADERS}
    missing = [name for name, paths in found.items() if not paths]
    if missing:
        pytest.skip(
            f"{', '.join(missing)} not found; pip install {' '.join(HEADERS[name] for name in missing)}, or set "
            f"ATOMR_NATIVE_CUDA_WHEELS"
        )
    return list(dict.fromkeys(Path(str(path).removesuffix(name)) for name, paths in found.items() for path in paths))


def declarations() -> tuple[dict[str, int], list[tuple[str, str, str]], dict[str, str]]:
    """Return constants, functions (result, name, arguments) and structs (name, body) of cublaslt.h."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    constants = {name: int(value) for name, value in re.findall(r"^    (CU\w+) = (\d+)", text, re.M)}
    macro = re.search(r"#define ATOMR_CUBLASLT_FUNCTIONS\(F\)(.*?)\n\n", text, re.S)
    assert macro is not None
    joined = re.sub(r"\s+", " ", macro[1].replace("\\\n", " "))
    functions = re.findall(r"F\(([^,]+), (\w+), \((.*?)\)\)(?= F\(| ?$)", joined)
    assert len(functions) == joined.count("F(")
    structs = {name: body for body, name in re.findall(r"typedef struct \{([^}#]*)\} (cublas\w+);", text)}
    return constants, functions, structs


def c_source(extra: dict[str, int] | None = None, swap: tuple[str, str] = ("", "")) -> str:
    """Return C that compiles only if our declarations are the header's; `swap` plants an error."""
    constants, functions, structs = declarations()
    lines = ["#include <stddef.h>", "#include <stdint.h>", "#include <cublasLt.h>"]
    for name, value in (constants | (extra or {})).items():
        lines.append(f'_Static_assert({name} == {value}, "{name}");')
    for handle in ("cublasLtHandle_t", "cublasLtMatmulDesc_t", "cublasLtMatrixLayout_t", "cublasLtMatmulPreference_t"):
        lines.append(f'_Static_assert(__builtin_classify_type(({handle})0) == 5, "{handle} is a pointer");')
    for number in re.findall(r"^typedef int (\w+);", HEADER.read_text(), re.M):
        lines.append(f'_Static_assert(sizeof({number}) == sizeof(int), "{number} is an int");')
    for name, body in structs.items():
        lines.append(f"struct ours_{name} {{ {body} }};")
        lines.append(f'_Static_assert(sizeof(struct ours_{name}) == sizeof({name}), "sizeof {name}");')
        for field in re.findall(r"(\w+)(?:\[\d+\])?;", body):
            lines.append(
                f'_Static_assert(offsetof(struct ours_{name}, {field}) == offsetof({name}, {field}), "{name}.{field}");'
            )
    lines += [f"{result} {name}({arguments});" for result, name, arguments in functions]
    return "\n".join(lines).replace(*swap) + "\n"


def test_declarations_are_the_headers() -> None:
    constants, functions, structs = declarations()
    assert (len(constants) > 45, len(functions), len(structs)) == (True, 19, 2)
    assert check_syntax(c_source(CONSTANTS), includes()) == ""


@pytest.mark.parametrize(
    "swap",
    [
        ("CUBLASLT_EPILOGUE_DGELU == 192", "CUBLASLT_EPILOGUE_DGELU == 208"),
        ("size_t workspaceSizeInBytes", "int workspaceSizeInBytes"),
        ("float wavesCount", "double wavesCount"),
        ("int reserved[4]", "int reserved[8]"),
    ],
)
def test_a_planted_error_is_found(swap: tuple[str, str]) -> None:
    assert swap[0] in c_source()
    errors = re.findall(r"error: (.*)", check_syntax(c_source(swap=swap), includes()))
    assert errors
    assert all(re.search("static assertion failed|conflicting types", error) for error in errors)


def test_python_and_c_have_the_same_constants() -> None:
    constants = declarations()[0]
    assert CONSTANTS.items() <= constants.items()


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    found = find("libcublasLt.so.1[23]")
    if not found:
        pytest.skip("libcublasLt not found; pip install nvidia-cublas, or set ATOMR_NATIVE_CUDA_WHEELS")
    return ctypes.CDLL(str(found[0]))


def test_every_function_is_exported(library: ctypes.CDLL) -> None:
    missing = [name for _, name, _ in declarations()[1] if not hasattr(library, name)]
    assert missing == []


def test_attribute_sizes_are_the_librarys(library: ctypes.CDLL) -> None:
    """GetAttribute with size 0 answers the true size; those are the sizes that the plan code passes."""
    constants = declarations()[0]
    sizes = {
        "MatmulDesc": {
            "TRANSA": 4, "TRANSB": 4, "EPILOGUE": 4, "BIAS_POINTER": 8, "BIAS_BATCH_STRIDE": 8,
            "EPILOGUE_AUX_POINTER": 8, "EPILOGUE_AUX_LD": 8, "EPILOGUE_AUX_BATCH_STRIDE": 8, "POINTER_MODE": 4,
            "A_SCALE_POINTER": 8, "B_SCALE_POINTER": 8, "D_SCALE_POINTER": 8, "AMAX_D_POINTER": 8,
            "EPILOGUE_AUX_DATA_TYPE": 4, "FAST_ACCUM": 1, "BIAS_DATA_TYPE": 4, "A_SCALE_MODE": 4, "B_SCALE_MODE": 4,
        },
        "MatrixLayout": {"ORDER": 4, "BATCH_COUNT": 4, "STRIDED_BATCH_OFFSET": 8, "BATCH_MODE": 4},
        "MatmulPreference": {
            "MAX_WORKSPACE_BYTES": 8, "MIN_ALIGNMENT_A_BYTES": 4, "MIN_ALIGNMENT_B_BYTES": 4,
            "MIN_ALIGNMENT_C_BYTES": 4, "MIN_ALIGNMENT_D_BYTES": 4,
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
            number = constants[f"CUBLASLT_{prefixes[kind]}_{name}"]
            get = getattr(library, f"cublasLt{kind}GetAttribute")
            assert get(handle, number, None, ctypes.c_size_t(0), ctypes.byref(written)) == 0
            assert (name, written.value) == (name, size)
        assert getattr(library, f"cublasLt{kind}Destroy")(handle) == 0
    asked = {name for attributes in sizes.values() for name in attributes}
    prefix = re.compile("CUBLASLT_(MATMUL_DESC|MATRIX_LAYOUT|MATMUL_PREF)_")
    declared = {prefix.sub("", name) for name in constants if prefix.match(name)}
    assert asked == declared


LOADER = r"""
#include "cublaslt.h"
#include <stdio.h>
int main(int n, char **arguments) {
    char why[2048];
    const atomr_cublaslt *lt = atomr_cublaslt_load(n > 1 ? arguments[1] : NULL, why, sizeof why);
    if (!lt) return printf("%s", why), 1;
    cublasLtHandle_t handle;
    const int status = lt->cublasLtCreate(&handle);
    printf("%zu %s %s", lt->version, lt->file, lt->cublasLtGetStatusName(status));
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
    command = [gcc, "-std=c11", "-Wall", "-Wextra", f"-I{HEADER.parent}", str(folder / "loader.c")]
    subprocess.run([*command, str(source("cublaslt.c")), "-o", str(folder / "loader"), "-ldl", "-pthread"], check=True)
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
