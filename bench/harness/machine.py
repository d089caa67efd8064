"""What the figures were measured on, and whether the machine was idle enough to measure at all."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = [
    "MAX_OTHER_CPU",
    "ROOT",
    "CpuTimes",
    "Load",
    "describe",
    "describe_gpu",
    "host_kind",
    "measure_load",
    "other_cpu",
    "refusal",
]

ROOT = Path(__file__).resolve().parents[2]
MAX_OTHER_CPU = 0.10
MAX_STEAL = 0.05
MAX_GPU_BUSY = 5
PACKAGES = (
    "atomr-native",
    "numpy",
    "scipy",
    "ml_dtypes",
    "cython",
    "numba",
    "pykka",
    "xoscar",
    "ray",
    "uvloop",
    "torch",
    "cupy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "nvmath-python",
    "numba-cuda",
    "cuda-bindings",
    "nvidia-cublas",
    "nvidia-cuda-nvrtc",
)


# ---------------------------------------------------------------------------------------------- load


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds since boot (busy on all cores, stolen by the hypervisor) and those of this process's tree."""

    at: float
    busy: float
    steal: float
    ours: float

    @classmethod
    def now(cls) -> CpuTimes:
        """Read ``/proc``; zeros where it is not readable."""
        tick = os.sysconf("SC_CLK_TCK")
        try:
            words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        except OSError:
            return cls(time.monotonic(), 0.0, 0.0, 0.0)
        user, nice, system, _idle, _wait, irq, softirq, steal = (int(word) for word in words[:8])
        busy = (user + nice + system + irq + softirq) / tick
        return cls(time.monotonic(), busy, steal / tick, _tree_ticks(os.getpid()) / tick)


def _tree_ticks(root: int) -> int:
    """Clock ticks of a process, its living descendants, and everything that these have reaped."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # it ended in between
        fields = text[text.rindex(")") + 2 :].split()
        pid = int(entry.name)
        parents[pid] = int(fields[1])
        ticks[pid] = sum(int(value) for value in fields[11:15])
    total = 0
    for pid in ticks:
        ancestor = pid
        while ancestor not in (root, 0) and ancestor in parents:
            ancestor = parents[ancestor]
        total += ticks[pid] if ancestor == root else 0
    return total


def other_cpu(before: CpuTimes, after: CpuTimes) -> float:
    """CPU used by other processes between two readings, in cores (0.5: half of one core)."""
    wall = max(after.at - before.at, 1e-9)
    return max(0.0, ((after.busy - before.busy) - (after.ours - before.ours)) / wall)


@dataclass(frozen=True)
class Load:
    """The machine's load just before a run; `gpu` in percent, None where nothing tells."""

    load1: float
    load5: float
    other_cpu: float
    steal: float
    cores: int
    gpu: int | None = None


def measure_load(seconds: float = 2.0, gpu: str | None = None) -> Load:
    """Watch the machine for so long, and the GPU with this UUID; waits."""
    before = CpuTimes.now()
    time.sleep(seconds)
    after = CpuTimes.now()
    load1, load5, _ = os.getloadavg()
    steal = (after.steal - before.steal) / max(after.at - before.at, 1e-9)
    cores = len(os.sched_getaffinity(0))
    busy = _gpu_query(gpu, "utilization.gpu")[:1] if gpu else []
    return Load(
        round(load1, 2),
        round(load5, 2),
        round(other_cpu(before, after), 3),
        round(steal, 3),
        cores,
        int(busy[0]) if busy and busy[0].isdigit() else None,
    )


def refusal(load: Load) -> str | None:
    """Why nothing should be measured under this load; None when it may.

    Judged first by what other processes use now; the load average only refuses a machine that was overcommitted in the
    last minute, because a run just before this one raises it too.
    """
    if load.other_cpu > MAX_OTHER_CPU:
        return f"other processes use {load.other_cpu:.2f} of a core (at most {MAX_OTHER_CPU:.2f})"
    if load.steal > MAX_STEAL:
        return f"the hypervisor took {load.steal:.2f} of a core (at most {MAX_STEAL:.2f})"
    if load.load1 > load.cores:
        return f"the load average is {load.load1:.2f} on {load.cores} cores"
    if load.gpu is not None and load.gpu > MAX_GPU_BUSY:
        return f"the GPU is {load.gpu} % busy (at most {MAX_GPU_BUSY} %)"
    return None


