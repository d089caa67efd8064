"""Run array-api-tests, the test suite of the Python array API standard, on a device: ``make array-api``.

The suite is fetched into build/array-api-tests, unless SUITE names a checkout with its submodule.  DEVICE is the
device's name, and ISOLATION its placement; further arguments are pytest's, as in ``ARGS='-k test_sum'``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: MIT licence; not a part of this repository.
SOURCE = "https://github.com/data-apis/array-api-tests"
COMMIT = "55fcc60179efa2680ddd6cd926ddf17b83530e2b"
#: What it needs besides pytest and hypothesis.
NEEDS = ("ndindex>=1.8", "pytest-json-report")


def run(*command: str, **options: object) -> None:
    """Run a command; its failure ends the program."""
    subprocess.run(command, check=True, **options)  # type: ignore[call-overload]


def fetched() -> Path:
    """Return the folder of the suite, fetched at the commit that the list of failures belongs to."""
    if given := os.environ.get("SUITE"):
        return Path(given).resolve()
    folder = HERE.parents[1] / "build" / "array-api-tests"
    if not (folder / "array-api" / "spec").exists():
        folder.mkdir(parents=True, exist_ok=True)
        run("git", "init", "--quiet", cwd=folder)
        run("git", "fetch", "--quiet", "--depth=1", SOURCE, COMMIT, cwd=folder)
        run("git", "checkout", "--quiet", COMMIT, cwd=folder)
        run("git", "submodule", "update", "--quiet", "--init", "--depth=1", cwd=folder)
    return folder


def failures(device: str, folder: Path) -> Path:
    """Return the list of the tests that are known to fail on a device."""
    lists = [HERE / "xfails.txt"]
    if device.startswith("cuda"):
        lists.append(HERE / "xfails_cuda.txt")
    joined = folder / f"xfails-{device.partition(':')[0]}.txt"
    joined.write_text("".join([path.read_text() for path in lists]))
    return joined


def main() -> int:
    """Run the suite; return pytest's status."""
    folder = fetched()
    known = failures(os.environ.get("DEVICE", "host"), folder)
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *NEEDS)
    paths = [str(HERE), str(folder / "array-api" / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "ARRAY_API_TESTS_MODULE": "exec('from suite_namespace import xp')",
    }
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--disable-deadline", "--disable-dds",
        "--derandomize", f"--max-examples={os.environ.get('EXAMPLES', '20')}", f"--xfails-file={known}",
        *(sys.argv[1:] or ["array_api_tests"]),
    ]  # fmt: skip
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
