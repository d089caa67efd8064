"""Structs of driver.h, and numbers of tensor maps, against cuda.h of both CUDA majors.

`tests/libraries/test_native_tables.py` compares constants, types and functions.  None of this needs a GPU or a
driver; `cuda_wheels` says where the headers come from.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from cuda_wheels import check_syntax, find
from lt_emulator import source

from atomr_native.libraries.kernel import tensor_map

pytestmark = [pytest.mark.abi, pytest.mark.plain]

HEADER = source("cuda/driver.h")
#: The wheel that ships cuda.h, by CUDA major.
WHEELS = {12: "nvidia-cuda-runtime-cu12", 13: "nvidia-cuda-runtime"}


@pytest.fixture(params=WHEELS, scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    """Return the folder of cuda.h of each CUDA major."""
    major: int = request.param
    for path in find("cuda.h"):
        version = re.search(r"^#define CUDA_VERSION (\d+)", path.read_text(errors="replace"), re.M)
        if version and int(version[1]) // 1000 == major:
            return path.parent
    pytest.skip(f"cuda.h of CUDA {major} not found; pip install {WHEELS[major]}, or set ATOMR_NATIVE_CUDA_WHEELS")


@cache
def text() -> str:
    return re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)


def aggregates() -> list[tuple[str, str, str]]:
    """Return ``struct`` or ``union``, its body, and its name."""
    # Bodies have one level of braces inside.
    return re.findall(r"^typedef (struct|union) \{((?:[^{}]|\{[^{}]*\})*)\} (CU\w+);", text(), re.M)


def fields(body: str) -> list[str]:
    """Return the members of a struct or union; of those inside, as ``outer.inner``."""
    found: list[str] = []
    inside = re.compile(r"struct \{([^{}]*)\} (\w+);")
    for members, name in inside.findall(body):
        found += [f"{name}.{member}" for member in fields(members)]
    for declaration in inside.sub("", body).split(";"):
        for part in declaration.split(","):
            if name := re.search(r"(\w+)(?:\[\d+\])?\s*$", part.strip()):
                found.append(name[1])
    return found


def c_source(swap: tuple[str, str] = ("", "")) -> str:
    """Return C that compiles only if our structs are the header's; `swap` plants an error."""
    lines = ["#include <stddef.h>", "#include <stdint.h>", "#include <cuda.h>"]
    for kind, body, name in aggregates():
        lines.append(f"typedef {kind} {{ {body} }} ours_{name};")
        lines.append(f'_Static_assert(sizeof(ours_{name}) == sizeof({name}), "sizeof {name}");')
        lines += [
            f'_Static_assert(offsetof(ours_{name}, {field}) == offsetof({name}, {field}), "{name}.{field}");'
            for field in fields(body)
        ]
        lines += [
            f'_Static_assert(sizeof(((ours_{name} *)0)->{field}) == sizeof((({name} *)0)->{field}), "{name}.{field}");'
            for field in fields(body)
        ]
    return "\n".join(lines).replace(*swap) + "\n"


def test_structs_are_the_headers(folder: Path) -> None:
    assert len(aggregates()) > 5
    assert check_syntax(c_source(), [folder]) == ""


@pytest.mark.parametrize(
    "swap",
    [
        ("int requestedHandleTypes;", "long requestedHandleTypes;"),
        ("unsigned short usage;", "unsigned char usage;"),
        ("char bytes[16]", "char bytes[8]"),
    ],
    ids=["member", "order", "size"],
)
def test_a_planted_error_is_found(folder: Path, swap: tuple[str, str]) -> None:
    assert swap[0] in c_source()
    errors = re.findall(r"error: (.*)", check_syntax(c_source(swap), [folder]))
    assert errors
    assert all("static assertion failed" in error for error in errors)


def tensor_map_names() -> list[tuple[str, int]]:
    """Return the driver's name for what a `TensorMap` says, and the number that the worker gives it."""
    floats = {"float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT64", "bfloat16": "BFLOAT16"}
    tables = {
        "DATA_TYPE": [floats.get(name, name.upper()) for name in tensor_map._TYPES],
        "INTERLEAVE": tensor_map._INTERLEAVES,
        "SWIZZLE": tensor_map._SWIZZLES,
        "L2_PROMOTION": [name if name == "none" else f"L2_{name}" for name in tensor_map._PROMOTIONS],
        "FLOAT_OOB_FILL": ["NONE", "NAN_REQUEST_ZERO_FMA"],
    }
    return [
        (f"CU_TENSOR_MAP_{table}_{name if name != 'none' else 'NONE'}", number)
        for table, names in tables.items()
        for number, name in enumerate(names)
    ]


def test_numbers_of_tensor_maps(folder: Path) -> None:
    asserts = "\n".join(f'_Static_assert({name} == {value}, "{name}");' for name, value in tensor_map_names())
    assert check_syntax(f"#include <cuda.h>\n{asserts}\n", [folder]) == ""
