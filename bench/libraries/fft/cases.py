"""Fourier transforms: what their messages cost on the host device, and their time on a GPU beside torch and CuPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Setup, Unavailable, gpu_peers
from bench.harness.calls import Operation, add_calls
from bench.harness.common import PLACES, device, repeat, timed
from bench.harness.gpu import add_loop, add_peer, waited

__all__ = ["BARS", "CASES"]

POINTS = 256
#: Calls of a sample, after the last of which the device is waited for; of transforms that take milliseconds, a fifth.
TURNS, FEW, LONG = 100, 20, 1 << 27
#: What nvmath-python calls transforms.
_KINDS = {"fft": "C2C", "ifft": "C2C", "rfft": "R2C", "irfft": "C2R"}
#: What is timed on a GPU: name, transform, dtype of x, shape of x, axes; and the shape in a quick run.
SIZES: tuple[tuple[str, str, str, tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ("fft, 16384 x 1024", "fft", "complex64", (16384, 1024), (-1,), (4, 16)),
    ("fft, 1024 x 16384", "fft", "complex64", (1024, 16384), (-1,), (2, 32)),
    ("fft, 16 x 2^20", "fft", "complex64", (16, 1 << 20), (-1,), (2, 32)),
    ("fft, 2^24", "fft", "complex64", (1 << 24,), (-1,), (64,)),
    ("fft, 2^28", "fft", "complex64", (1 << 28,), (-1,), (64,)),
    ("fft, 4096 x 4096", "fft", "complex64", (4096, 4096), (-2, -1), (8, 8)),
    ("fft, 256^3", "fft", "complex64", (256,) * 3, (-3, -2, -1), (4, 4, 4)),
    ("fft, 512^3", "fft", "complex64", (512,) * 3, (-3, -2, -1), (4, 4, 4)),
    ("fft of columns, 4096 x 4096", "fft", "complex64", (4096, 4096), (0,), (8, 8)),
    ("fft of middle axes, 64 x 1024 x 256", "fft", "complex64", (64, 1024, 256), (1,), (2, 8, 4)),
    ("fft, 16 x 1000003", "fft", "complex64", (16, 1000003), (-1,), (2, 11)),
    ("fft, 256 x 65537", "fft", "complex64", (256, 65537), (-1,), (2, 17)),
    ("ifft, 16384 x 1024", "ifft", "complex64", (16384, 1024), (-1,), (4, 16)),
    ("rfft, 16384 x 1024", "rfft", "float32", (16384, 1024), (-1,), (4, 16)),
    ("irfft, 16384 x 513", "irfft", "complex64", (16384, 513), (-1,), (4, 9)),
    ("rfft, 4096 x 4096, float64", "rfft", "float64", (4096, 4096), (-2, -1), (8, 8)),
    ("rfft, 256^3", "rfft", "float32", (256,) * 3, (-3, -2, -1), (4, 4, 4)),
    ("irfft, 4096 x 2049", "irfft", "complex64", (4096, 2049), (-2, -1), (8, 5)),
    ("irfft, 256 x 256 x 129", "irfft", "complex64", (256, 256, 129), (-3, -2, -1), (4, 4, 3)),
)
#: Those of which torch and nvmath leave a result whose last axis is not innermost: also with one of ours like that.
TRANSPOSED = ("fft of columns, 4096 x 4096", "rfft, 4096 x 4096, float64")
#: Libraries, and the best of them.
PEERS, BEST = ("torch", "CuPy", "nvmath"), "best of torch, CuPy and nvmath"


def _rfft(dev: Any) -> Operation:
    import atomr_native as an

    x, out = dev.zeros((POINTS,), "float32"), dev.zeros((POINTS // 2 + 1,), "complex64")
    plan = dev.fft.plan(an.FftRequest(transform="rfft", x=x, out=out))
    return Operation(plan, {"x": x, "out": out}, partial(dev.fft.rfft, x, out=out), out)


def host(setup: Setup) -> None:
    """`rfft` of 256 float32 on the host device: told, called, asked and sustained.

    SciPy transforms an array in the program.
    """
    add_calls(setup, what := f"rfft, {POINTS}", _rfft)
    with setup.attempt(peer := f"SciPy rfft, {POINTS}", kind="peer"):
        import numpy as np
        import scipy.fft

        setup.add(peer, timed(repeat(partial(scipy.fft.rfft, np.zeros(POINTS, np.float32))), setup.count(2000)))
    for place in PLACES:
        setup.ratio(f"atomr {what}, sustained, {place}", peer)


def _shape(setup: Setup, full: tuple[int, ...], quick: tuple[int, ...]) -> tuple[int, ...]:
    return full if setup.count(TURNS) == TURNS else quick


def _torch(transform: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], index: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(index)
    x = torch.zeros(shape, dtype=getattr(torch, dtype), device="cuda")
    run = partial(getattr(torch.fft, f"{transform}n"), x, dim=axes)
    return gpu_peers.Calls({"run": run}, torch.cuda.synchronize)


def _cupy(transform: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], index: int) -> gpu_peers.Calls:
    cupy = gpu_peers.cupy(index)
    run = partial(getattr(cupy.fft, f"{transform}n"), cupy.zeros(shape, dtype), axes=axes)
    return gpu_peers.Calls({"run": run}, cupy.cuda.Device(index).synchronize)


def _nvmath(transform: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], index: int) -> gpu_peers.Calls:
    """nvmath-python's planned transform, which writes to an array of its own."""
    torch = gpu_peers.torch(index)
    library = gpu_peers.nvmath_fft()
    x = torch.zeros(shape, dtype=getattr(torch, dtype), device="cuda")
    try:
        plan = library.FFT(x, axes=axes, options={"blocking": "auto", "fft_type": _KINDS[transform]})
    except ValueError as error:  # it takes no axes between others
        raise Unavailable(f"nvmath refuses the axes: {error}") from error
    plan.plan(direction=library.FFTDirection.INVERSE if transform[0] == "i" else library.FFTDirection.FORWARD)
    if _KINDS[transform] != "C2R":
        return gpu_peers.Calls({"run": plan.execute}, torch.cuda.synchronize)

    def run() -> Any:  # which overwrites its operand
        plan.reset_operand(x)
        return plan.execute()

    return gpu_peers.Calls({"run": run}, torch.cuda.synchronize)


