"""The commands as programs: what they do where nobody reads, or nothing can be written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripts import environment

import atomr_native as an
from atomr_native.__main__ import main

pytestmark = pytest.mark.plain

LOOK = ("top", "--json")  # the quickest that writes something
COMMAND = f"{sys.executable} -m atomr_native {' '.join(LOOK)}"


def shell(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
        env={**environment(), "XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip


def test_a_full_disk_takes_one_line(tmp_path: Path) -> None:
    done = shell(tmp_path, f"{COMMAND} > /dev/full")
    assert done.returncode == 74
    assert done.stderr == "cannot write the output: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(tmp_path: Path, closed: str) -> None:
    done = shell(tmp_path, f"{COMMAND} {closed}")
    assert done.returncode == 1  # that nothing publishes, as always
    assert not done.stderr


READER_LEAVES = """
import sys, time
from atomr_native import doctor
from atomr_native.doctor.driver import find_driver
names = {f"library {i}": "x" * 100 for i in range(2000)}
verdict = doctor.Verdict(sys.argv[1] == "0", "because")
report = doctor.Report("host", "thread", names, find_driver(), (), (), (), verdict)
doctor.collect = lambda device, isolation: report
print("begins", flush=True)
time.sleep(0.2)
from atomr_native.__main__ import main
sys.exit(main(["doctor", *sys.argv[2:]]))
"""


@pytest.mark.parametrize("options", ["0", "1", "0 --json", "1 --json"])
def test_a_reader_that_leaves_changes_nothing(tmp_path: Path, options: str) -> None:
    (tmp_path / "script.py").write_text(READER_LEAVES)
    done = shell(tmp_path, f"{sys.executable} script.py {options} | head -n 1; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stdout, done.stderr) == (int(options[0]), "begins\n", "")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"atomr_native {an.__version__}\n"
