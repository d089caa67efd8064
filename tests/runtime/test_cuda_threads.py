"""CUDA devices in a thread of the program: what a fault ends there, and what closing leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import scripts

pytestmark = pytest.mark.usefixtures("nothing_left")

LOST = """
import gc, logging, pickle, sys, threading, warnings
import numpy as np
import atomr_native as an
from gpu import gpu_plan
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore", ResourceWarning)  # of Systems that are left open
how, when = sys.argv[1:]
system = an.System(isolation="thread", allow_crash=True)
device = system.device("cuda:0")
kept = device.put(np.arange(10.0), durable=True).wait()
group = device.durable_group({"k": kept}, checksum=True)
group.commit().result(60)
host = device.host_array((100,), "float64")
x = device.put(np.ones((8, 8)))
assert (device.blas_lt.matmul(x, x).numpy() == 8).all()
replies = []
if when == "idle":
    device.inject_fault(how)
else:
    slow = gpu_plan(device.lane("slow"), "slow", milliseconds=100).wait(60)
    crash = gpu_plan(device.lane("crash"), how, x).wait(60)
    after = gpu_plan(device.lane("slow"), "slow", x, milliseconds=1).wait(60)
    add = device.elementwise.plan("c + 1", out=x, c=x).wait(60)
    replies = [slow.ask(), *(add.ask(x) for _ in range(50)), crash.ask(x), *(after.ask(x) for _ in range(50))]
for reply in replies:
    assert reply.wait(60)
    error = reply.exception()
    assert error is None or isinstance(error, an.DeviceLost), repr(error)
    if error is not None:
        assert "CUDA_ERROR" in str(error) and "isolation='process'" in str(error), error
        copy = pickle.loads(pickle.dumps(error))
        assert copy.cause.code == error.cause.code >= 700, error
        assert copy.cause.suspects[0].operation
        del copy
for reply in replies[51:]:
    assert isinstance(reply.exception(), an.DeviceLost)
try:
    device.wait_ready(60)
    while True:
        device.lane("slow").noop().ask().result(60)
except an.DeviceLost as error:
    assert "restarted; thread placement cannot restart" in str(error), error
    assert error.cause.name.startswith("CUDA_ERROR"), error.cause.name
    assert not error.cause.restarted
uses = (kept.numpy, x.numpy, lambda: device.put(1.0), group.commit, lambda: device.lane("new").noop().ask(),
        lambda: device.get(kept, out=host[:10]), lambda: device.empty((1 << 28,)), lambda: device.zeros(4))
for use in uses:
    try:
        use()
    except an.DeviceLost as error:
        assert "isolation='process'" in str(error)
    else:
        raise AssertionError(use)
assert device.stats()["state"] == "lost" and device.restarts == 0 and device.worker_pid is None
assert (host[:] == 0).all()
if when == "exit":
    print("left open")
    sys.exit(0)
system.close()
plans = ("slow", "after", "crash", "add")
for name in ("reply", "replies", "device", "kept", "group", "host", "x", "uses", "use", *plans):
    globals().pop(name, None)
gc.collect()
names = {t.name for t in threading.enumerate() if t.name.startswith("atomr")}
assert not names, names
try:
    an.System(isolation="thread").device("cuda:0")
except an.LibraryError as error:
    assert error.status >= 700 and "isolation='process'" in str(error), error
    assert error.name.startswith("CUDA_ERROR"), error.name
else:
    raise AssertionError("a context that has faulted was used again")
with an.System() as other:  # whose worker is a process of its own
    assert other.device("cuda:0").put(np.arange(5.0)).numpy().tolist() == [0, 1, 2, 3, 4]
print("closed")
"""


@pytest.mark.parametrize(
    ("how", "when"), [("illegal address", "busy"), ("illegal address", "idle"), ("assert", "exit"), ("assert", "idle")]
)
def test_a_fault_in_thread_placement_is_the_end(cuda_engine: str, how: str, when: str) -> None:
    """Everybody is told at once, nobody hangs, and the program goes on, or ends in order."""
    fault = f"{how} while idle" if (when, how) == ("idle", "illegal address") else how
    assert scripts.run(LOST, fault, when) in ("closed\n", "left open\n")


def test_closing_in_thread_placement_leaves_nothing(cuda_engine: str) -> None:
    """A device that is well gives everything back: as often as one likes."""
    scripts.run("""
