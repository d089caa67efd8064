"""The package as it is shipped: metadata, what an import costs, source and wheel contents, the README's promises."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib import resources
from importlib.metadata import metadata, packages_distributions, version
from pathlib import Path

import pytest

from atomr_native.doctor.libraries import PACKAGES

pytestmark = pytest.mark.plain

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
SOURCES = {path.stem: path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "cython").rglob("*.pyx"))}
MODULES = list(SOURCES)
#: Imported where the package uses them, and there only; each is in an extra.
OPTIONAL = {"ray": "ray", "matplotlib": "demo", "sklearn": "demo", "numba": "kernels"}
#: Known to type checkers by themselves, and imported for them alone.
CHECKERS = "typing_extensions"
#: Names on the index that differ from the name of the import.
DISTRIBUTIONS = {"cuda": "cuda-pathfinder", "ml_dtypes": "ml-dtypes", "numba": "numba-cuda", "sklearn": "scikit-learn"}


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[A-Za-z0-9_.-]+", text)[0].lower() for text in requirements}


def python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=240, check=False, cwd=cwd
    )


def imports_of_the_package() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in (ROOT / "atomr_native").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [node.module]
            for module in modules:
                found.setdefault(module.partition(".")[0], set()).add(str(path.relative_to(ROOT)))
    return {name: files for name, files in found.items() if name not in sys.stdlib_module_names}


class TestMetadata:
    def test_the_installed_package_is_this_one(self):
        assert version("atomr-native") == PROJECT["version"]
        assert metadata("atomr-native")["License-Expression"] == "Apache-2.0"

    def test_license_is_apache_2_in_full(self):
        text = (ROOT / "LICENSE").read_text(encoding="utf-8")
        assert "Apache License" in text
        assert "END OF TERMS AND CONDITIONS" in text

    def test_every_import_is_a_declared_dependency(self):
        core = names(PROJECT["dependencies"])
        for module, files in imports_of_the_package().items():
            if module in ("atomr_native", CHECKERS):
                continue
            distribution = DISTRIBUTIONS.get(module, module).lower()
            if module in OPTIONAL:
                assert distribution in names(EXTRAS[OPTIONAL[module]])
            else:
                assert distribution in core, f"{module}, imported by {sorted(files)}"

    def test_every_dependency_is_imported(self):
        used = {DISTRIBUTIONS.get(module, module).lower() for module in imports_of_the_package()}
        assert names(PROJECT["dependencies"]) <= used

    def test_numpy_stays_below_the_release_that_numba_cuda_does_not_know(self):
        assert [text for text in PROJECT["dependencies"] if text.startswith("numpy")] == ["numpy>=2.1,<2.5"]

    @pytest.mark.parametrize("extra", ["cu12", "cu13"])
    def test_the_extras_bring_every_library_that_the_doctor_asks_for(self, extra):
        brought = names(EXTRAS[extra]) | names(EXTRAS[f"cudss-{extra}"])
        toolkit = next((text for text in EXTRAS[extra] if text.startswith("cuda-toolkit[")), "")
        # cuda-toolkit's extras are the names of NVIDIA's packages without their first part.
        parts = toolkit.partition("[")[2].partition("]")[0].split(",")
        brought |= {f"nvidia-{part}" for part in parts} | {f"nvidia-cuda-{part}" for part in parts}
        brought |= {"nvidia-cuda-runtime"} if "cudart" in parts else set()
        for library, (_, cu12, cu13) in PACKAGES.items():
            assert (cu12 if extra == "cu12" else cu13) in brought, library

    def test_the_extras_bring_the_tools_for_kernels(self):
        for extra in ("cu12", "cu13"):
            assert names(EXTRAS[extra]) >= {"numba-cuda", "cuda-python", "nvidia-cutlass", "nvidia-cudnn-frontend"}

    def test_cu13_stays_on_the_13_0_line(self):
        pinned = {text for text in EXTRAS["cu13"] if "13.0" in text}
        assert names(list(pinned)) == {"cuda-python", "cuda-toolkit", "nvidia-nvjitlink"}


class TestImport:
    def test_importing_loads_nothing_of_others(self):
        program = (
            "import sys; before = set(sys.modules); import atomr_native; "
            "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
            "print(*sorted(new - set(sys.stdlib_module_names)))"
        )
        done = python("-c", program)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["atomr_native"]

    def test_the_package_says_that_it_is_typed(self):
        assert (resources.files("atomr_native") / "py.typed").is_file()

    @pytest.mark.parametrize("module", MODULES)
    def test_every_cython_source_is_compiled_and_has_a_stub(self, module):
        assert importlib.util.find_spec(f"atomr_native._lib.{module}") is not None
        assert (ROOT / "atomr_native" / "_lib" / f"{module}.pyi").exists()

    @pytest.mark.skipif(shutil.which("nm") is None, reason="no nm on this machine")
    @pytest.mark.parametrize("module", MODULES)
    def test_compiled_modules_export_their_entry_point_only(self, module):
        file = importlib.util.find_spec(f"atomr_native._lib.{module}").origin
        listing = subprocess.run(["nm", "-D", "--defined-only", file], capture_output=True, text=True, check=True)
        exported = {line.split()[-1] for line in listing.stdout.splitlines()}
        assert exported - {"_init", "_fini"} == {f"PyInit_{module}"}

    def test_cython_folder_does_not_hide_cython(self):
        for name in ("__init__.py", "__init__.pxd", "__init__.pyx"):
            assert not list((ROOT / "cython").rglob(name))

    def test_what_cython_makes_by_hand_is_ignored_by_git(self):
        ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
        assert sorted(line for line in ignored if line.startswith("/cython/")) == [
            f"/cython/**/{module}.c" for module in sorted(MODULES)
        ]


class TestMissingModules:
    @pytest.fixture
    def bare(self, tmp_path):
        """Make a copy of the package with nothing compiled, imported ahead of the installed one."""
        shutil.copytree(ROOT / "atomr_native" / "_lib", tmp_path / "atomr_native" / "_lib")
        for so in tmp_path.rglob("*.so"):
            so.unlink()
        (tmp_path / "atomr_native" / "__init__.py").touch()
        return tmp_path

    def explain(self, folder: Path) -> str:
        # -S: without site, and so without an editable install's finder, which would know where the modules are.
        program = f"import sys; sys.path.insert(0, {str(folder)!r}); import atomr_native._lib.sender"
        done = python("-S", "-c", program)
        assert done.returncode == 1
        return done.stderr.strip().splitlines()[-1]

    def test_an_incomplete_installation_says_how_to_mend_it(self, bare):
        message = self.explain(bare)
        assert message.startswith("ImportError:")
        assert "the installation is incomplete" in message
        assert "pip install --force-reinstall atomr-native" in message

    def test_a_source_tree_says_how_to_compile_or_avoid_it(self, bare):
        (bare / "CMakeLists.txt").touch()
        message = self.explain(bare)
        assert "pip install -e ." in message
        assert "python -P" in message

    def test_another_python_is_named(self, bare):
        (bare / "atomr_native" / "_lib" / "sender.cpython-39-nowhere.so").touch()
        message = self.explain(bare)
        assert "sender.cpython-39-nowhere.so, built for another Python" in message
        assert sys.implementation.cache_tag in message


def build(kind: str, target: Path, source: Path) -> Path:
    """Call the build backend itself, without isolation; return the file that it made."""
    program = (
        f"from scikit_build_core.build import build_{kind}; "
        f"build_{kind}({str(target)!r}, {{'build-dir': {str(target / 'build')!r}}})"
    )
    done = python("-c", program, cwd=source)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = target.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return made


needs_backend = pytest.mark.skipif(
    importlib.util.find_spec("scikit_build_core") is None, reason="scikit-build-core is not installed"
)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    return build("sdist", tmp_path_factory.mktemp("sdist"), ROOT)


@needs_backend
class TestDistributions:
    def test_sdist_has_the_sources_the_tests_and_no_build_output(self, sdist):
        with tarfile.open(sdist) as archive:
            members = {name.partition("/")[2] for name in archive.getnames()}
        wanted = {"pyproject.toml", "CMakeLists.txt", "Makefile", "LICENSE", "README.md", "CHANGELOG.md"}
        generated = {source.removesuffix("pyx") + "c" for source in SOURCES.values()}
        for folder in ("cython", "tests/native"):
            wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.[chp]*")} - generated
        wanted |= {"tests/native/Makefile", "atomr_native/py.typed"}
        assert wanted <= members
        spoiled = {m for m in members if m.endswith((".so", ".o", ".pyc")) or m.split("/")[0] in ("build", ".venv")}
        assert not (spoiled | generated & members)
        assert not any(part.startswith(".") for member in members for part in member.split("/"))

    @pytest.mark.slow
    def test_wheel_built_from_the_sdist_has_modules_stubs_and_license(self, sdist, tmp_path):
        with tarfile.open(sdist) as archive:
            if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and newer; Debian 12 has 3.11.2
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(tmp_path)
        (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
        (tmp_path / "out").mkdir()
        with zipfile.ZipFile(build("wheel", tmp_path / "out", source)) as wheel:
            members = set(wheel.namelist())
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        for module in MODULES:
            assert f"atomr_native/_lib/{module}{suffix}" in members
            assert f"atomr_native/_lib/{module}.pyi" in members
        assert "atomr_native/py.typed" in members
        assert any(member.endswith("licenses/LICENSE") for member in members)
        assert {member.split("/")[0] for member in members} == {
            "atomr_native",
            f"atomr_native-{PROJECT['version']}.dist-info",
        }

    def test_nothing_but_the_package_is_installed_at_top_level(self):
        ours = {name for name, owners in packages_distributions().items() if "atomr-native" in owners}
        assert ours
        assert not {"tests", "bench", "cython", "examples", "docs"} & ours


class TestReadme:
    TEXT = (ROOT / "README.md").read_text(encoding="utf-8")

    def test_starts_with_demo_and_test(self):
        commands = [line for block in re.findall(r"```sh\n(.*?)```", self.TEXT, re.S) for line in block.splitlines()]
        assert [line.split("#")[0].strip() for line in commands[:2]] == ["make demo", "make test"]

    def test_make_targets_exist(self):
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for file in ("README.md", "CONTRIBUTING.md"):
            for target in re.findall(r"\bmake ([a-z-]+)\b", (ROOT / file).read_text(encoding="utf-8")):
                if target not in ("says", "if", "a", "sure"):
                    assert re.search(rf"^{target}:", makefile, re.M), f"make {target} in {file}"

    def test_links_lead_somewhere(self):
        for target in re.findall(r"\]\(([^)#]+)\)", self.TEXT):
            assert target.startswith("https://") or (ROOT / target).exists(), target

    def test_extras_exist(self):
        assert set(re.findall(r"`?'?\.?\[([a-z0-9]+)\]'?`", self.TEXT)) <= set(EXTRAS)
