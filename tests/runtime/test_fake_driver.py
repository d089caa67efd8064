"""The fake CUDA driver: what the tests of CUDA devices lean on is as the real driver's.  Each test is a program."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_cuda
import pytest
import scripts

CYTHON = Path(fake_cuda.__file__).parents[2] / "cython"
PREAMBLE = """
import ctypes, os, sys, threading, time
from driver_calls import *
K = 'KERNEL add(volatile double *x, double y) { x[0] = x[0] + y; }\\nKERNEL twice(volatile double *x) { x[0] *= 2; }\\n'
F = lambda how: 'extern "C" __global__ void fault(void *x) { ' + how + ' }'
ENDLESS = F('for (;;) asm volatile("nanosleep.u32 1000;");')
"""


@pytest.fixture
def run(fake_environment: dict[str, str]) -> Callable[..., str]:
    """Run a program on the fake driver; settings are variables of the fake."""

    def program(code: str, *arguments: str, status: int = 0, **settings: object) -> str:
        variables = {f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()}
        with fake_cuda.using({**fake_environment, **variables}):
            return scripts.run(PREAMBLE + code, *arguments, status=status)

    return program


#: Libraries whose functions are all in the fake.
TABLES = (
    "cublaslt", "cublas", "cudss", "cufft", "curand", "cusolver", "cusparse", "cusparselt", "cutensor",
)  # fmt: skip


def test_every_function_of_the_tables_is_there(fake_environment: dict[str, str]) -> None:
    """A function that is added to a table needs one in the fake: see tests/helpers/fake_driver."""
    library = ctypes.CDLL(fake_environment["ATOMR_NATIVE_CUDA"])
    names = []
    tables = (
        "cuda/driver_names.h",
        *(f"libraries/{name}/names.h" for name in TABLES),
    )
    for table in tables:
        names += re.findall(r"\bF\([^,()]+, (cu\w+),", (CYTHON / table).read_text(encoding="utf-8"))
    assert len(names) > 140
    assert [name for name in names if not hasattr(library, name)] == []


def test_what_is_refused(run: Any) -> None:
    run("""
