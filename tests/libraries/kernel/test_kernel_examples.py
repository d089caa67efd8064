"""The examples with kernels of their own, Mandelbrot set and reaction and diffusion: against NumPy, as programs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from example_programs import load

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from atomr_native.compile import linker
from atomr_native.compile.numba import api, compiler

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.fixture(scope="module")
def mandelbrot() -> ModuleType:
    return load("mandelbrot")


@pytest.fixture(scope="module")
def reaction() -> ModuleType:
    return load("reaction_diffusion")


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device(request.param)


def size_of(png: Path) -> tuple[int, int]:
    """Width and height, from the header of a PNG."""
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_counts_of_the_mandelbrot_set(mandelbrot: ModuleType, device: an.Device) -> None:
    width, height, limit = 24, 17, 40
    counts, seconds = mandelbrot.draw(device, width, height, (-0.6, 0.1), 3.2, limit, 5)
    assert seconds > 0
    x, y = np.arange(width) - (width - 1) / 2, (height - 1) / 2 - np.arange(height)
    c = (-0.6 + x * 3.2 / width) + 1j * (0.1 + y[:, None] * 3.2 / width)
    z, n = c.copy(), np.ones(c.shape)
    for _ in range(limit - 1):
        inside = np.abs(z) < 256
        n += inside
        z = np.where(inside, z * z + c, z)
    out = np.abs(z) >= 256
    expected = np.zeros(c.shape)
    expected[out] = n[out] + 4 - np.log2(np.log2(np.abs(z[out]) ** 2))
    assert out.any()
    assert not out.all()
    np.testing.assert_allclose(counts, expected, atol=1e-3)


def test_steps_of_reaction_and_diffusion(reaction: ModuleType, device: an.Device) -> None:
    size, steps, (feed, kill) = 12, 9, reaction.PATTERNS["maze"]
    state = reaction.start(size, 1)
    seen: list[int] = []
    pictures, seconds = reaction.simulate(device, state, steps, feed, kill, 3, seen.append)
    assert seconds > 0
    assert seen[-1] == steps
    u, v = state.astype(np.float64)
    expected = []
    for step in range(1, steps + 1):
        around_u, around_v = (
            sum(np.roll(x, shift, axis) for shift in (-1, 1) for axis in (0, 1)) - 4 * x for x in (u, v)
        )
        made = u * v * v
        u = u + reaction.DU * around_u - made + feed * (1 - u)
        v = v + reaction.DV * around_v + made - (feed + kill) * v
        if step % 3 == 0:
            expected.append(v)
    np.testing.assert_allclose(pictures, expected, atol=1e-5)  # float32, a few roundings a step
    assert math.isclose(reaction.DU, 2 * reaction.DV)


def test_they_compile_for_a_gpu(mandelbrot: ModuleType, reaction: ModuleType, tools: None) -> None:
    real, array = api.scalar_type("float64"), api.array_type(np.dtype("float32"), 2, "C")
    arguments = {mandelbrot: (array, real, real, real, api.scalar_type("int64"))}
    single, state = api.scalar_type("float32"), api.array_type(np.dtype("float32"), 3, "C")
    arguments[reaction] = (state, state, single, single)
    for module, types in arguments.items():
        kernel = module.kernel()
        code = linker.machine_code(kernel.py_func, types, (9, 0), compiler.jit_options(kernel))
        assert code.code.data.startswith(b"\x7fELF")


@pytest.mark.parametrize("name", ["host", GPU])
def test_the_mandelbrot_set_as_a_program(
    mandelbrot: ModuleType, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    png = tmp_path / "new" / "set.png"
    width = 20 if name == "host" else 1000
    assert mandelbrot.main(["--device", name, "--width", str(width), "--output", str(png)]) == 0
    times = 40 if name == "host" else 1  # at least 800 pixels wide
    assert size_of(png) == (times * width, times * (width * 2 // 3))
    assert "million pixels/s" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["host", GPU])
def test_reaction_and_diffusion_as_a_program(
    reaction: ModuleType, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    png = tmp_path / "pattern.png"
    size, steps = ("10", "5") if name == "host" else ("256", "2000")
    arguments = ["--device", name, "--size", size, "--steps", steps, "--pictures", "2", "--output", str(png)]
    assert reaction.main(arguments) == 0
    columns = 2 * int(size) + max(1, int(size) // 32)
    times = -(-800 // columns)
    assert size_of(png) == (times * columns, times * int(size))
    assert "steps/s" in capsys.readouterr().out


@pytest.mark.parametrize("example", ["mandelbrot", "reaction_diffusion"])
def test_what_cannot_be_done_is_said_in_a_line(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load(example)
    (tmp_path / "file").write_text("")
    assert module.main(["--output", str(tmp_path / "file" / "x.png")]) == 2
    assert module.main(["--device", "hsot", "--output", str(tmp_path / "x.png")]) == 2
    monkeypatch.setitem(module.PACKAGES, "not_there", "not-there")
    assert module.main(["--output", str(tmp_path / "x.png")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "cannot write" in lines[0]
    assert "'hsot'; allowed: 'host'" in lines[1]
    assert "needs not-there: pip install '.[examples]'" in lines[2]
    for wrong in (["--output", "x.jpg"], ["--output", "x.png", "--seed", "-1"], ["--width", "0"], ["--size", "0"]):
        with pytest.raises(SystemExit) as left:
            module.main(wrong)
        assert left.value.code == 2
    assert not list(tmp_path.glob("*.png"))
