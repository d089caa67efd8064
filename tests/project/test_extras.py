"""Extras bring the packages that they are for, and errors about a missing package name such an extra.

`make extras` installs each one into a fresh environment; here nothing is installed.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest

from atomr_native._support.extras import CUDA, how_to_install
from atomr_native.doctor import purposes

pytestmark = pytest.mark.plain

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
SOURCES = sorted([*(ROOT / "atomr_native").rglob("*.py"), *(ROOT / "examples").glob("*.py")])
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

#: Packages that others bring along.
ALONG = {"numba-cuda": {"cuda-bindings", "cuda-core", "numba"}, "cuda-python": {"cuda-bindings"}}
#: Modules, and the packages that they are in.
PACKAGE_OF = {
    "cuda.bindings": "cuda-bindings", "cuda.core": "cuda-core", "cuda.pathfinder": "cuda-pathfinder",
    "numba.cuda": "numba-cuda", "opentelemetry": "opentelemetry-api", "prometheus_client": "prometheus-client",
    "sklearn": "scikit-learn",
}  # fmt: skip
#: Imported where it is installed; nothing depends on it.
COMPARED = {"torch"}
FAILED_IMPORT = r"ImportError|ModuleNotFoundError"


def trees(pattern: str) -> Iterator[tuple[Path, ast.AST]]:
    """Parse the sources in which a pattern is found, which are few; this runs whenever tests are collected."""
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if re.search(pattern, text):
            yield path, ast.parse(text)


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[A-Za-z0-9_.-]+", text)[0].lower() for text in requirements}


def brought(extra: str) -> set[str]:
    """The packages that an extra installs, as far as messages name them; with those of the package itself."""
    direct = names(EXTRAS[extra]) | names(PROJECT["dependencies"])
    return direct.union(*(ALONG.get(name, set()) for name in direct))


def package_of(module: str) -> str:
    for name, package in PACKAGE_OF.items():
        if module == name or module.startswith(f"{name}."):
            return package
    return module.partition(".")[0].replace("_", "-")


def imported(tree: ast.AST) -> set[str]:
    """The modules of other projects that a tree imports, by statements or by `import_module`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            found |= {text.value for text in node.args[:1] if isinstance(text, ast.Constant)}
    from_here = {"atomr_native", *(path.stem for path in (ROOT / "examples").glob("*.py"))}
    return {name for name in found if name.partition(".")[0] not in sys.stdlib_module_names | from_here}