import gc, os
import numpy as np
import atomr_native as an
from gpu import gpu_plan
from leaks import Baseline
def once():
    with an.System(isolation="thread", allow_crash=True) as system:
        device = system.device("cuda:0")
        x = device.put(np.ones((8, 8)), durable=True)
        group = device.durable_group({"x": x}, checksum=True)
        group.commit().result(60)
        assert (device.blas_lt.matmul(x, x).numpy() == 8).all()
        device.host_array((10,), "float32")[:] = 1
once()
gc.collect()
before = Baseline()
threads = len(os.listdir("/proc/self/task"))
for _ in range(5):
    once()
    gc.collect()
before.check()
from actions import eventually
eventually(lambda: len(os.listdir("/proc/self/task")) <= threads)
""")


@pytest.mark.parametrize("rests", [True, False])
def test_what_a_device_at_work_may_use_is_kept(refuse: Callable[..., Path], rests: bool) -> None:
    """The fake's: its streams have not finished, or cannot tell, when the lanes go."""
    path = refuse()
    scripts.run("""
import gc, logging, pathlib, sys, weakref
from atomr_native._lib.cuda import CudaBackend
from atomr_native._lib.lanes import Lanes
from atomr_native._lib.sender import Core
logging.disable(logging.CRITICAL)
refusals, rests = pathlib.Path(sys.argv[1]), sys.argv[2] == "True"
class Run:
    def __call__(self, arrays, scalars):
        pass
class Device(CudaBackend):
    pass
core, run, device = Core(64), Run(), Device(0)
kept = [weakref.ref(run), weakref.ref(device)]
lanes = Lanes(core.p_fd, core.p_bytes, backend=device)
lanes.add_plan(1, run, [], [])
del run, device
gc.collect()
assert all(ref() for ref in kept)
if not rests:
    refusals.write_text("cuStreamQuery 2 1\\n")
del lanes
gc.collect()
assert [ref() is None for ref in kept] == [rests] * 2
""", str(path), str(rests))  # fmt: skip


def test_who_lends_when_it_faults_is_told(cuda_engine: str) -> None:
    assert scripts.run("""
import logging, sys
import numpy as np
import atomr_native as an
from actions import eventually
logging.disable(logging.CRITICAL)
with an.System(isolation="thread", allow_crash=True) as system:
    device = system.device("cuda:0")
    x = device.put(np.ones(100))
    try:
        with x.lend() as lent:
            assert lent.__cuda_array_interface__["shape"] == (100,)
            device.inject_fault("trap")
            eventually(lambda: device.stats()["state"] == "lost")
    except an.DeviceLost as error:
        print("isolation='process'" in str(error), error.cause.name)
""") == "True CUDA_ERROR_LAUNCH_FAILED\n"  # fmt: skip


def test_a_kernel_that_never_ends_is_given_up(cuda_engine: str) -> None:
    """Nothing can end it there: everybody is told by the watchdog, and the program goes on, and ends."""
    assert scripts.run("""
import logging, warnings
import numpy as np
import atomr_native as an
from gpu import gpu_plan
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore", ResourceWarning)  # it is left open
system = an.System(isolation="thread", allow_crash=True, watchdog=0.5)
device = system.device("cuda:0")
x = device.put(np.ones(4))
plan = gpu_plan(device.lane("stuck"), "endless", x).wait(60)
replies = [plan.ask(x), device.lane("other").noop().ask()]
assert replies[1].result(60) is None
for use in (lambda: replies[0].result(60), x.numpy, lambda: device.put(1.0)):
    try:
        use()
    except an.DeviceLost as error:
        assert "hangs" in str(error) and "message 1 of 'stuck' ran for more than 0.5 s" in str(error), error
        assert "isolation='process'" in str(error), error
        assert error.cause.name == "watchdog", error.cause.name
    else:
        raise AssertionError(use)
system.close()
print("closed")
""") == "closed\n"  # fmt: skip
