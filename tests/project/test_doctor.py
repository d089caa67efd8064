"""The doctor: what it reports, in which form, with which exit status.  No GPU is needed; one does not hurt."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from atomr_native import doctor
from atomr_native.__main__ import main
from atomr_native.doctor import clusters, libraries, machine, processes, purposes, subprocesses, verdict
from atomr_native.doctor import driver as cuda
from atomr_native.doctor.model import Check, Device, Driver, Library, Purpose, Report, Verdict
from atomr_native.doctor.purposes import PURPOSES

pytestmark = pytest.mark.plain

STATUSES = {"ok", "failed", "skipped", "info"}
KERNEL = ["memfd_share", "seals", "futex", "pidfd", "eventfd"]
CUDA = ["cuda_memfd_register", "cuda_export_import"]
MACHINE = ["cores", "memory", "memlock", "seccomp", "ptrace", "mps", "mig"]

NO_DRIVER = Driver(found=False, file=None, version=None, error="libcuda.so.1: cannot open shared object file")
ONE_DEVICE = Driver(
    found=True,
    file="/lib/libcuda.so.1",
    version="13.0",
    error=None,
    devices=(Device(0, "A GPU", "GPU-0", "9.0", 1 << 37, True, True, True),),
)


def run(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "atomr_native", *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )


def passed(*names: str) -> list[Check]:
    return [Check(name, name, "ok", "") for name in names]


@pytest.fixture(scope="module")
def host_json() -> tuple[int, dict[str, object]]:
    done = run("doctor", "--json")
    assert not done.stderr
    return done.returncode, json.loads(done.stdout)


def test_json_has_the_documented_keys(host_json):
    _, report = host_json
    assert list(report) == [
        "schema",
        "device",
        "isolation",
        "versions",
        "driver",
        "libraries",
        "purposes",
        "checks",
        "verdict",
    ]
    assert report["schema"] == 1
    assert set(report["versions"]) == {"atomr_native", "python", "executable", "platform"}
    assert set(report["driver"]) == {"found", "file", "version", "error", "devices"}
    assert set(report["verdict"]) == {"ok", "reason"}
    assert [check["name"] for check in report["checks"]] == [*KERNEL, *CUDA, *MACHINE, "ray", "round_trip"]
    for check in report["checks"]:
        assert set(check) == {"name", "title", "status", "detail"}
        assert check["status"] in STATUSES
        assert check["detail"]
    assert [library["name"] for library in report["libraries"]] == list(libraries.PACKAGES)
    for library in report["libraries"]:
        assert set(library) == {"name", "found", "file", "version", "cuda_major", "packages", "error"}
        assert set(library["packages"]) == {"cu12", "cu13"}
    assert [use["name"] for use in report["purposes"]] == [*PURPOSES, "gpu"]
    for use in report["purposes"]:
        assert set(use) == {"name", "title", "extra", "missing", "install"}
        assert use["install"] == (f"pip install '.[{use['extra']}]'" if use["missing"] else None)


def test_host_runs_here_and_the_status_says_so(host_json):
    status, report = host_json
    assert report["verdict"]["ok"], report["verdict"]["reason"]
    assert status == 0
    by_name = {check["name"]: check for check in report["checks"]}
    for name in [*KERNEL, "round_trip"]:
        assert by_name[name]["status"] == "ok", by_name[name]


def test_thread_isolation_runs_here():
    done = run("doctor", "--isolation", "thread", "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["isolation"] == "thread"


def test_tables_name_everything_and_end_with_the_verdict():
    done = run("doctor")
    assert done.returncode == 0, done.stdout
    for library in libraries.PACKAGES:
        assert library in done.stdout
    assert done.stdout.strip().splitlines()[-1] == "host with isolation=process runs here"


def test_a_device_that_is_not_there_gives_status_1_and_one_line_of_reason():
    done = run("doctor", "--device", "cuda:999", "--json")
    assert done.returncode == 1
    reason = json.loads(done.stdout)["verdict"]["reason"]
    assert reason.startswith("cuda:999 with isolation=process cannot run here: no device cuda:999")
    assert "\n" not in reason


@pytest.mark.parametrize(
    "arguments",
    [
        ["--device", "cuda"],
        ["--device", "cuda:-1"],
        ["--device", "cuda:01"],
        ["--device", "gpu:0"],
        ["--isolation", "container"],
        ["--verbose"],
    ],
)
def test_usage_errors_leave_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as leave:
        main(["doctor", *arguments])
    assert leave.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["cure"], ["--unknown"]])
def test_an_unknown_command_leaves_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as leave:
        main(arguments)
    assert leave.value.code == 2
    capsys.readouterr()


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit) as leave:
        main(["--help"])
    assert leave.value.code == 0
    text = capsys.readouterr().out
    assert "doctor" in text
    assert "demo" in text


@pytest.mark.parametrize(("ok", "status"), [(True, 0), (False, 1)])
def test_exit_status_is_the_verdict(monkeypatch, capsys, ok, status):
    report = Report("host", "thread", {"python": "x"}, NO_DRIVER, (), (), (), Verdict(ok, "because"))
    monkeypatch.setattr(doctor, "collect", lambda device, isolation: report)
    assert main(["doctor", "--isolation", "thread"]) == status
    assert capsys.readouterr().out.strip().endswith("because")


def test_tables_escape_what_they_print(monkeypatch, capsys):
    check = Check("x", "a [title]", "failed", "[/] not [red]markup")
    missing = Library("cuX", False, None, None, None, {"cu12": "a", "cu13": "b"}, "cannot [load]")
    lacking = Purpose("x", "a [use]", "cu13", ("[pack]",), "pip install '.[cu13]'")
    report = Report("host", "thread", {}, ONE_DEVICE, (missing,), (lacking,), (check,), Verdict(False, "[no] way"))
    monkeypatch.setattr(doctor, "collect", lambda device, isolation: report)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    for part in (
        "a [title]",
        "[/] not [red]markup",
        "cannot [load]; pip install a or b",
        "a [use]",
        "[pack]; pip install '.[cu13]'",
        "[no] way",
        "cuda:0",
        "A GPU",
    ):
        assert part in text


class TestVerdict:
    def test_host_does_not_need_cuda(self):
        for isolation in ("process", "thread"):
            assert not set(verdict.needs("host", isolation)) & set(CUDA)

    def test_a_failed_check_is_the_reason_and_nothing_is_started(self, monkeypatch):
        monkeypatch.setattr(verdict, "run_probe", pytest.fail)
        checks = [*passed(*KERNEL[1:]), Check("memfd_share", "memory segment shared", "failed", "EPERM")]
        trip = verdict.round_trip("host", "process", NO_DRIVER, checks)
        assert trip.status == "skipped"
        answer = verdict.judge("host", "process", trip)
        assert not answer.ok
        assert answer.reason == "host with isolation=process cannot run here: memory segment shared: EPERM"

    def test_thread_isolation_does_without_a_second_process(self, monkeypatch):
        monkeypatch.setattr(verdict, "run_probe", lambda *a: {"status": "ok", "detail": "fine"})
        checks = [*passed("seals", "eventfd"), Check("memfd_share", "memory segment shared", "failed", "EPERM")]
        trip = verdict.round_trip("host", "thread", NO_DRIVER, checks)
        assert verdict.judge("host", "thread", trip).ok

    def test_a_missing_device_names_those_found_and_the_driver_error(self):
        trip = verdict.round_trip("cuda:0", "process", NO_DRIVER, passed(*KERNEL))
        assert "no device cuda:0; CUDA devices found: none (libcuda.so.1: cannot open" in trip.detail
        trip = verdict.round_trip("cuda:3", "process", ONE_DEVICE, passed(*KERNEL))
        assert "no device cuda:3; CUDA devices found: cuda:0 (A GPU)" in trip.detail

    def test_a_device_whose_memory_cannot_be_exported_is_no_good_for_process_isolation(self):
        checks = [*passed(*KERNEL, CUDA[0]), Check(CUDA[1], "CUDA memory exported and imported", "failed", "no")]
        trip = verdict.round_trip("cuda:0", "process", ONE_DEVICE, checks)
        assert trip.status == "skipped"
        assert "CUDA memory exported and imported: no" in trip.detail

    def test_a_round_trip_that_dies_is_the_reason(self, monkeypatch):
        def die(*arguments):
            raise subprocesses.ProbeError("the probe ended with signal 11: no message")

        monkeypatch.setattr(verdict, "run_probe", die)
        trip = verdict.round_trip("host", "process", NO_DRIVER, passed(*KERNEL))
        assert trip.status == "failed"
        assert not verdict.judge("host", "process", trip).ok


class TestKernelChecks:
    def test_all_go_well_on_a_kernel_that_the_library_supports(self):
        assert [(check.name, check.status) for check in processes.kernel_checks()] == [(name, "ok") for name in KERNEL]

    def test_they_leave_no_descriptor_and_no_child(self):
        # In a process of its own: this one may have children and threads of other tests.
        program = """
