"""Kernels and matmuls on a GPU: what sending costs the caller, what a stream of messages sustains, and asking."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup
from bench.harness.common import PLACES, Body, burst, device
from bench.harness.gpu import LANES, Sends, add_loop, add_peer, asked, kernel, matmul, numba, squares, sustained
from bench.harness.gpu_peers import cupy_calls, numba_calls, torch_calls

__all__ = ["BARS", "CASES"]

#: Operations between two waits of a peer: more than a driver's queue holds would measure the queue.
EVERY = 1000


def _immediate(call: Callable[..., Any], x: Any, w: Any, bias: Any) -> Body:
    def body(count: int) -> None:
        local, a, b, c = call, x, w, bias
        for _ in range(count):
            local(a, b, bias=c, epilogue="bias")

    return body


def _immediate_kernel(call: Callable[..., Any], x: Any) -> Body:
    def body(count: int) -> None:
        local, a = call, x
        for _ in range(count):
            local("x = x * m + a", x=a, m=1.0, a=0.0)

    return body


def _numba_told(launch: Any, x: Any) -> Body:
    def body(count: int) -> None:
        tell, a = launch.tell, x
        for _ in range(count):
            tell(a, 1.0, 0.0)

    return body


def _named(sends: Sends) -> Body:
    def body(count: int) -> None:
        tell, (x,) = sends.plan.tell, sends.operands
        for _ in range(count):
            tell(x, m=1.0, a=0.0)

    return body


def tell(setup: Setup) -> None:
    """Cost to the caller of sending GPU work, the lane awake; the work itself is not waited for.

    Planned kernel: one handle, two numbers that are the plan's defaults, or given by keyword. Planned matmul: four
    handles. Numba kernel: ``launch.tell(x, 1.0, 0.0)`` of ``launch = dev.kernel(f)[1, 32]``. Immediate calls find
    their plan, and the matmul allocates its output. The Python loop and the call are
    included; 10 000 planned tells a sample as for the host device, 2000 immediate calls, 500 of the peers, into a
    mailbox of 65536. C: the loop over `cuLaunchKernel` or
    `cublasLtMatmul`, which is what the caller of C pays.
    """
    many, count, few = setup.count(10_000), setup.count(2000), setup.count(500)
    for place in PLACES:
        name = f"atomr planned kernel, {place}"
        with setup.attempt(name):
            sends = kernel(setup, place)
            setup.add(name, burst(sends.tells, sends.finish, many))
        name = f"atomr planned kernel, numbers by keyword, {place}"
        with setup.attempt(name):
            sends = kernel(setup, place)
            setup.add(name, burst(_named(sends), sends.finish, many))
        name = f"atomr Numba kernel, told, {place}"
        with setup.attempt(name):
            launch, sends = numba(setup, place)
            setup.add(name, burst(_numba_told(launch, *sends.operands), sends.finish, many))
        name = f"atomr planned matmul, {place}"
        with setup.attempt(name):
            sends = matmul(setup, place)
            setup.add(name, burst(sends.tells, sends.finish, many))
        name = f"atomr immediate matmul, {place}"
        with setup.attempt(name):
            dev = device(setup, place)
            x, w, bias = squares(dev, 2)
            body = _immediate(dev.blas_lt.matmul, x, w, bias)
            drain = partial(_wait_matmul, dev.blas_lt.matmul, x, w, bias)
            setup.add(name, burst(body, drain, count))
        name = f"atomr immediate kernel, {place}"
        with setup.attempt(name):
            dev = device(setup, place)
            x = dev.zeros((32,), "float64")
            setup.add(name, burst(_immediate_kernel(dev.elementwise.run, x), x.wait, count))
    add_loop(setup, "C cuLaunchKernel", "launch", few)
    add_loop(setup, "C cublasLtMatmul", "matmul", few)
    add_peer(setup, "torch.mm(out=)", torch_calls, "mm out", few)
    add_peer(setup, "torch.addmm(out=)", torch_calls, "addmm out", few)
    add_peer(setup, "torch.addmm", torch_calls, "addmm", few)
    add_peer(setup, "torch.mul(out=)", torch_calls, "mul out", few)
    add_peer(setup, "cupy.matmul(out=), float32", cupy_calls, "matmul out", few)
    add_peer(setup, "CuPy RawKernel", cupy_calls, "RawKernel", few)
    add_peer(setup, "Numba launch", numba_calls, "launch", few)
    setup.ratio("atomr planned matmul, process", "torch.addmm(out=)")
    setup.ratio("atomr immediate matmul, process", "torch.addmm")
    setup.ratio("atomr planned kernel, process", "CuPy RawKernel")
    setup.ratio("atomr planned kernel, process", "Numba launch")
    setup.ratio("atomr Numba kernel, told, process", "Numba launch")


def _wait_matmul(call: Callable[..., Any], x: Any, w: Any, bias: Any) -> None:
    call(x, w, bias=bias, epilogue="bias").wait()


def _sustained(setup: Setup, make: Callable[..., Sends], count: int, one: str, threads: str, loops: str) -> None:
    """The rows that kernel and matmul have in common: one lane and four, C with one thread and with four."""
    for place in PLACES:
        for lanes in (1, LANES):
            name = f"atomr {place}, {lanes} lane{'s' if lanes > 1 else ''}"
            with setup.attempt(name):
                setup.add(name, sustained([make(setup, place, lane) for lane in range(lanes)], count))
    add_loop(setup, one, f"{loops}-sustained", count)
    add_loop(setup, threads, f"{loops}-four-threads", count)
    for place in PLACES:
        setup.ratio(f"atomr {place}, 1 lane", one)
        setup.ratio(f"atomr {place}, {LANES} lanes", one)
    setup.ratio(f"atomr process, {LANES} lanes", threads)


def sustained_kernel(setup: Setup) -> None:
    """Time per small kernel, told one after the other, until the last is done.

    ``x = x * m + a``, 32 float64: four arguments, three in the peers' and Numba's kernels. 4000 a sample, in the
    peers 1000 with one wait. One lane, and four with an array of its own each. C launches the same machine code, each
    when the one before has ended, or "overlapping", as the library does. "core only" is the library's own core in C,
    without Python, overlap and a second process. "Numba kernel" is the same in Numba, told by its plan. The peers'
    kernels do the same, compiled by them.
    """
    count, few = setup.count(4000), setup.count(EVERY)
    one, threads = "C cuLaunchKernel", "C cuLaunchKernel, 4 threads"
    _sustained(setup, kernel, count, one, threads, "launch")
    add_loop(setup, "C cuLaunchKernelEx, overlapping", "launch-overlapping", count)
    with setup.attempt("atomr Numba kernel, process, 1 lane"):
        setup.add("atomr Numba kernel, process, 1 lane", sustained([numba(setup, "process")[1]], count))
    add_loop(setup, "core only, 1 lane", "sustained", count, "lanes", "atomr")
    add_loop(setup, f"core only, {LANES} lanes", "four-independent", count, "lanes", "atomr")
    add_peer(setup, "CuPy RawKernel", cupy_calls, "RawKernel", few, every=EVERY)
    add_peer(setup, "Numba launch", numba_calls, "launch", few, every=EVERY)
    add_peer(setup, "torch.mul(out=)", torch_calls, "mul out", few, every=EVERY)
    setup.ratio("atomr process, 1 lane", "C cuLaunchKernelEx, overlapping")
    setup.ratio("core only, 1 lane", one)
    setup.ratio("atomr Numba kernel, process, 1 lane", one)
    setup.ratio("atomr process, 1 lane", "CuPy RawKernel")
    setup.ratio("atomr process, 1 lane", "Numba launch")


def sustained_matmul(setup: Setup) -> None:
    """Time per matmul (32x32x32 bfloat16 + bias), told one after the other, until the last is done.

    4000 a sample, in the peers 1000 with one wait. One lane, and four with arrays of their own each. C:
    `cublasLtMatmul` with the same algorithm, descriptors and bias pointer set once, workspace at hand; in one
    thread, and in four with a stream each.
    """
    count, few = setup.count(4000), setup.count(EVERY)
    one, threads = "C cublasLtMatmul", "C cublasLtMatmul, 4 threads"
    _sustained(setup, matmul, count, one, threads, "matmul")
    add_peer(setup, "torch.addmm(out=)", torch_calls, "addmm out", few, every=EVERY)
    add_peer(setup, "torch.mm(out=)", torch_calls, "mm out", few, every=EVERY)
    add_peer(setup, "cupy.matmul(out=), float32", cupy_calls, "matmul out", few, every=EVERY)
    setup.ratio("atomr process, 1 lane", "torch.addmm(out=)")
    setup.ratio(f"atomr process, {LANES} lanes", "torch.addmm(out=)")


def ask(setup: Setup) -> None:
    """Round trip: send, launch, GPU finished, reply; again at once. 1000 a sample, 500 of the peers.

    ``plan.ask().result()`` beside C's launch and `cuStreamSynchronize`, and the peers' call and synchronize.
    """
    count, few = setup.count(1000), setup.count(500)
    for work, make in (("kernel", kernel), ("matmul", matmul)):
        for place in PLACES:
            name = f"atomr {work}, {place}"
            with setup.attempt(name):
                setup.add(name, asked(make(setup, place).ask, count))
    kernel_loop, matmul_loop = "C cuLaunchKernel + synchronize", "C cublasLtMatmul + synchronize"
    add_loop(setup, kernel_loop, "launch-synchronize", count)
    add_loop(setup, matmul_loop, "matmul-synchronize", count)
    add_loop(setup, "core only, kernel", "ask", count, "lanes", "atomr")
    add_peer(setup, "torch.mul(out=) + synchronize", torch_calls, "mul out", few, every=1)
    add_peer(setup, "torch.addmm(out=) + synchronize", torch_calls, "addmm out", few, every=1)
    add_peer(setup, "CuPy RawKernel + synchronize", cupy_calls, "RawKernel", few, every=1)
    add_peer(setup, "Numba launch + synchronize", numba_calls, "launch", few, every=1)
    for place in PLACES:
        setup.ratio(f"atomr kernel, {place}", kernel_loop)
        setup.ratio(f"atomr matmul, {place}", matmul_loop)
    setup.ratio("core only, kernel", kernel_loop)
    setup.ratio("atomr matmul, process", "torch.addmm(out=) + synchronize")


BARS = (
    *(
        Bar(f"planned tell of a {work}", "gpu_tell", f"atomr planned {work}, {p}", 0.2, "us", part=p)
        for work in ("kernel", "matmul")
        for p in PLACES
    ),
    *(Bar("immediate matmul call", "gpu_tell", f"atomr immediate matmul, {p}", 1.5, "us", part=p) for p in PLACES),
    *(
        Bar(f"{work}, sustained, {lanes}", f"gpu_{work}", f"atomr {p}, {lanes}", limit, "x", f"C {call}", p)
        for work, lanes, limit, call in (
            ("kernel", "1 lane", 1.15, "cuLaunchKernel"),
            ("matmul", "1 lane", 1.05, "cublasLtMatmul"),
            ("matmul", "4 lanes", 0.6, "cublasLtMatmul"),
        )
        for p in PLACES
    ),
    *(
        Bar(f"ask a {work}, GPU finished", "gpu_ask", f"atomr {work}, {p}", 1.10, "x", f"C {call} + synchronize", p)
        for work, call in (("kernel", "cuLaunchKernel"), ("matmul", "cublasLtMatmul"))
        for p in PLACES
    ),
)
CASES = (
    Case("gpu_tell", "Sending GPU work: cost to the caller", tell, devices=("cuda",)),
    Case("gpu_kernel", "A small kernel, sustained by tell", sustained_kernel, devices=("cuda",)),
    Case("gpu_matmul", "A small matmul, sustained by tell", sustained_matmul, devices=("cuda",)),
    Case("gpu_ask", "Ask, until the GPU has finished", ask, devices=("cuda",)),
)