# ---------------------------------------------------------------------------------------------- description


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip() or None
    except OSError:
        return None


def _command(*words: str) -> str | None:
    if shutil.which(words[0]) is None:
        return None
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20, cwd=ROOT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpuinfo(key: str) -> str | None:
    found = re.search(rf"^{key}\s*:\s*(.+)$", _read("/proc/cpuinfo") or "", re.MULTILINE)
    return found.group(1).strip() if found else None


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git() -> dict[str, Any]:
    commit = _command("git", "rev-parse", "--verify", "--quiet", "HEAD")
    changes = _command("git", "status", "--porcelain", "--", ".", ":!bench/results")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _gpu_query(uuid: str, *fields: str) -> list[str]:
    """What nvidia-smi says of one GPU; empty where it is missing, or knows no such GPU."""
    told = _command("nvidia-smi", f"--query-gpu=uuid,{','.join(fields)}", "--format=csv,noheader,nounits")
    for line in (told or "").splitlines():
        found, *values = (word.strip() for word in line.split(","))
        if _digits(found) == _digits(uuid):
            return values
    return []


def _digits(uuid: str) -> str:
    """A UUID without what it may be written with."""
    return re.sub(r"^[A-Z]+-|-", "", uuid)


def describe_gpu(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """The GPU behind a device, from what the device says of itself; its UUID is shortened."""
    uuid, version = str(facts["uuid"]), int(facts["driver_version"])
    driver, clock, power = [*_gpu_query(uuid, "driver_version", "clocks.max.sm", "power.limit"), None, None, None][:3]
    return {
        "name": name,
        "gpu": facts["name"],
        "uuid": _digits(uuid)[:8],
        "compute_capability": ".".join(map(str, facts["compute_capability"])),
        "multiprocessors": facts["multiprocessors"],
        "memory_gib": round(facts["total_memory"] / 2**30, 1),
        "driver": driver,
        "cuda": f"{version // 1000}.{version % 1000 // 10}",
        "max_clock_mhz": clock,
        "power_limit_w": power,
    }


def describe(commit: str | None = None) -> dict[str, Any]:
    """Everything about this machine and checkout that a figure depends on; JSON-able, no names and no paths.

    `commit` counts where there is no repository to ask.
    """
    memory = re.search(r"MemTotal:\s+(\d+)", _read("/proc/meminfo") or "")
    gpus = _command("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    cc = _command(os.environ.get("CC", "gcc"), "--version")
    git = _git()
    if git["commit"] is None and commit:
        git["commit"] = commit
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "devices": ["host", *(gpus.splitlines() if gpus else [])],
        "cpu": _cpuinfo("model name") or platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "cores_online": os.cpu_count(),
        "virtual": "hypervisor" in (_cpuinfo("flags") or "").split(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "idle_governor": _read("/sys/devices/system/cpu/cpuidle/current_governor"),
        "clock": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "memory_gib": round(int(memory.group(1)) / 2**20, 1) if memory else None,
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "switch_interval_s": sys.getswitchinterval(),
        "compiler": cc.splitlines()[0] if cc else None,
        "libraries": _versions(),
        **git,
    }


def host_kind(description: dict[str, Any]) -> str:
    """A short name of the kind of machine for file names, such as ``amd-epyc-2c``; never the host's own name."""
    device = description.get("device")
    if device:
        return _slug(str(device["gpu"]))
    words = re.sub(r"\(.*?\)|@.*|\bCPU\b|\d+-Core|\bProcessor\b", " ", str(description["cpu"]))
    return f"{_slug(words) or 'cpu'}-{description['cores']}c"


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:40]