import os
from atomr_native.doctor.processes import kernel_checks
before = sorted(os.listdir("/proc/self/fd"))
kernel_checks()
assert sorted(os.listdir("/proc/self/fd")) == before
try:
    raise SystemExit(f"a child is left: {os.waitpid(-1, os.WNOHANG)}")
except ChildProcessError:
    pass
"""
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def test_a_refusing_kernel_is_a_failed_check_not_an_error(self, monkeypatch):
        def refuse(*arguments):
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "memfd_create", refuse)
        monkeypatch.setattr(os, "pidfd_open", refuse)
        status = {check.name: check for check in processes.kernel_checks()}
        for name in ("memfd_share", "seals", "futex", "pidfd"):
            assert status[name].status == "failed"
            assert "Operation not permitted" in status[name].detail
        assert status["eventfd"].status == "ok"

    def test_a_second_process_that_dies_is_said_with_its_last_words(self, monkeypatch):
        dying = [sys.executable, "-c", "raise SystemExit('broken here')"]
        monkeypatch.setattr(processes, "command", lambda *arguments: dying)
        status = {check.name: check for check in processes.kernel_checks()}
        assert status["memfd_share"].status == "failed"
        assert "the second process ended: broken here" in status["memfd_share"].detail

    def test_seals_that_do_not_hold_are_noticed(self, monkeypatch):
        monkeypatch.setattr(processes, "_F_SEAL_FUTURE_WRITE", 0)
        status = {check.name: check for check in processes.kernel_checks()}
        assert status["seals"].status == "failed"
        assert "did not stop: map, write, reopen" in status["seals"].detail


class TestLibraries:
    def test_a_missing_library_names_its_packages(self, monkeypatch):
        answer = {"found": False, "file": None, "version": None, "cuda_major": None, "error": "not installed: ..."}
        monkeypatch.setattr(libraries, "run_probe", lambda *a: dict(answer))
        found = {library.name: library for library in libraries.find_libraries()}
        assert found["NCCL"].packages == {"cu12": "nvidia-nccl-cu12", "cu13": "nvidia-nccl-cu13"}
        assert found["cuBLASLt"].packages == {"cu12": "nvidia-cublas-cu12", "cu13": "nvidia-cublas"}
        assert not any(library.found for library in found.values())

    def test_a_library_that_kills_its_probe_is_reported(self, monkeypatch):
        def die(*arguments):
            raise subprocesses.ProbeError("the probe ended with signal 11: no message")

        monkeypatch.setattr(libraries, "run_probe", die)
        assert "signal 11" in libraries.find_library("cuDNN").error

    def test_what_is_found_has_a_file_and_a_version(self):
        for library in libraries.find_libraries():
            if library.found and library.error is None:
                assert Path(library.file).exists()
                assert library.version[0].isdigit()
                assert library.cuda_major in (None, 11, 12, 13)
            else:
                assert library.error


class TestPurposes:
    @pytest.fixture(autouse=True)
    def _nothing_is_installed(self, monkeypatch):
        monkeypatch.setattr(purposes, "_installed", lambda package: False)

    def test_each_use_names_its_packages_and_its_extra(self):
        found = {use.name: use for use in purposes.find_purposes(NO_DRIVER, ())}
        assert found["kernels"].missing == ("numba-cuda",)
        assert found["kernels"].install == "pip install '.[kernels]'"
        assert found["examples"].install == "pip install '.[examples]'"
        assert found["observe"].install == "pip install '.[observe]'"
        assert found["gpu"].install == "pip install '.[cu13]'"

    @pytest.mark.parametrize(
        ("version", "extra"), [("12.4", "cu12"), ("13.0", "cu13"), ("14.1", "cu13"), (None, "cu13")]
    )
    def test_the_driver_decides_between_the_extras_of_a_gpu(self, version, extra):
        use = purposes.find_purposes(replace(ONE_DEVICE, version=version), ())[-1]
        assert (use.name, use.extra) == ("gpu", extra)

    def test_a_missing_library_is_named(self, monkeypatch):
        monkeypatch.setattr(purposes, "_installed", lambda package: True)
        packages = {"cu12": "a", "cu13": "b"}
        lacking = [
            Library(name, name == "nvJitLink", None, None, None, packages, None)
            for name in ("cuBLASLt", "NVRTC", "cuRAND", "cudart", "nvJitLink")
        ]
        use = purposes.find_purposes(NO_DRIVER, tuple(lacking))[-1]
        assert use.missing == ("cuBLASLt", "NVRTC", "cuRAND")  # nothing here needs cudart
        assert purposes.find_purposes(NO_DRIVER, ())[-1].install is None


class TestCuda:
    def test_without_a_device_memory_checks_are_skipped(self):
        assert [(check.status, check.detail) for check in cuda.cuda_checks(NO_DRIVER, 0)] == [
            ("skipped", "no CUDA device")
        ] * 2
        assert all("no device cuda:1" in check.detail for check in cuda.cuda_checks(ONE_DEVICE, 1))

    def test_the_driver_is_found_or_the_reason_is_told(self):
        found = cuda.find_driver()
        assert found.found or "libcuda.so.1" in found.error
        assert found.devices == () or found.version

    @pytest.mark.gpu
    def test_memory_checks_go_well_on_a_gpu(self):
        found = cuda.find_driver()
        if not found.devices:
            pytest.skip("no CUDA device")
        assert [check.status for check in cuda.cuda_checks(found, 0)] == ["ok", "ok"]


class TestProbes:
    def test_a_probe_that_hangs_is_killed(self, monkeypatch):
        monkeypatch.setattr(subprocesses, "command", lambda *a: [sys.executable, "-c", "import time; time.sleep(60)"])
        with pytest.raises(subprocesses.ProbeError, match=r"no answer within 0\.2 s"):
            subprocesses.run_probe("any", timeout=0.2)

    @pytest.mark.parametrize(
        ("program", "said"),
        [
            ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
            ("raise SystemExit('bad luck')", "exit status 1: bad luck"),
            ("print('hello')", "wrote no answer but 'hello"),
            ("pass", "wrote no answer"),
            ("print('[1]')", "not an object"),
        ],
    )
    def test_a_probe_that_goes_wrong_is_told_apart(self, monkeypatch, program, said):
        monkeypatch.setattr(subprocesses, "command", lambda *a: [sys.executable, "-c", program])
        with pytest.raises(subprocesses.ProbeError, match=said):
            subprocesses.run_probe("any")

    def test_what_a_library_prints_does_not_spoil_the_answer(self, monkeypatch):
        program = "print('a banner'); print('{\"found\": true}')"
        monkeypatch.setattr(subprocesses, "command", lambda *a: [sys.executable, "-c", program])
        assert subprocesses.run_probe("any") == {"found": True}


class TestMachine:
    def test_facts(self):
        checks = machine.machine_checks()
        assert [check.name for check in checks] == MACHINE
        assert {check.status for check in checks} == {"info"}

    def test_cgroup_v2_limit_is_the_smallest_on_the_way_up(self, tmp_path):
        leaf = tmp_path / "a" / "b"
        leaf.mkdir(parents=True)
        (leaf / "memory.max").write_text("max\n")
        (tmp_path / "a" / "memory.max").write_text("1048576\n")
        (tmp_path / "memory.max").write_text("2097152\n")
        assert machine.cgroup_memory_limit(tmp_path, "0::/a/b\n") == 1048576

    def test_cgroup_v1_limit_and_its_word_for_none(self, tmp_path):
        folder = tmp_path / "memory" / "job"
        folder.mkdir(parents=True)
        (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
        membership = "5:memory:/job\n3:cpu,cpuacct:/job\n"
        assert machine.cgroup_memory_limit(tmp_path, membership) is None
        (folder / "memory.limit_in_bytes").write_text("4096\n")
        assert machine.cgroup_memory_limit(tmp_path, membership) == 4096

    def test_a_missing_cgroup_is_no_limit(self, tmp_path):
        assert machine.cgroup_memory_limit(tmp_path, "0::/../outside\n") is None
        assert machine.cgroup_memory_limit(tmp_path, "") is None

    def test_mps_is_seen_through_its_pipe_directory(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
        mps = {check.name: check.detail for check in machine.machine_checks()}["mps"]
        assert "no control daemon" in mps
        (tmp_path / "control").touch()
        mps = {check.name: check.detail for check in machine.machine_checks()}["mps"]
        assert mps == f"a control daemon's pipe is in {tmp_path}"


@pytest.mark.parametrize(
    ("version", "address", "status", "text"),
    [
        ("2.60.0", "", "ok", "2.60.0; RAY_ADDRESS is not set; "),
        ("2.55.1", "10.0.0.1:6379", "ok", "2.55.1; RAY_ADDRESS is 10.0.0.1:6379; "),
        ("2.60.0", "ray://10.0.0.1:10001", "failed", "Ray Client is not supported"),
        ("2.52.0", "", "failed", "Ray 2.52.0 is too old; allowed: 2.55 and later"),
        (None, "", "info", "pip install '.[ray]'"),
    ],
)
def test_ray_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None, address: str, status: str, text: str
) -> None:
    what = "raise ModuleNotFoundError('no ray', name='ray')" if version is None else f"__version__ = {version!r}"
    (tmp_path / "ray.py").write_text(what)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", address)
    check = clusters.ray_check()
    assert (check.name, check.status) == ("ray", status)
    assert text in check.detail


def test_a_ray_that_does_not_import_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise OSError('a broken wheel')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check = clusters.ray_check()
    assert (check.status, "a broken wheel" in check.detail) == ("failed", True)
