"""Mutation testing: small faults are put into the sources, one at a time, and a test must fail for each.

    make mutation                          all mutants
    make mutation ARGS='allocator actors'  those of some files in mutants/
    make mutation ARGS='--list'            their names
    make mutation ARGS='--only NAME ...'   some mutants

A mutant is an entry of a file in ``mutants/``: a source, a text that occurs in it once, its replacement, and the tests
that should notice.  Mutants run in a copy of the project below ``build/mutation``, with its own native modules, so that
the working tree is never touched.  A table of the results is printed, and written as JSON with ``--json``.

A mutant is *killed* if its tests fail or do not end, *survives* if they pass, and is *explained* if it survives and its
entry says why nothing can notice it.  A text that does not occur once is an error, since the list is then stale.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTS = Path(__file__).resolve().parent / "mutants"
SCRATCH = ROOT / "build" / "mutation"
PYTHON = str(SCRATCH / ".venv" / "bin" / "python")
NATIVE = {".c", ".h", ".pyx", ".pxd", ".pxi"}
#: Seconds after which tests that have not ended count as failed, and a native test: it waits for a minute at most.
PATIENCE = 300
PATIENCE_NATIVE = 120
#: A mutant may leave a variable without a use.
WITHOUT_WARNINGS = "CFLAGS=-std=gnu11 -O1 -g -w -pthread"


@dataclass(frozen=True)
class Mutant:
    """A fault, and the tests that should notice it.

    Attributes
    ----------
    name : str
        What is broken, in a few words.
    file : str
        The source, relative to the project.
    old, new : str
        A text that occurs once in the source, and its replacement.
    tests : tuple of str
        Arguments of pytest.
    native : tuple of str
        Programs of ``tests/native``; they run before the others.
    explained : str
        Why no test can notice it; empty for a mutant that must die.
    area : str
        The list that it is in.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    explained: str = ""
    area: str = field(default="", compare=False)

    def apply(self, root: Path) -> None:
        """Put the fault into the copy of the source."""
        path = root / self.file
        text = path.read_text()
        if (found := text.count(self.old)) != 1:
            raise SystemExit(f"{self.area}: {self.name}: its text occurs {found} times in {self.file}, not once")
        path.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    area: str
    name: str
    file: str
    result: str
    by: str
    seconds: float


def read_lists(names: Iterable[str] = ()) -> list[Mutant]:
    """Read mutants from the lists of these names, or from all."""
    known = {path.stem: path for path in sorted(LISTS.glob("*.toml"))}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no such list: {', '.join(unknown)}; there are {', '.join(known)}")
    found = []
    for name in names or known:
        for entry in tomllib.loads(known[name].read_text())["mutant"]:
            values = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
            found.append(Mutant(**values, area=name))
    return found


def call(command: list[str], patience: float = PATIENCE) -> tuple[int, str]:
    """Run a command in the copy, and end all of its processes after `patience` seconds."""
    path = f"{SCRATCH / '.venv' / 'bin'}:{os.environ['PATH']}"
    process = subprocess.Popen(
        command,
        cwd=SCRATCH,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=patience)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return -1, output