def _windowed(value: Any, _: Any, window: Any, gain: Any) -> Any:
    return value * window * gain


def _power(value: Any, _: Any) -> Any:
    return value.real * value.real + value.imag * value.imag


def _torch_chain(shape: tuple[int, ...], index: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(index)
    x, window = torch.zeros(shape, device="cuda"), torch.zeros(shape[-1:], device="cuda")

    def run() -> Any:
        made = torch.fft.rfft(x * window * 0.5)
        return made.real.square() + made.imag.square()

    return gpu_peers.Calls({"run": run}, torch.cuda.synchronize)


def _mapped(dev: Any, shape: tuple[int, ...], which: tuple[str, ...], turns: int) -> Callable[[], float]:
    """Sample: microseconds of a transform with these functions."""
    import atomr_native as an

    x, window = dev.zeros(shape, "float32"), dev.zeros(shape[-1:], "float32")
    out = dev.zeros((*shape[:-1], shape[-1] // 2 + 1), "float32" if "store" in which else "complex64")
    loads = {"load": _windowed, "operands": {"window": window, "gain": 0.5}} if "load" in which else {}
    stores = {"store": _power} if "store" in which else {}
    request = an.FftRequest(transform="rfft", x=x, axes=-1, out=out, **loads, **stores)
    try:
        plan = dev.fft.plan(request).wait(60.0)
    except an.Unsupported as error:
        raise Unavailable(str(error)) from error
    tell = partial(plan.tell, x, window, out=out, gain=0.5) if loads else partial(plan.tell, x, out=out)
    return waited(tell, out.wait, turns, turns)


def functions(setup: Setup) -> None:
    """Functions beside the plain transform and torch's operations: a windowed power spectrum, and a filter of images.

    100 messages, and a wait.
    """
    import atomr_native as an

    turns, what = setup.count(TURNS), "rfft, 16384 x 1024"
    shape = _shape(setup, (16384, 1024), (4, 16))
    with setup.attempt(plain := f"atomr {what}"):
        dev = device(setup, "process")
        x = dev.zeros(shape, "float32")
        out = dev.fft.rfft(x).wait()
        plan = dev.fft.plan(an.FftRequest(transform="rfft", x=x, axes=-1, out=out)).wait(60.0)
        setup.add(plain, waited(partial(plan.tell, x, out=out), out.wait, turns, turns))
    ours = f"atomr Numba functions in {what}"
    for name, which in (
        (f"atomr Numba function on load in {what}", ("load",)),
        (f"atomr Numba function on store in {what}", ("store",)),
        (ours, ("load", "store")),
    ):
        with setup.attempt(name):
            setup.add(name, _mapped(device(setup, "process"), shape, which, turns))
        setup.ratio(name, plain)
    chain = f"torch {what}, window and power by operations"
    add_peer(setup, chain, partial(_torch_chain, shape), "run", turns, every=turns)
    setup.ratio(ours, chain)
    _filtered(setup, turns)


def _damped(value: Any, offset: Any, half: Any, rate: Any) -> Any:
    return value / (1 + (offset % half) * rate)


def _torch_filter(shape: tuple[int, ...], index: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(index)
    x, weights = torch.zeros(shape, dtype=torch.complex64, device="cuda"), torch.ones(shape[-1:], device="cuda")
    return gpu_peers.Calls({"run": lambda: torch.fft.irfft2(x * weights)}, torch.cuda.synchronize)


def _filtered(setup: Setup, turns: int) -> None:
    """Add images from their frequencies, by a function that damps them: along two axes."""
    import atomr_native as an

    what, shape = "irfft, 16 x 1024 x 513", _shape(setup, (16, 1024, 513), (2, 8, 5))
    rows = f"atomr {what}", f"atomr Numba function on load in {what}"
    for name in rows:
        more = {} if name == rows[0] else {"load": _damped, "operands": {"half": shape[-1], "rate": 0.01}}
        with setup.attempt(name):
            dev = device(setup, "process")
            x, out = dev.zeros(shape, "complex64"), dev.zeros((*shape[:-1], 2 * shape[-1] - 2), "float32")
            try:
                plan = dev.fft.plan(an.FftRequest(transform="irfft", x=x, axes=(-2, -1), out=out, **more)).wait(60.0)
            except an.Unsupported as error:
                raise Unavailable(str(error)) from error
            numbers = {"half": shape[-1], "rate": 0.01} if more else {}
            setup.add(name, waited(partial(plan.tell, x, out=out, **numbers), out.wait, turns, turns))
    add_peer(setup, chain := f"torch {what}, filter by an operation", partial(_torch_filter, shape), "run", turns,
             every=turns)  # fmt: skip
    setup.ratio(rows[1], rows[0])
    setup.ratio(rows[1], chain)


def _torch_stft(shape: tuple[int, ...], n: int, index: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(index)
    x, window = torch.zeros(shape, device="cuda"), torch.zeros((n,), device="cuda")
    run = partial(torch.stft, x, n, n // 4, window=window, return_complex=True)
    return gpu_peers.Calls({"run": run}, torch.cuda.synchronize)


def _cupy_dct(shape: tuple[int, ...], index: int) -> gpu_peers.Calls:
    cupy = gpu_peers.cupy(index)
    from cupyx.scipy.fft import dct

    return gpu_peers.Calls({"run": partial(dct, cupy.zeros(shape, "float32"))}, cupy.cuda.Device(index).synchronize)


def signals(setup: Setup) -> None:
    """Short-time transforms with a window beside torch, and cosine transforms beside CuPy; as in `gpu`."""
    import atomr_native as an

    turns = setup.count(TURNS)
    shape, n = _shape(setup, (64, 1 << 18), (2, 64)), 1024 if setup.count(TURNS) == TURNS else 16
    with setup.attempt(ours := "atomr stft, 64 x 2^18, 1024 points"):
        dev = device(setup, "process")
        x, window = dev.zeros(shape, "float32"), dev.zeros((n,), "float32")
        out = dev.fft.stft(x, n, window=window).wait()
        plan = dev.fft.plan(an.StftRequest(x=x, n_fft=n, window=window, out=out)).wait(60.0)
        setup.add(ours, waited(partial(plan.tell, x, window, out=out), out.wait, turns, turns))
    add_peer(
        setup, peer := "torch stft, 64 x 2^18, 1024 points", partial(_torch_stft, shape, n), "run", turns, every=turns
    )
    setup.ratio(ours, peer)
    rows = _shape(setup, (16384, 1024), (4, 16))
    with setup.attempt(ours := "atomr dct, 16384 x 1024"):
        dev = device(setup, "process")
        signal = dev.zeros(rows, "float32")
        made = dev.fft.dct(signal).wait()
        cosines = dev.fft.plan(an.DctRequest(x=signal, axes=-1, out=made)).wait(60.0)
        setup.add(ours, waited(partial(cosines.tell, signal, out=made), made.wait, turns, turns))
    add_peer(setup, peer := "CuPy dct, 16384 x 1024", partial(_cupy_dct, rows), "run", turns, every=turns)
    setup.ratio(ours, peer)


#: Shape, axes, and the shape in a quick run, of inverse transforms with and without a factor.
SCALED: tuple[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ("16384 x 1024", (16384, 1024), (-1,), (4, 16)),
    ("4096 x 4096", (4096, 4096), (-2, -1), (8, 8)),
)
#: Points of rows of bfloat16, and in a quick run: a power of two, and another length.
NARROW_SHAPES: tuple[tuple[str, tuple[int, int], tuple[int, int]], ...] = (
    ("16384 x 1024", (16384, 1024), (4, 16)),
    ("16384 x 1000", (16384, 1000), (4, 10)),
)


#: Rows of transforms in 16 bits, and in a quick run: powers of two, and another length.
HALVES: tuple[tuple[str, tuple[int, int], tuple[int, int]], ...] = (
    ("16384 x 1024", (16384, 1024), (4, 16)),
    ("256 x 65536", (256, 65536), (2, 32)),
    ("16384 x 1000", (16384, 1000), (4, 10)),
)


def _planned(setup: Setup, what: str, request: Any, turns: int) -> str:
    """Add the time of planned messages; `request` makes a request of a device, without `out`; return the row's name."""
    from dataclasses import replace

    with setup.attempt(name := f"atomr {what}"):
        dev = device(setup, "process")
        wanted = request(dev)
        out = dev.fft.tell(wanted).wait()
        plan = dev.fft.plan(replace(wanted, out=out)).wait(60.0)
        setup.add(name, waited(partial(plan.tell, wanted.x, out=out), out.wait, turns, turns))
    return name


def halves(setup: Setup) -> None:
    """Transforms in 16 bits beside those of float32, and batches of one pass beside a copy of as many bytes.

    As in `gpu`; complex arrays of 16 bits are pairs.
    """
    import atomr_native as an

    turns = setup.count(TURNS)
    for label, full, quick in HALVES:
        rows, points = _shape(setup, full, quick)

        def wide(transform: str, rows: int = rows, points: int = points) -> Any:
            dtype = "complex64" if transform == "fft" else "float32"
            return lambda dev: an.FftRequest(transform=transform, x=dev.zeros((rows, points), dtype), axes=-1)

        def narrow(transform: str, dtype: str, rows: int = rows, points: int = points) -> Any:
            pair = (2,) if transform == "fft" else ()
            return lambda dev: an.HalfFftRequest(
                transform=transform, x=dev.zeros((rows, points, *pair), dtype), axes=-1, norm="none"
            )

        for transform in ("fft", "rfft"):
            plain = _planned(setup, f"{transform}, {label}, float32", wide(transform), turns)
            for dtype in ("bfloat16", "float16"):
                setup.ratio(
                    _planned(setup, f"{transform}, {label}, in {dtype}", narrow(transform, dtype), turns), plain
                )
    with setup.attempt(copies := "atomr copy of complex64, 16384 x 1024"):
        dev = device(setup, "process")
        source, out = (dev.zeros(_shape(setup, (16384, 1024), (4, 16)), "complex64") for _ in range(2))
        setup.add(copies, waited(partial(dev.copy, source, out=out), out.wait, turns, turns))
    setup.ratio("atomr fft, 16384 x 1024, float32", copies)


def factors(setup: Setup) -> None:
    """Inverse transforms with their factor beside those without, and bfloat16 beside float32; as in `gpu`."""
    import atomr_native as an

    turns = setup.count(TURNS)

    def inverse(shape: tuple[int, ...], axes: tuple[int, ...], norm: str, dev: Any) -> Any:
        return an.FftRequest(transform="ifft", x=dev.zeros(shape, "complex64"), axes=axes, norm=norm)

    def real(shape: tuple[int, ...], dtype: str, dev: Any) -> Any:
        return an.FftRequest(transform="rfft", x=dev.zeros(shape, dtype), axes=-1)

    for label, full, axes, quick in SCALED:
        shape = _shape(setup, full, quick)
        plain, scaled = (
            _planned(setup, f"ifft, {label}, norm={norm}", partial(inverse, shape, axes, norm), turns)
            for norm in ("none", "backward")
        )
        setup.ratio(scaled, plain)
    for label, whole, part in NARROW_SHAPES:
        shape = _shape(setup, whole, part)
        wide, narrow = (
            _planned(setup, f"rfft, {label}, {dtype}", partial(real, shape, dtype), turns)
            for dtype in ("float32", "bfloat16")
        )
        setup.ratio(narrow, wide)


def _transform(dev: Any, transform: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], order: Any) -> Any:
    """Return a function that sends a planned transform, and its result, whose axes lie in an order if one is given."""
    import atomr_native as an

    x = dev.zeros(shape, dtype)
    out = dev.fft.tell(an.FftRequest(transform=transform, x=x, axes=axes)).wait()
    if order:
        out = dev.zeros(tuple(out.shape[a] for a in order), out.dtype.name).transpose(*order)
    plan = dev.fft.plan(an.FftRequest(transform=transform, x=x, axes=axes, out=out)).wait(60.0)
    return partial(plan.tell, x, out=out), out


def gpu(setup: Setup) -> None:
    """Time of a transform, of 100 planned messages and a wait (20 where one takes milliseconds), and of `rfft` of 256.

    torch and CuPy transform the same zeros, and allocate each result; nvmath plans, too. *Transposed*: the last axis of
    the result is not innermost in memory, as in torch and nvmath. The means are geometric ones. C: `cufftXtExec` in a
    loop, of a plan that is made once.
    """
    add_calls(setup, what := f"rfft, {POINTS}", _rfft)
    add_loop(setup, "C cufftXtExec, sustained", "rfft-sustained", setup.count(2000))
    add_loop(setup, "C cufftXtExec, synchronize", "rfft-synchronize", setup.count(500))
    for place in PLACES:
        setup.ratio(f"atomr {what}, sustained, {place}", "C cufftXtExec, sustained")
        setup.ratio(f"atomr {what}, asked, {place}", "C cufftXtExec, synchronize")
    for name, transform, dtype, full, axes, quick in SIZES:
        shape = _shape(setup, full, quick)
        turns = setup.count(FEW if math.prod(full) >= LONG else TURNS)
        ours = [f"atomr {name}", *([f"atomr {name}, transposed"] if name in TRANSPOSED else [])]
        for row in ours:
            with setup.attempt(row):
                order = (1, 0) if row != ours[0] else None
                tell, out = _transform(device(setup, "process"), transform, dtype, shape, axes, order)
                setup.add(row, waited(tell, out.wait, turns, turns))
        for library, peer in zip(PEERS, (_torch, _cupy, _nvmath), strict=True):
            add_peer(
                setup, f"{library} {name}", partial(peer, transform, dtype, shape, axes), "run", turns, every=turns
            )
            for row in ours:
                setup.ratio(row, f"{library} {name}")
        setup.best(f"{BEST}, {name}", [f"{library} {name}" for library in PEERS])
        for row in ours:
            setup.ratio(row, f"{BEST}, {name}")
    setup.mean("atomr, mean", [f"atomr {name}" for name, *_ in SIZES])
    setup.mean(f"{BEST}, mean", [f"{BEST}, {name}" for name, *_ in SIZES], "peer")
    setup.ratio("atomr, mean", f"{BEST}, mean")


BARS = (
    Bar("transforms over the best of torch, CuPy and nvmath, mean", "gpu_fft", "atomr, mean", 1.0, "x",
        f"{BEST}, mean"),
    *(
        Bar("transforms over the best of torch, CuPy and nvmath", "gpu_fft", f"atomr {name}", 1 / 0.98, "x",
            f"{BEST}, {name}", part=name)
        for name, *_ in SIZES
    ),
    Bar("scaled inverse transform over the unscaled one", "gpu_fft_factors", "atomr ifft, 16384 x 1024, norm=backward",
        1.02, "x", "atomr ifft, 16384 x 1024, norm=none"),
    Bar("transform with functions over the plain one", "gpu_fft_functions",
        "atomr Numba functions in rfft, 16384 x 1024", 1.05, "x", "atomr rfft, 16384 x 1024"),
    Bar("transform with functions over torch's operations", "gpu_fft_functions",
        "atomr Numba functions in rfft, 16384 x 1024", 1 / 1.3, "x",
        "torch rfft, 16384 x 1024, window and power by operations"),
    *(
        Bar("transform in bfloat16 over float32", "gpu_fft_halves", f"atomr {name}, in bfloat16", limit, "x",
            f"atomr {name}, float32", part=name)
        for transform in ("fft", "rfft")
        for label, limit in (("16384 x 1024", 1 / 1.6), ("256 x 65536", 1 / 1.6), ("16384 x 1000", 1.0))
        for name in (f"{transform}, {label}",)
    ),
    Bar("batch of one pass over a copy", "gpu_fft_halves", "atomr fft, 16384 x 1024, float32", 1 / 0.8, "x",
        "atomr copy of complex64, 16384 x 1024"),
    Bar("short-time transform over torch's", "gpu_fft_signals", "atomr stft, 64 x 2^18, 1024 points", 1 / 1.5, "x",
        "torch stft, 64 x 2^18, 1024 points"),
    *(
        Bar("message of a transform over a C loop", "gpu_fft", f"atomr rfft, {POINTS}, sustained, {place}", 1.15, "x",
            "C cufftXtExec, sustained", part=place)
        for place in PLACES
    ),
)  # fmt: skip
CASES = (
    Case("fft", "Fourier transforms", host),
    Case("gpu_fft", "Fourier transforms on a GPU", gpu, devices=("cuda",)),
    Case("gpu_fft_factors", "Factors and narrow types in Fourier transforms on a GPU", factors, devices=("cuda",)),
    Case("gpu_fft_halves", "Fourier transforms in 16 bits on a GPU", halves, devices=("cuda",)),
    Case("gpu_fft_signals", "Short-time and cosine transforms on a GPU", signals, devices=("cuda",)),
    Case("gpu_fft_functions", "Fourier transforms with functions on a GPU", functions, devices=("cuda",)),
)
