"""What every library folder must have: a test walks the registry and says what a library lacks."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import typed_names

import atomr_native as an
from atomr_native.libraries import (
    EXPORTS,
    LIBRARIES,
    MAILBOXES,
    OPERATIONS,
    Aliasing,
    _loaded,
    attributes_of,
    find_operation,
    load_actor,
)
from atomr_native.libraries import builder as builder_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "atomr_native" / "libraries"
#: Libraries that users call, as attributes of a device.
CALLED = [name for name, library in LIBRARIES.items() if library.actor]


def test_every_folder_is_registered_and_every_descriptor_is_a_folder() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(LIBRARIES) == folders


@pytest.mark.parametrize("name", LIBRARIES)
def test_operations_name_builders_that_exist_or_say_why_there_is_none(name: str) -> None:
    for operation in LIBRARIES[name].operations:
        for kind in ("host", "cuda"):
            built = builder_of(operation.name, kind)
            if built is None:
                assert operation.missing, f"{operation.name} has no builder for {kind} and does not say why"
                continue
            parameters = list(inspect.signature(built).parameters)
            assert len(parameters) == 2, f"{operation.name}: a builder takes a specification and a context"


@pytest.mark.parametrize("name", CALLED)
def test_the_files_of_a_library(name: str) -> None:
    folder = PACKAGE / name
    lacking = [file for file in ("actor.py", "spec.py") if not (folder / file).exists()]
    lacking += [
        kind for kind in ("host", "cuda") if not (folder / f"{kind}.py").exists() and not (folder / kind).is_dir()
    ]
    if not any((ROOT / "tests" / "libraries" / name).glob("test_*.py")):
        lacking.append(f"tests/libraries/{name}/test_*.py")
    assert not lacking, f"libraries/{name} lacks {', '.join(lacking)}"


@pytest.mark.parametrize("name", CALLED)
def test_a_library_is_an_attribute_of_devices(name: str) -> None:
    with an.System() as system:
        device = system.device("host")
        actor = getattr(device, name)
        assert type(actor) is load_actor(name)
        assert actor is getattr(device, name)
        with pytest.raises(an.InvalidRequest, match=f"lane name '{name}'"):
            device.lane(name)


def test_public_names_are_where_descriptors_say() -> None:
    for name in EXPORTS:
        assert getattr(an, name).__name__ == name
    assert sum(len(library.exports) for library in LIBRARIES.values()) == len(EXPORTS), "two libraries have one name"
    assert {*EXPORTS} <= {*an.__all__}
    assert an.__all__ == sorted(set(an.__all__))


def test_what_type_checkers_read_is_what_the_registry_says() -> None:
    assert not typed_names.stale(), "make format writes these files anew"


def test_unknown_operations_get_the_strictest_rules() -> None:
    unknown = find_operation("quantum.fourier")
    assert unknown.aliasing is Aliasing.DISJOINT
    assert not unknown.essential


def test_wildcards_hold_for_their_prefix_only() -> None:
    assert find_operation("blas.gemm") is OPERATIONS["blas.*"][1]
    assert find_operation("blas_lt.gemm").name == ""
    assert find_operation("kernel.anything").aliasing is Aliasing.UNCHECKED


def test_aliasing_is_required() -> None:
    from atomr_native.libraries import Operation

    with pytest.raises(TypeError, match="aliasing"):
        Operation("fft.forward")  # type: ignore[call-arg]


def test_mailboxes_in_the_order_of_the_registry() -> None:
    assert MAILBOXES == (
        "memory",
        "blas_lt",
        "blas",
        "elementwise",
        "float8",
        "fused",
        "random",
        "fft",
        "solver",
        "sparse",
        "tensor",
        "cudnn",
        "cutlass",
        "collective",
        "program",
    )


def test_descriptors_load_nothing_else() -> None:
    program = (
        "import sys, atomr_native.libraries as libraries\n"
        "loaded = [name for name in sys.modules if name.startswith('atomr_native.') and '.libraries' not in name]\n"
        "print(sorted(set(loaded) - {'atomr_native.errors'}), 'numpy' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[] False"


def test_names_of_kernels_fill_no_cache() -> None:
    """A program may make kernels without end; what the registry keeps is bounded by its descriptors."""
    before = _loaded.cache_info().currsize
    for i in range(100):
        assert builder_of(f"kernel.of_users_{i}", "host") is builder_of("kernel.*", "host")
        assert attributes_of(f"kernel.of_users_{i}") is attributes_of("kernel.*")
    assert _loaded.cache_info().currsize <= before + 2