def prepare() -> None:
    """Copy the project, its environment and what is built, and install the copy."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    wanted = {Path(name) for name in tracked if name and (ROOT / name).is_file()}
    for path in [p for folder in ("atomr_native", "cython", "tests") for p in (SCRATCH / folder).rglob("*")]:
        relative = path.relative_to(SCRATCH)
        if path.is_file() and relative not in wanted and "build" not in relative.parts:
            path.unlink()
    for name in wanted:
        source, copy = ROOT / name, SCRATCH / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            shutil.copy2(source, copy)
    if not (SCRATCH / ".venv").exists():
        print("Copying the virtual environment ...", flush=True)
        shutil.copytree(ROOT / ".venv", SCRATCH / ".venv", symlinks=True, copy_function=os.link)  # pip replaces files
    if refused := build():
        raise SystemExit(f"the copy cannot be installed:\n{refused}")


def build() -> str:
    """Build and install the copy; returns what the compiler said if it refused."""
    command = [PYTHON, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "-e", "."]
    code, output = call(command, 10 * PATIENCE)
    return output if code else ""


def run_native(mutant: Mutant) -> str:
    """Run the native tests of a mutant, which need nothing installed; returns the one that failed, or nothing."""
    for name in mutant.native:
        command = ["make", "-s", "-C", "tests/native", "check", f"TESTS={name}", WITHOUT_WARNINGS]
        code, output = call(command, PATIENCE_NATIVE)
        if code and f"== {name}" not in output:
            raise SystemExit(f"{mutant.area}: {mutant.name}: {name} does not compile:\n{output}")
        if code:
            return name
    return ""


def run_tests(mutant: Mutant, patience: float = PATIENCE) -> str:
    """Run the other tests of a mutant; returns the one that failed, or nothing."""
    if mutant.tests:
        command = [PYTHON, "-m", "pytest", "-q", "-x", "-m", "not slow and not gpu", *mutant.tests]
        code, output = call(command, patience)
        if code == 5:
            raise SystemExit(f"{mutant.area}: {mutant.name}: no such tests: {' '.join(mutant.tests)}")
        if code:
            failed = [
                line.split()[1] for line in output.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))
            ]
            return failed[0] if failed else "no end" if code < 0 else "collection"
    return ""


def try_mutant(mutant: Mutant) -> Outcome:
    """Put a fault in, run the tests, and take it out."""
    began = time.monotonic()
    path = SCRATCH / mutant.file
    original, built = path.read_bytes(), False
    try:
        mutant.apply(SCRATCH)
        by = run_native(mutant)
        if not by:
            built = path.suffix in NATIVE and bool(mutant.tests)
            if built and (refused := build()):
                raise SystemExit(f"{mutant.area}: {mutant.name}: it does not compile:\n{refused}")
            by = run_tests(mutant)
    finally:
        path.write_bytes(original)
    if built:
        build()
    result = "killed" if by else "explained" if mutant.explained else "survived"
    return Outcome(mutant.area, mutant.name, mutant.file, result, by, round(time.monotonic() - began, 1))


def check_tests(mutants: list[Mutant]) -> None:
    """Run all tests once without a fault: they must pass."""
    everything = Mutant(
        "nothing", "", "", "",
        tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests)),
        tuple(dict.fromkeys(test for mutant in mutants for test in mutant.native)),
    )  # fmt: skip
    if failed := run_native(everything) or run_tests(everything, 20 * PATIENCE):
        raise SystemExit(f"without any mutant {failed} fails")


def report(outcomes: list[Outcome]) -> bool:
    """Print the table; returns whether every mutant was killed or is explained."""
    areas = Counter((outcome.area, outcome.result) for outcome in outcomes)
    print("\n| list | mutants | killed | explained | survived |\n| --- | --- | --- | --- | --- |")
    for area in dict.fromkeys(outcome.area for outcome in outcomes):
        counts = [areas[area, result] for result in ("killed", "explained", "survived")]
        print(f"| {area} | {sum(counts)} | {' | '.join(map(str, counts))} |")
    for outcome in outcomes:
        if outcome.result == "survived":
            print(f"survived: {outcome.area}: {outcome.name} ({outcome.file})")
    killed = sum(outcome.result == "killed" for outcome in outcomes)
    print(f"{killed} of {len(outcomes)} mutants are killed.")
    return all(outcome.result != "survived" for outcome in outcomes)


def main(arguments: list[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="mutation", description="Put faults into the sources; tests must notice.")
    parser.add_argument("lists", nargs="*", help="names of files in tests/mutation/mutants, all by default")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="mutants of these names")
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests without a fault first")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    options = parser.parse_args(arguments)
    mutants = [m for m in read_lists(options.lists) if not options.only or m.name in options.only]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.area}: {mutant.name} ({mutant.file})")
        return 0
    prepare()
    if not options.unchecked:
        check_tests(mutants)
    outcomes = []
    for mutant in mutants:
        outcomes.append(try_mutant(mutant))
        print(f"{outcomes[-1].result:9} {outcomes[-1].seconds:6.1f} s  {mutant.area}: {mutant.name}", flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    return 0 if report(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