def words(tree: ast.AST) -> str:
    """All texts of a tree, with the parts of f-strings."""
    return " ".join(
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def extras_named(tree: ast.AST) -> list[str]:
    """The extras that code names in an error: by `how_to_install`, by `INSTALL_HINT`, or in a text."""
    found = re.findall(r"\.\[([a-z0-9,-]+)\]", words(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "how_to_install":
            for argument in node.args:
                found += CUDA if isinstance(argument, ast.Starred) else [argument.value]  # type: ignore[attr-defined]
        elif isinstance(node, ast.Name) and node.id == "INSTALL_HINT":
            found += CUDA
    return [name for text in found for name in text.split(",")]


def refusals() -> Iterator[tuple[str, ast.Try, ast.ExceptHandler]]:
    """Handlers of a failed import that raise an error of their own."""
    for path, tree in trees(FAILED_IMPORT):
        for node in ast.walk(tree):
            for handler in node.handlers if isinstance(node, ast.Try) else ():
                if re.search(FAILED_IMPORT, ast.dump(handler.type or ast.Constant(""))) and any(
                    isinstance(part, ast.Raise) for part in ast.walk(handler)
                ):
                    yield f"{path.relative_to(ROOT)}:{handler.lineno}", node, handler


REFUSALS = {place: (node, handler) for place, node, handler in refusals()}


def test_the_walk_finds_the_known_refusals() -> None:
    files = {place.partition(":")[0] for place in REFUSALS}
    assert {f"atomr_native/compile/{name}.py" for name in ("nvrtc", "linking", "numba/api")} <= files


@pytest.mark.parametrize("place", REFUSALS)
def test_a_refusal_names_an_extra_that_brings_the_package(place: str) -> None:
    node, handler = REFUSALS[place]
    modules = set().union(*(imported(part) for part in node.body))
    if not modules:
        return  # of this package
    packages = {package_of(module) for module in modules}
    extras = extras_named(handler)
    if not extras:
        assert packages <= names(PROJECT["dependencies"]), f"{place} names no extra for {packages}"
    for extra in extras:
        assert packages <= brought(extra), f"{place}: [{extra}] does not bring {packages - brought(extra)}"


def test_every_extra_that_code_names_exists() -> None:
    for path, tree in trees(r"\.\[|how_to_install|INSTALL_HINT"):
        wrong = set(extras_named(tree)) - set(EXTRAS)
        assert not wrong, f"{path.relative_to(ROOT)} names {wrong}"


def test_optional_modules_of_observe_are_in_its_extra() -> None:
    packages = set()
    for path in (ROOT / "atomr_native" / "observe").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "need" and len(node.args) == 3:
                packages.add(ast.literal_eval(node.args[1]))
                assert package_of(ast.literal_eval(node.args[0])) == ast.literal_eval(node.args[1])
    assert packages == names(EXTRAS["observe"])


def test_every_package_that_an_error_installs_is_in_an_extra() -> None:
    every = set().union(*map(brought, EXTRAS))
    texts = [words(tree) for _, tree in trees(r"\bpip\b")]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "cython").rglob("*.[ch]")]
    found = {
        package
        for text in texts
        for command in re.findall(r"\bpip install ([a-z][\w-]+(?: \(CUDA 1[23]\) or [\w-]+)?)", text)
        for package in re.sub(r" \(CUDA 1[23]\) or", "", command).split()
    }
    toolkit = {
        f"nvidia-{part}" for part in ("cublas", "cufft", "curand", "cusolver", "cusparse")
    }  # by cuda-toolkit's extras
    assert "nvidia-cublas-cu12" in found
    assert found <= every | toolkit


def test_texts_install_from_a_clone() -> None:
    for path in (*PAGES, *SOURCES):
        text = path.read_text(encoding="utf-8")
        assert "atomr-native[" not in text, f"{path.relative_to(ROOT)}: the package is on no index"
        for given in re.findall(r"""pip install [^\n#]*?'\.\[([\w,-]+)\]'|`\[([a-z][\w-]*)\]`""", text):
            assert set("".join(given).split(",")) <= set(EXTRAS), f"{path.relative_to(ROOT)} names {given}"


def test_examples_import_what_their_extra_brings() -> None:
    for path in sorted((ROOT / "examples").glob("*.py")):
        packages = {package_of(module) for module in imported(ast.parse(path.read_text(encoding="utf-8")))} - COMPARED
        assert packages <= brought("examples"), path.name


@pytest.mark.parametrize("use", purposes.PURPOSES)
def test_the_doctor_asks_for_what_the_extra_brings(use: str) -> None:
    _, extra, packages = purposes.PURPOSES[use]
    assert set(packages) == names(EXTRAS[extra])


@pytest.mark.parametrize("extra", CUDA)
def test_the_extras_of_a_gpu_bring_what_the_doctor_asks_for(extra: str) -> None:
    assert set(purposes._GPU) <= brought(extra)


def test_one_numba_cuda_in_all_extras() -> None:
    versions = {text.partition(">=")[2] for texts in EXTRAS.values() for text in texts if text.startswith("numba-cuda")}
    assert len(versions) == 1


@pytest.mark.parametrize("package", ALONG)
def test_packages_bring_others_along(package: str) -> None:
    try:
        needed = requires(package) or []
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    assert ALONG[package] <= names(needed)


def test_how_to_install() -> None:
    assert how_to_install("kernels") == "pip install '.[kernels]' in a clone of atomr_native"
    assert how_to_install(*CUDA).endswith(", or '.[cu12]' with a driver of CUDA 12")
