"""Test the runtime's requirements for memory on a CUDA device; writes one JSON object.

``register N``: a memfd page registered with device N, filled by the device, read here.
``export N``: device memory exported as a descriptor and imported by a second process.
``import N FD``: that second process.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import secrets
import socket
import subprocess
import sys

from . import cuda_api as api

PINNED, ON_DEVICE, POSIX_FD, READ_WRITE = 1, 1, 1, 3
REGISTER_PORTABLE, REGISTER_DEVICEMAP = 1, 2


def register(ordinal: int) -> str:
    """Register one page of a memfd, let the device write it, and check the page."""
    driver = api.Driver()
    driver.use(ordinal)
    nbytes = mmap.PAGESIZE
    fd = os.memfd_create("atomr-doctor")
    os.ftruncate(fd, nbytes)
    with mmap.mmap(fd, nbytes) as page:
        view = (ctypes.c_ubyte * nbytes).from_buffer(page)
        address = ctypes.addressof(view)
        driver.call("cuMemHostRegister_v2", address, nbytes, REGISTER_PORTABLE | REGISTER_DEVICEMAP)
        pointer = ctypes.c_ulonglong()
        driver.call("cuMemHostGetDevicePointer_v2", ctypes.byref(pointer), address, 0)
        driver.call("cuMemsetD8_v2", pointer, 0xA5, nbytes)
        driver.call("cuCtxSynchronize")
        driver.call("cuMemHostUnregister", address)
        del view
        if os.pread(fd, nbytes, 0) != b"\xa5" * nbytes:
            raise api.CudaError("the device's write to the page was not seen")
    return "a memfd page was registered, written by the device and read here"


def mapped(driver: api.Driver, handle: ctypes.c_ulonglong, nbytes: int, ordinal: int) -> ctypes.c_ulonglong:
    """Map an allocation for reading and writing and return its address."""
    address = ctypes.c_ulonglong()
    driver.call("cuMemAddressReserve", ctypes.byref(address), nbytes, 0, 0, 0)
    driver.call("cuMemMap", address, nbytes, 0, handle, 0)
    access = api.AccessDesc(api.Location(ON_DEVICE, ordinal), READ_WRITE)
    driver.call("cuMemSetAccess", address, nbytes, ctypes.byref(access), 1)
    return address


def export(ordinal: int) -> str:
    """Allocate exportable memory, fill it, and compare it with a second process's read."""
    driver = api.Driver()
    device = driver.use(ordinal)
    prop = api.AllocationProp(type=PINNED, requestedHandleTypes=POSIX_FD, location=api.Location(ON_DEVICE, device))
    granularity = ctypes.c_size_t()
    driver.call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(prop), 0)
    nbytes = granularity.value
    handle = ctypes.c_ulonglong()
    driver.call("cuMemCreate", ctypes.byref(handle), nbytes, ctypes.byref(prop), 0)
    address = mapped(driver, handle, nbytes, device)
    content = secrets.token_bytes(4096)
    driver.call("cuMemcpyHtoD_v2", address, content, len(content))
    fd = ctypes.c_int()
    driver.call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, POSIX_FD, 0)
    ours, theirs = socket.socketpair()
    ours.settimeout(40)
    with ours, theirs:
        child = subprocess.Popen(
            [*sys.orig_argv[:-2], "import", str(ordinal), str(theirs.fileno())],  # instead of: "export", ordinal
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        try:
            socket.send_fds(ours, [str(nbytes).encode()], [fd.value])
            answer = ours.recv(8192, socket.MSG_WAITALL)
        finally:
            child.kill()
            child.wait()
    if answer != content:
        raise api.CudaError(f"the second process did not read the bytes that were written: {answer[:80]!r}")
    return f"{nbytes} bytes exported as a descriptor and imported by a second process"


def import_(ordinal: int, channel: socket.socket) -> None:
    """Receive a descriptor, import and map it, and send back its first bytes."""
    driver = api.Driver()
    device = driver.use(ordinal)
    data, fds, _, _ = socket.recv_fds(channel, 64, 1)
    nbytes = int(data)
    handle = ctypes.c_ulonglong()
    driver.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fds[0]), POSIX_FD)
    address = mapped(driver, handle, nbytes, device)
    content = ctypes.create_string_buffer(4096)
    driver.call("cuMemcpyDtoH_v2", content, address, 4096)
    channel.sendall(content.raw)


def main() -> None:
    """Run the test named by the arguments."""
    action, ordinal = sys.argv[1], int(sys.argv[2])
    if action == "import":
        with socket.socket(fileno=int(sys.argv[3])) as channel:
            try:
                import_(ordinal, channel)
            except (api.CudaError, AttributeError) as error:
                channel.sendall(str(error).encode())
        return
    try:
        answer = {"status": "ok", "detail": {"register": register, "export": export}[action](ordinal)}
    except (api.CudaError, AttributeError, OSError) as error:
        answer = {"status": "failed", "detail": str(error)}
    sys.stdout.write(json.dumps(answer))
