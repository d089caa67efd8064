"""Describe the CUDA driver and its devices; writes one JSON object."""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from pathlib import Path

from . import cuda_api as api

VIRTUAL_MEMORY, EXPORT_FD, STREAM_WRITE_64 = 102, 103, 122
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76


def mapped_file() -> str | None:
    """Return the driver's file."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[2]
        if "libcuda.so" in path:
            return f"/{path}"
    return None


def describe(driver: api.Driver, ordinal: int) -> dict[str, object]:
    """Return the driver's description of one device."""
    device = driver.integer("cuDeviceGet", ordinal)
    name = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", name, len(name), device)
    identity = api.Uuid()
    driver.call("cuDeviceGetUuid_v2", ctypes.byref(identity), device)
    memory = ctypes.c_size_t()
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    major, minor = (driver.attribute(device, number) for number in (CAPABILITY_MAJOR, CAPABILITY_MINOR))
    return {
        "index": ordinal,
        "name": name.value.decode(errors="replace"),
        "uuid": f"GPU-{uuid.UUID(bytes=bytes(identity.bytes))}",
        "compute_capability": f"{major}.{minor}",
        "memory": memory.value,
        "virtual_memory": bool(driver.attribute(device, VIRTUAL_MEMORY)),
        "export_fd": bool(driver.attribute(device, EXPORT_FD)),
        "stream_write_64": bool(driver.attribute(device, STREAM_WRITE_64)),
    }


def main() -> None:
    """Write the description."""
    found: dict[str, object] = {"found": False, "file": None, "version": None, "error": None, "devices": []}
    try:
        ctypes.CDLL(api.SONAME)
    except OSError as error:
        found["error"] = str(error)
        sys.stdout.write(json.dumps(found))
        return
    found.update(found=True, file=mapped_file())
    try:
        driver = api.Driver()
        version = driver.integer("cuDriverGetVersion")
        found["version"] = f"{version // 1000}.{version % 1000 // 10}"
        found["devices"] = [describe(driver, ordinal) for ordinal in range(driver.integer("cuDeviceGetCount"))]
    except (api.CudaError, AttributeError) as error:
        found["error"] = str(error)
    sys.stdout.write(json.dumps(found))