d = Driver(None)
n, p = ctypes.c_int(), Pointer()
assert status(d.cuDeviceGetCount, ctypes.byref(n)) == 3  # not initialised
d.cuInit(0)
d.cuDeviceGetCount(ctypes.byref(n))
assert n.value == 2
assert status(d.cuDeviceGet, ctypes.byref(n), 2) == 101
assert status(d.cuStreamCreate, ctypes.byref(p), 1) == 201  # no context is current
d.enter()
out = []
t = threading.Thread(target=lambda: out.append(status(d.cuStreamCreate, ctypes.byref(p), 1)))
t.start(); t.join()
assert out == [201]  # in this thread neither
at = d.map(d.create())
s = d.stream()
assert status(d.create, 12345) == 1
assert status(d.cuMemUnmap, U64(at), Size(SEGMENT // 2)) == 1
assert status(d.cuMemAddressFree, U64(at - SEGMENT), Size(3 * SEGMENT)) == 1  # something is mapped there
assert status(d.cuMemcpyAsync, U64(at + 1), U64(at), Size(SEGMENT), s) == 1  # into the gap
assert status(d.cuMemsetD8Async, U64(at - 1), 0, Size(1), s) == 1
assert status(d.cuStreamWriteValue64_v2, s, U64(at + 4), U64(1), 0) == 1  # not aligned
assert status(d.cuStreamWriteValue64_v2, s, U64(at), U64(1), 1) == 1  # seen before what the stream has written
assert status(d.cuStreamCreate, ctypes.byref(p), 0) == 1  # it would wait for the default stream
word = ctypes.c_uint64()
assert status(d.cuStreamWriteValue64_v2, s, U64(ctypes.addressof(word)), U64(1), 0) == 1  # not registered
d.cuMemHostRegister_v2(ctypes.byref(word), Size(8), 3)
assert status(d.cuMemHostRegister_v2, ctypes.byref(word), Size(8), 3) == 712
d.cuStreamWriteValue64_v2(s, U64(ctypes.addressof(word)), U64(7), 0)
d.cuStreamSynchronize(s)
assert word.value == 7
d.cuMemHostUnregister(ctypes.byref(word))
assert status(d.cuMemHostUnregister, ctypes.byref(word)) == 713
assert status(d.kernel, K, "nothing") == 500
f = d.kernel(K, "twice")
assert status(lambda: d.launch(f, U64(at), grid=0)) == 1
assert status(lambda: d.launch(f, U64(at), block=1025)) == 1
assert status(d.cuModuleLoadData, ctypes.byref(p), b"no image") == 200
assert status(d.cuMemImportFromShareableHandle, ctypes.byref(word), Pointer(0), 1) == 1
d.cuMemUnmap(U64(at), Size(SEGMENT))
d.cuMemAddressFree(U64(at - SEGMENT), Size(3 * SEGMENT))
if os.fork() == 0:
    os._exit(status(d.cuCtxSynchronize))
assert os.waitstatus_to_exitcode(os.wait()[1]) == 3  # nor does it work in a forked child
""", devices=2)  # fmt: skip


def test_memory_outlives_the_process_that_made_it_and_is_given_back(run: Any) -> None:
    run("""
import socket, subprocess
def free(d):
    available, total = Size(), Size()
    d.cuMemGetInfo_v2(ctypes.byref(available), ctypes.byref(total))
    assert total.value == 4 * SEGMENT
    return available.value // SEGMENT
if len(sys.argv) > 1:
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        d = Driver()
        fd = d.create()
        at = d.map(fd)
        d.map(d.create())  # for this process only
        d.write(at, b"kept")
        socket.send_fds(ours, [b"x"], [fd])
        ours.recv(1)
        os.kill(os.getpid(), 9)
ours, theirs = socket.socketpair()
with subprocess.Popen([sys.executable, "-c", sys.orig_argv[sys.orig_argv.index("-c") + 1], str(theirs.fileno())],
                      pass_fds=[theirs.fileno()]) as child:
    theirs.close()
    fd = socket.recv_fds(ours, 1, 1)[1][0]
    d = Driver()
    assert free(d) == 2
    assert status(d.create, 3 * SEGMENT) == 2
    ours.send(b"x")
    child.wait()
ours.close()
assert free(d) == 3
at = d.map(fd)
assert d.read(at, 4) == b"kept"
os.close(fd)
assert free(d) == 3  # the mapping keeps it
d.cuMemUnmap(U64(at), Size(SEGMENT))
assert free(d) == 4
""", memory=8 << 20)  # fmt: skip


def test_work_is_asynchronous_and_ordered_by_streams_and_events_only(run: Any) -> None:
    out = run("""
d = Driver()
fds = d.create()
at = d.map(fds)
add, twice = d.kernel(K, "add"), d.kernel(K, "twice")
a, b, event = d.stream(), d.stream(), d.event()
def round(ordered):
    d.write(at, bytes(8))
    for _ in range(30):
        for stream, f, more in ((a, add, [ctypes.c_double(1)]), (b, twice, [])):
            d.launch(f, U64(at), *more, stream=stream)
            if ordered:
                d.cuEventRecord(event, stream)
                d.cuStreamWaitEvent(b if stream is a else a, event, 0)
    d.cuCtxSynchronize()
    return ctypes.c_double.from_buffer_copy(d.read(at, 8)).value
assert round(True) == 2.0**31 - 2
print(sum(round(False) != 2.0**31 - 2 for _ in range(3)))
endless = d.kernel(ENDLESS, "fault")
assert status(d.cuStreamQuery, a) == 0
d.launch(endless, U64(at), stream=a)
assert status(d.cuStreamQuery, a) == 600
d.cuEventRecord(event, a)
assert status(d.cuEventQuery, event) == 600
d.launch(twice, U64(at), stream=b)
d.cuStreamSynchronize(b)  # other streams go on
assert status(d.cuStreamQuery, a) == 600
os._exit(0)
""", delay_us=300)  # fmt: skip
    assert int(out) == 3  # without events the order is another one


def test_a_full_stream_makes_launches_wait(run: Any) -> None:
    run("""
d = Driver()
at = d.map(d.create())
s, twice, endless = d.stream(), d.kernel(K, "twice"), d.kernel(ENDLESS, "fault")
d.launch(endless, U64(at), stream=s)
for _ in range(7):
    d.launch(twice, U64(at), stream=s)
done = []
def more():
    d.enter()
    d.launch(twice, U64(at), stream=s)
    done.append(1)
threading.Thread(target=more, daemon=True).start()
time.sleep(0.1)
assert not done
os._exit(0)
""", queue=8)  # fmt: skip


def test_ordinary_memory_is_copied_before_the_call_returns(run: Any) -> None:
    run("""
d = Driver()
at = d.map(d.create())
s = d.stream()
source = ctypes.create_string_buffer(b"first")
d.cuMemcpyAsync(U64(at), U64(ctypes.addressof(source)), Size(6), s)
source.value = b"later"
back = ctypes.create_string_buffer(6)
d.cuMemcpyAsync(U64(ctypes.addressof(back)), U64(at), Size(6), s)
assert back.value == b"first", back.value
pinned = Pointer()
d.cuMemHostAlloc(ctypes.byref(pinned), Size(4096), 0)
ctypes.memmove(pinned.value, b"other", 6)
d.cuMemcpyAsync(U64(at), U64(pinned.value), Size(6), s)
ctypes.memmove(pinned.value, b"yet u", 6)  # too early, which shows
d.cuStreamSynchronize(s)
assert d.read(at, 6) == b"yet u\\0"
""", delay_us=200000, seed=3)  # fmt: skip


def test_the_processor_cannot_reach_device_memory(run: Any) -> None:
    run("at = Driver().map(Driver().create()); ctypes.string_at(at, 1)", status=-11)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("*(volatile int *)64 = 1;", 700),
        ("((volatile char *)x)[-1] = 1;", 700),  # the gap in front
        ("((volatile char *)x)[2 << 20] = 1;", 700),
        ("*(volatile unsigned long long *)((char *)x + 1) = 1;", 716),
        ('asm volatile("trap;");', 719),
        ("__trap();", 719),
        ("assert(x == 0);", 710),
    ],
)
def test_a_fault_is_sticky_and_ends_all_work(run: Any, how: str, error: int) -> None:
    run(f"""
d = Driver()
at = d.map(d.create())
a, b = d.stream(), d.stream()
twice, endless, fault = d.kernel(K, "twice"), d.kernel(ENDLESS, "fault"), d.kernel(F({how!r}), "fault")
d.launch(endless, U64(at), stream=b)
d.launch(fault, U64(at), stream=a)
for call in (lambda: d.cuStreamSynchronize(a), lambda: d.cuStreamSynchronize(b), d.cuCtxSynchronize, d.create, d.event,
             lambda: d.cuStreamQuery(a), lambda: d.read(at, 8), lambda: d.launch(twice, U64(at)), d.enter,
             lambda: d.cuMemUnmap(U64(at), Size(SEGMENT))):
    assert status(call) == {error}, call
text = ctypes.c_char_p()
d.cuGetErrorName({error}, ctypes.byref(text))
assert text.value.startswith(b"CUDA_ERROR_")
""")


def test_kernels_see_their_threads_and_share_memory(run: Any) -> None:
    run("""
d = Driver()
at = d.map(d.create())
source = '''
KERNEL all(unsigned long long *out, const float scale, short none) {
  SHARED unsigned int sum[64];
  unsigned int i = threadIdx.x;
  sum[i] = i + blockIdx.x;
  SYNC();
  for (unsigned int half = 32; half; half >>= 1) { if (i < half) sum[i] += sum[i + half]; SYNC(); }
  if (i == 0) out[blockIdx.x] = (unsigned long long)(sum[0] * scale) + none + gridDim.x * blockDim.x;
}
'''
f = d.kernel(source, "all")
d.launch(f, U64(at), ctypes.c_float(0.5), ctypes.c_short(-3), grid=3, block=64)
d.cuCtxSynchronize()
found = (ctypes.c_uint64 * 3).from_buffer_copy(d.read(at, 24))
assert list(found) == [(2016 + 64 * b) // 2 - 3 + 192 for b in range(3)]
""")  # fmt: skip


def test_devices_share_by_import_and_by_ipc(run: Any) -> None:
    run("""
import subprocess
visible = os.environ.pop("CUDA_VISIBLE_DEVICES", None)
if len(sys.argv) > 1:
    d = Driver(1)
    at = U64()
    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 64)]
    handle = Handle.from_buffer_copy(bytes.fromhex(sys.argv[1]))
    assert status(d.cuMemGetAddressRange_v2, None, None, U64(1 << 20)) == 500
    d.cuIpcOpenMemHandle_v2(ctypes.byref(at), handle, 1)
    assert d.read(at.value, 3) == b"ipc"
    d.write(at.value, b"IPC")
    d.cuIpcCloseMemHandle(at)
    sys.exit()
d = Driver(0)
can = ctypes.c_int()
d.cuDeviceCanAccessPeer(ctypes.byref(can), 0, 1)
assert can.value == int(os.environ["FAKE_CUDA_PEER"])
fd = d.create(device=1)
assert status(lambda: d.map(fd)) == (0 if can.value else 217)
at, handle, kind = U64(), ctypes.create_string_buffer(64), ctypes.c_uint()
d.cuMemAlloc_v2(ctypes.byref(at), Size(1000))
d.write(at.value, b"ipc")
d.cuPointerGetAttribute(ctypes.byref(kind), 2, at)
assert kind.value == 2
d.cuIpcGetMemHandle(handle, at)
code = sys.orig_argv[sys.orig_argv.index("-c") + 1]
subprocess.run([sys.executable, "-c", code, handle.raw.hex()], check=True)
assert d.read(at.value, 3) == b"IPC"
d.cuMemFree_v2(at)
""", devices=2, peer=1)  # fmt: skip


def test_devices_can_be_hidden(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
d = Driver(None)
print(d.library.cuInit(0), end=" ")
n = ctypes.c_int()
d.cuDeviceGetCount(ctypes.byref(n))
for i in range(n.value):
    uuid = (ctypes.c_ubyte * 16)()
    d.cuDeviceGetUuid_v2(uuid, i)
    print(uuid[15], end=" ")
"""
    assert run(code, "2,0", devices=3).split() == ["0", "2", "0"]
    assert run(code, "1,9,0", devices=3).split() == ["0", "1"]
    assert run(code, "", devices=3).split() == ["100"]
    assert run(code, "GPU-fa1f4469-8eb3-d8fd-2247-6c91b6db0001", devices=3).split() == ["0", "1"]
