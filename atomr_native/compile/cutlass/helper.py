"""A process that compiles or links one kernel, and ends.

NVRTC's front end serves one source of a process at a time, and neither it nor the linker can be interrupted: processes
run at once, and can be killed.  This file runs as a script and imports nothing of the package, so it starts quickly.
It reads a job from its standard input, and writes the answer to its standard output; `processes` describes both.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, BinaryIO

__all__ = ["main", "read", "write"]


def write(file: BinaryIO, head: dict[str, Any], blobs: list[bytes]) -> None:
    """Write an object of JSON and pieces of bytes."""
    data = json.dumps({**head, "sizes": [len(blob) for blob in blobs]}).encode()
    file.write(len(data).to_bytes(8, "little") + data)
    for blob in blobs:
        file.write(blob)
    file.flush()


def read(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return what `write` has written."""
    at = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:at])
    blobs = []
    for size in head["sizes"]:
        blobs.append(data[at : at + size])
        at += size
    return head, blobs


class _Failed(Exception):
    """A call that failed: its name, its status and the log."""


def _compiled(job: dict[str, Any]) -> list[bytes]:
    nvrtc = importlib.import_module("cuda.bindings.nvrtc")

    def call(name: str, *arguments: Any) -> Any:
        status, *results = getattr(nvrtc, name)(*arguments)
        if int(status):
            raise _Failed(name, int(status), status.name, "")
        return results[0] if results else None

    headers = job["headers"]
    program = call(
        "nvrtcCreateProgram", job["source"].encode(), b"atomr.cu", len(headers),
        [text.encode() for text in headers.values()], [name.encode() for name in headers],
    )  # fmt: skip
    flags = [os.fsencode(flag) for flag in job["flags"]]
    status = nvrtc.nvrtcCompileProgram(program, len(flags), flags)[0]
    log = b" " * call("nvrtcGetProgramLogSize", program)
    call("nvrtcGetProgramLog", program, log)
    text = log.decode(errors="replace").strip("\0 \n")
    # Advice of ptxas that the tensor cores wait for each instruction, which costs most of the speed.
    if int(status) or "C7510" in text or "C7509" in text or "C7511" in text:
        raise _Failed("nvrtcCompileProgram", int(status), status.name if int(status) else "Serialised", text)
    made = []
    for kind in job["outputs"]:
        code = b" " * call(f"nvrtcGet{kind}Size", program)
        call(f"nvrtcGet{kind}", program, code)
        made.append(code)
    return made


def _linked(job: dict[str, Any], codes: list[bytes]) -> list[bytes]:
    nvjitlink = importlib.import_module("cuda.bindings.nvjitlink")
    handle = nvjitlink.create(len(job["flags"]), job["flags"])
    try:
        for index, code in enumerate(codes):
            nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, code, len(code), f"code{index}")
        nvjitlink.complete(handle)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        text = bytes(log).decode(errors="replace").strip("\0 \n")
        raise _Failed("nvJitLinkComplete", 1, type(error).__name__, text or str(error)) from None
    cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, cubin)
    return [bytes(cubin)]


def main() -> None:
    """Do the job of standard input."""
    job, blobs = read(sys.stdin.buffer.read())
    sys.path[:] = job["path"]
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    try:
        made = _compiled(job) if job["kind"] == "compile" else _linked(job, blobs)
    except _Failed as failed:
        operation, status, name, log = failed.args
        write(out, {"error": {"operation": operation, "status": status, "name": name, "log": log}}, [])
    except (ImportError, RuntimeError, OSError) as error:
        write(out, {"missing": str(error)}, [])
    else:
        write(out, {}, made)


if __name__ == "__main__":
    main()
