"""Every block of Python in README and docs runs as pasted, on the host device; blocks that need a GPU are compiled.

Blocks of shell commands are parsed by bash, and their programs and options exist; other tests run the programs.

Several pages share a process, which starts in a folder of each page's own; README has one for itself.  Each block
has a file, named after its line, and a namespace of its own.  After ``<!-- continued -->`` a block continues the one
before it.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"(<!-- continued -->\n+)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Blocks that are compiled only: a text in them, and the reason.
COMPILED = {
    "docs/clusters.md": {
        'tensor_transport="ATOMR"': "needs Ray; tests/helpers/ray_program.py runs such an actor",
    },
    "docs/communicators.md": {
        '["cuda:0", "cuda:1"]': "needs two GPUs; tests/communicators/ runs such calls on fake ones",
    },
    "docs/reference/kernel.md": {
        "device_function(": "a fragment in CUDA C++: needs a GPU; test_cuda_kernel.py links such functions",
    },
    "docs/libraries/kernel.md": {
        "cuda_kernel(": "a fragment in CUDA C++: needs a GPU; test_docs_kernels.py makes its kernel",
        "TensorMap(": "tensor maps need a GPU; test_tensor_map.py compiles and runs it",
    },
}
#: A text in a block, and the module that it needs beside those of `make test`.
NEEDS = {
    r"from numba import|epilogues\.|CustomEpilogue|load=windowed": "numba_cuda",
}

#: The standby worker of each block's System would cost as much again, so only README's blocks have it, and workers that
#: start as programs' do.
RUNNER = """
import inspect, os, pathlib, runpy, sys, traceback
import atomr_native as an

if sys.argv[1]:
    sys.path.append(sys.argv[1])
    import forked_workers
    sys.path.remove(sys.argv[1])
    forking = forked_workers.install()  # until the end
    forking.__enter__()
    inspect.unwrap(an.System.__init__).__kwdefaults__["standby"] = "off"
for folder in map(pathlib.Path, sys.argv[2:]):
    os.chdir(folder)
    failures = ""
    for path in sorted(folder.glob("*.py")):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except BaseException:
            failures += traceback.format_exc()
    (folder / "failures").write_text(failures)
"""
#: Processes that the pages other than README share.
PROCESSES = 2


class Block(NamedTuple):
    line: int
    text: str


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, each with those that continue it."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        if match[1]:
            found[-1] = Block(found[-1].line, found[-1].text + match[2])
        else:
            found.append(Block(line, match[2]))
    return found


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


BLOCKS = {name_of(page): found for page in PAGES if (found := blocks_of(page))}


def reason_to_compile(name: str, block: Block) -> str | None:
    return next((reason for text, reason in COMPILED.get(name, {}).items() if text in block.text), None)


def is_installed(block: Block) -> bool:
    needed = [module for pattern, module in NEEDS.items() if re.search(pattern, block.text)]
    return all(importlib.util.find_spec(module) is not None for module in needed)


def test_every_guide_has_a_block() -> None:
    without = {"docs/index.md", "docs/install.md", "docs/architecture.md", "docs/performance.md"}
    guides = {name_of(page) for page in (*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "libraries").glob("*.md"))}
    assert guides - set(BLOCKS) == without


def test_every_block_is_python() -> None:
    for name, blocks in BLOCKS.items():
        for block in blocks:
            compile(block.text, f"{name}:{block.line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_only_blocks_that_exist_are_left_out() -> None:
    for name, reasons in COMPILED.items():
        for text in reasons:
            assert any(text in block.text for block in BLOCKS[name]), f"{name} has no block with {text}"


def files_of(name: str, folder: Path) -> Path | None:
    """Write the blocks of a page that run here, each to a file; ``None`` if there is none."""
    place = folder / name
    place.mkdir(parents=True)
    written = 0
    for block in BLOCKS[name]:
        if reason_to_compile(name, block) is None and is_installed(block):
            (place / f"{Path(name).stem}_line_{block.line:04}.py").write_text(block.text, encoding="utf-8")
            written += 1
    return place if written else None


@functools.cache
def failures_of(names: tuple[str, ...], folder: Path) -> dict[str, str | None]:
    """Run pages in one process; return each page's failures, or ``None`` if none of its blocks run here."""
    places = {name: files_of(name, folder) for name in names}
    helpers = "" if "README.md" in names else str(ROOT / "tests/helpers")
    command = [sys.executable, "-W", "error", "-X", "faulthandler", "-c", RUNNER, helpers]
    ended = ""
    try:
        done = subprocess.run(
            [*command, *(str(place) for place in places.values() if place)],
            cwd=folder, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        if done.returncode:
            ended = f"the process of {', '.join(names)} ended with {done.returncode}: {done.stderr}"
    except subprocess.TimeoutExpired as error:
        ended = f"the process of {', '.join(names)} did not end: {error.stderr!r}"

    def failures(place: Path) -> str:
        found = place / "failures"
        return (found.read_text(encoding="utf-8") if found.exists() else "it was not reached") + ended

    return {name: place and failures(place) for name, place in places.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.plain] if name == "README.md" else []) for name in BLOCKS]
)
def test_the_blocks_of_a_page_run(name: str, folder: Path) -> None:
    others = [page for page in BLOCKS if page != "README.md"]
    names = (name,) if name == "README.md" else tuple(others[others.index(name) % PROCESSES :: PROCESSES])
    failures = failures_of(names, folder / names[0])
    if failures[name] is None:
        pytest.skip("its blocks need packages that are not installed")
    assert not failures[name], failures[name]


SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The sources that may know an option, by program.
SOURCES = {
    "-m atomr_native doctor": "atomr_native/doctor/*.py",
    "-m atomr_native demo": "atomr_native/demo/*.py",
    "-m atomr_native top": "atomr_native/observe/*.py",
    "-m bench": "bench/**/*.py",
    "examples/": "examples/*.py",
}


def shell_lines(page: Path) -> list[str]:
    blocks = SHELL.findall(page.read_text(encoding="utf-8"))
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]


def test_blocks_of_shell_commands_are_syntax() -> None:
    text = "\n".join(line for page in PAGES for line in shell_lines(page))
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_programs_and_options_of_shell_commands_exist() -> None:
    seen = 0
    for page in PAGES:
        for line in shell_lines(page):
            for script in re.findall(r"\bpython ([\w/]+\.py)", line):
                assert script == "program.py" or (ROOT / script).exists(), f"{name_of(page)}: {line}"
            program = next((known for known in SOURCES if f"python {known}" in line), None)
            if "python -m atomr_native" in line:
                assert program, f"{name_of(page)}: {line}"
            if program:
                seen += 1
                code = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob(SOURCES[program]))
                for option in re.findall(r" (--[\w-]+)", line):
                    assert f'"{option}"' in code, f"{name_of(page)}: {line}"
    assert seen > 10
