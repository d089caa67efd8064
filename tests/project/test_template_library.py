"""The recipe of CONTRIBUTING.md for a new library, done with a template, in a copy of the project."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).parent / "template_library"
#: Where each folder of the template goes.
PLACES = {
    "library": "atomr_native/libraries/blend",
    "tests": "tests/libraries/blend",
    "bench": "bench/libraries/blend",
    "docs": "docs/libraries",
}
#: An interpreter that takes the copy's package, not the installed one.
PROGRAM = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
sys.path[:0] = [{root!r}, {root!r} + "/tests/helpers"]
import atomr_native
assert atomr_native.__file__.startswith({root!r}), atomr_native.__file__
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project to which the template was added by the recipe."""
    root = tmp_path_factory.mktemp("project")
    skipped = shutil.ignore_patterns("__pycache__", "*.json", "*.gz", "fake_driver")
    for folder in ("atomr_native", "bench", "docs"):
        shutil.copytree(ROOT / folder, root / folder, ignore=skipped)
    shutil.copytree(ROOT / "tests" / "helpers", root / "tests" / "helpers", ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", root)
    native = importlib.util.find_spec("atomr_native._lib.sender")
    assert native is not None
    assert native.origin is not None
    for file in Path(native.origin).parent.glob("*.so"):
        if not (root / "atomr_native" / "_lib" / file.name).exists():
            shutil.copy(file, root / "atomr_native" / "_lib")
    for source, target in PLACES.items():
        shutil.copytree(TEMPLATE / source, root / target, dirs_exist_ok=True)
    (root / "bench" / "libraries" / "blend" / "__init__.py").touch()
    registry = root / "atomr_native" / "libraries" / "__init__.py"
    text, lines = re.subn(r'"collective",\n', '"collective", "blend",\n', registry.read_text(encoding="utf-8"))
    assert lines == 1, "the recipe changes one line of the registry"
    registry.write_text(text, encoding="utf-8")
    names = str(root / "tests" / "helpers" / "typed_names.py")  # as make format does
    run(root, f"import runpy; runpy.run_path({names!r}, run_name='__main__')")
    return root


def run(root: Path, program: str) -> str:
    """Run a program in the copy; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(root=str(root)) + program], cwd=root, env=environment,
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


def test_its_messages_are_among_those_that_are_recorded(project: Path) -> None:
    said = run(
        project,
        "import atomr_native as an, numpy as np\n"
        "from recorded_cases import of_libraries, values\n"
        "mix = of_libraries()['blend'].CASES['mix']\n"
        "with an.System(isolation='thread') as system:\n"
        "    device = system.device('host')\n"
        "    x, y = (device.put(values(name, 0)) for name in mix.arrays.split())\n"
        "    with device.record() as g:\n"
        "        z = mix.call(device, None, g.operand('x', x), y, weight=g.scalar('weight', 0.25))\n"
        "    g.plan.tell(x, weight=1.0)\n"
        "    print((z.numpy() == x.numpy()).all())\n",
    )
    assert said.strip() == "True"


def test_the_library_is_there(project: Path) -> None:
    said = run(
        project,
        "import atomr_native as an, numpy as np\n"
        "with an.System(isolation='thread') as system:\n"
        "    device = system.device('host')\n"
        "    x = device.put(np.ones(4, 'float32'))\n"
        "    print(device.blend.mix(x, x, 0.5).numpy().sum(), 'MixRequest' in an.__all__)\n",
    )
    assert said.split() == ["4.0", "True"]


def test_type_checkers_see_it(project: Path) -> None:
    assert "def blend(self) -> Blend:" in (project / "atomr_native/device/libraries.py").read_text(encoding="utf-8")
    assert "import MixRequest as MixRequest" in (project / "atomr_native/__init__.py").read_text(encoding="utf-8")


def test_its_own_tests_pass(project: Path) -> None:
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests/libraries/blend"]
    said = run(project, f"import pytest; sys.exit(pytest.main({arguments!r}))")
    assert re.search(r"\d+ passed", said)


def test_its_benchmark_is_found(project: Path) -> None:
    assert "blend" in run(project, "from bench.harness.discovery import all_cases; print(*all_cases())").split()


def test_recipe_and_template_name_the_same_folders() -> None:
    recipe = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Adding a library")[2]
    for target in ("atomr_native/libraries/<name>/", "tests/libraries/<name>/", "bench/libraries/<name>/",
                   "docs/libraries/<name>.md", "cython/libraries/<name>/"):  # fmt: skip
        assert f"`{target}`" in recipe
