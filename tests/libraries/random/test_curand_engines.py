"""cuRAND's own generators on both kinds of device, against its host generators; on the fake driver its errors, too."""

from __future__ import annotations

import contextlib
import pickle
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crash
import curand_reference
import numpy as np
import pytest
import scripts
from cuda_wheels import find
from fake_cuda import using
from lt_emulator import source

import atomr_native as an

#: Methods, dtypes, parameters of the method and those of cuRAND, and whether the bits are the same on every device.
KINDS: dict[str, tuple[str, str, dict[str, Any], tuple[float, ...], bool]] = {
    "uniform": ("uniform", "float32", {}, (), True),
    "uniform64": ("uniform", "float64", {}, (), True),
    "normal": ("normal", "float32", {"mean": 1.0, "std": 2.0}, (1.0, 2.0), False),
    "normal64": ("normal", "float64", {}, (0.0, 1.0), False),
    "lognormal": ("lognormal", "float32", {"sigma": 0.5}, (0.0, 0.5), False),
    "lognormal64": ("lognormal", "float64", {}, (0.0, 1.0), False),
    "poisson": ("poisson", "uint32", {"rate": 3.5}, (3.5,), True),
}
#: Those whose states are made in a few milliseconds on the host.
QUICK = ("xorwow", "mtgp32", "sobol32", "scrambled_sobol32", "sobol64", "scrambled_sobol64")
CLOSE = {"float32": 4e-6, "float64": 1e-14}


@pytest.fixture(scope="module", params=["host", "fake", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request: Any) -> Iterator[an.Device]:
    curand_reference.library()
    fake = request.param == "fake"
    environment = request.getfixturevalue("fake_environment") if fake else {}
    with using(environment) if fake else contextlib.nullcontext(), an.System(standby="off") as system:
        yield system.device("host" if request.param == "host" else "cuda:0")


def words(engine: str) -> tuple[str, dict[str, int]]:
    """Return the dtype and the bounds of all words of an engine."""
    bits = 64 if engine.endswith("64") else 32
    return f"uint{bits}", {"low": 0, "high": 2**bits}


def check_engine(device: an.Device, engine: str, kinds: Any, **source_: Any) -> None:
    n, named = 300, an.CurandEngine(engine, **{k: v for k, v in source_.items() if k in ("dimensions", "ordering")})
    state = {k: v for k, v in source_.items() if k in ("seed", "offset")}
    dtype, bounds = words(engine)
    got = device.random.integers(n, dtype, engine=named, **bounds, **state).numpy()
    np.testing.assert_array_equal(got, curand_reference.drawn(engine, "integers", n, dtype, **source_))
    for kind in kinds:
        method, dtype, given, parameters, exact = KINDS[kind]
        got = getattr(device.random, method)(n, dtype, **given, engine=named, **state).numpy()
        want = curand_reference.drawn(engine, method, n, dtype, parameters, **source_)
        if exact:
            np.testing.assert_array_equal(got, want, err_msg=kind)
        else:
            # On a GPU normal float64 numbers of MTGP32 have no more digits than those of float32.
            close = CLOSE["float32" if engine == "mtgp32" else dtype]
            np.testing.assert_allclose(got, want, close, close, err_msg=kind)


@pytest.mark.parametrize("engine", QUICK)
def test_numbers_are_those_of_curand(device: an.Device, engine: str) -> None:
    if "sobol" in engine:
        check_engine(device, engine, KINDS, seed=0, offset=5, dimensions=3)
    else:
        check_engine(device, engine, KINDS, seed=2**63 + 12345)
    if engine == "xorwow":
        check_engine(device, engine, ("uniform", "poisson"), seed=3, offset=2**40 + 7)


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "kinds"), [("mrg32k3a", KINDS), ("mt19937", ())])
def test_numbers_of_slow_generators(device: an.Device, engine: str, kinds: Any) -> None:
    check_engine(device, engine, kinds, seed=3)


@pytest.mark.parametrize(("engine", "ordering"), [("xorwow", "legacy"), ("xorwow", "seeded"), ("mtgp32", "legacy")])
def test_orderings(device: an.Device, engine: str, ordering: str) -> None:
    check_engine(device, engine, ("uniform",), seed=5, ordering=ordering)


@pytest.mark.parametrize("engine", ["xorwow", "mtgp32", "sobol32"])
def test_messages_do_not_depend_on_each_other(device: an.Device, engine: str) -> None:
    """Seed and offset say all: a plan's messages give the same numbers in any order, and again."""
    quasi = engine == "sobol32"
    for method in ("uniform", "normal"):
        parameters = () if method == "uniform" else (0.0, 1.0)
        request = an.RandomRequest(
            distribution=method, shape=10, parameters=parameters or (0.0, 1.0), seed=0, engine=f"curand_{engine}"
        )
        plan, out = device.random.plan(request), device.zeros(10, "float32")
        order = [(7, 0), (7, 10), (8, 10), (7, 4), (7, 0), (7, 0)]
        order = [(0 if quasi else seed, 0 if engine == "mtgp32" else offset) for seed, offset in order]
        want = {
            (seed, offset): curand_reference.drawn(engine, method, 10, "float32", parameters, seed=seed, offset=offset)
            for seed, offset in set(order)
        }
        for state in order:
            plan.ask(out=out, seed=state[0], offset=state[1]).result(60)
            np.testing.assert_allclose(out.numpy(), want[state], 4e-6, 4e-6, err_msg=f"{method} {state}")


@pytest.mark.parametrize("engine", ["xorwow", "mtgp32", "sobol32"])
@pytest.mark.parametrize("kind", ["fake", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_messages_that_are_enqueued_before_others_have_run(kind: str, engine: str, request: Any) -> None:
    """No message takes from another, which still runs, the state that it draws from."""
    curand_reference.library()
    environment: dict[str, str] = {}
    if kind == "fake":
        environment = {**request.getfixturevalue("fake_environment"), "FAKE_CUDA_DELAY_US": "3000"}
    n = 64 if kind == "fake" else 2**24
    seeds = (0,) * 12 if engine == "sobol32" else (5, 6, 6, 5) * 3
    with using(environment), an.System(standby="off") as system:
        device = system.device("cuda:0")
        out = [device.zeros(n, "float32") for _ in range(2)]
        wanted = an.RandomRequest(
            distribution="uniform", parameters=(0.0, 1.0), seed=0, engine=f"curand_{engine}", out=out[0]
        )
        plan = device.random.plan(wanted).wait(60)
        for i, seed in enumerate(seeds):
            plan.tell(out=out[i % 2], seed=seed)
        got = [array[:64].numpy() for array in out]
    for array, seed in zip(got, seeds[-2:], strict=True):
        np.testing.assert_array_equal(array, curand_reference.drawn(engine, "uniform", 64, "float32", seed=seed))


def test_dimensions_lie_one_after_the_other(device: an.Device) -> None:
    engine = an.CurandEngine("sobol32", dimensions=4)
    whole = device.random.uniform((4, 16), "float64", engine=engine).numpy()
    assert (np.sort(whole, axis=1) > np.arange(16) / 16).all()  # one point in each sixteenth, along each axis
    assert (np.sort(whole, axis=1) <= (np.arange(16) + 1) / 16).all()
    part = device.random.uniform((4, 5), "float64", engine=engine, offset=3).numpy()
    np.testing.assert_array_equal(part, whole[:, 3:8])
    out = device.zeros((2, 4, 16), "float64")
    device.random.uniform(engine=engine, out=out[1])
    np.testing.assert_array_equal(out.numpy(), [np.zeros((4, 16)), whole])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds(device: an.Device, dtype: str) -> None:
    source_ = {"engine": "curand_xorwow", "seed": 4}
    unit = device.random.uniform(1000, dtype, **source_).numpy()
    real = unit.dtype.type
    got = device.random.uniform(1000, dtype, low=-1.1, high=2.3, **source_).numpy()
    np.testing.assert_array_equal(got, real(-1.1) + (real(2.3) - real(-1.1)) * unit)
    assert device.random.uniform((0, 3), dtype, **source_).numpy().shape == (0, 3)


def test_seeds_of_entropy(device: an.Device) -> None:
    draws = [device.random.uniform(4, engine="curand_mtgp32").numpy() for _ in range(2)]
    assert (draws[0] != draws[1]).any()
    points = [device.random.uniform(4, engine="curand_sobol32").numpy() for _ in range(2)]
    assert (points[0] == points[1]).all()


def test_lanes_give_the_same_bits(device: an.Device) -> None:
    lanes = [device.random, *(an.Random(device, f"random {i}") for i in range(7))]
    made = [lane.normal(500, engine="curand_xorwow", seed=s) for s in (1, 2) for lane in lanes]
    for i, array in enumerate(made):
        np.testing.assert_array_equal(array.numpy(), made[i // len(lanes) * len(lanes)].numpy())


def test_recorded(device: an.Device) -> None:
    """A program takes another seed with each message; on a GPU it is no graph, and says so."""
    out = device.zeros(6, "float32")
    with device.record() as g:
        device.random.uniform(out=g.operand("out", out), seed=g.scalar("seed", 1), engine="curand_xorwow")
    g.plan.wait(60)
    said = "not as a CUDA graph: random.draw changes a state" in " ".join(g.plan.notes)
    assert said == (device.kind == "cuda")
    for seed in (3, 4, 3, 3):
        g.plan.ask(out=out, seed=seed).result(60)
        np.testing.assert_array_equal(out.numpy(), curand_reference.drawn("xorwow", "uniform", 6, "float32", seed=seed))


@pytest.mark.parametrize("kind", ["host", pytest.param("fake", marks=pytest.mark.abi)])
def test_numbers_are_the_same_after_a_restart(kind: str, request: Any) -> None:
    curand_reference.library()
    environment = request.getfixturevalue("fake_environment") if kind == "fake" else {}
    with using(environment), an.System(standby="off", allow_crash=True) as system:
        device = system.device("host" if kind == "host" else "cuda:0")
        before = device.random.uniform(50, engine="curand_xorwow", seed=3).numpy()
        crash.restart(device)
        after = device.random.uniform(30, engine="curand_xorwow", seed=3, offset=20).numpy()
        np.testing.assert_array_equal(before[20:], after)


# ---------------------------------------------------------------------------------------------- refusals

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("normal", {"dtype": "float16"}, "dtype float16 of normal numbers of cuRAND's xorwow; allowed: float32, float64"),
    ("normal", {"shape": 3}, "3 normal numbers of cuRAND's xorwow, which makes pairs; allowed: an even number"),
    ("normal", {"std": -1.0}, r"std=-1.0; allowed: \[0"),
    ("integers", {"high": 10}, "low=0 and high=10 of a generator's words; allowed: 0 and 4294967296"),
    ("integers", {"engine": "curand_sobol64", "dtype": "uint32", "high": 2**32}, "dtype uint32 .* allowed: uint64"),
    ("poisson", {"rate": 0.0}, "rate=0.0 of cuRAND's numbers"),
    ("poisson", {"rate": 1.0, "dtype": "int32"}, "dtype int32 .* allowed: uint32"),
    ("uniform", {"stream": 1}, "stream=1; allowed: integers from 0 to 0"),
    ("uniform", {"seed": -1}, "seed=-1; allowed"),
    ("uniform", {"engine": "curand_mtgp32", "offset": 2}, "offset=2 .* allowed: 0, since it has no offsets"),
    ("uniform", {"engine": "curand_sobol32"}, "seed=1; allowed: 0, since Sobol points have no seed"),
    ("uniform", {"engine": "curand_sobol32", "seed": 0, "offset": 2**32 - 3}, "allowed: integers from 0 to 4294967292"),
    ("uniform", {"engine": an.CurandEngine("sobol32", 3), "seed": 0}, r"4 numbers of shape \(4,\) in 3 dimensions"),
    ("uniform", {"generator": an.Generator(1), "seed": None}, "with cuRAND's xorwow; allowed: seed= and offset="),
]


@pytest.fixture(scope="module")
def host() -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device("host")


@pytest.mark.plain
@pytest.mark.parametrize(("method", "given", "message"), REFUSED)
def test_refused(host: an.Device, method: str, given: dict[str, Any], message: str) -> None:
    bounds = {"low": 0} if method == "integers" else {}
    with pytest.raises(an.InvalidRequest, match=message):
        getattr(host.random, method)(**{"shape": 4, "engine": "curand_xorwow", "seed": 1} | bounds | given)


@pytest.mark.plain
def test_other_distributions_are_refused() -> None:
    with pytest.raises(an.InvalidRequest, match="of gamma numbers; allowed with it: integers, uniform, normal, logn"):
        an.RandomRequest(distribution="gamma", shape=2, parameters=(1.0, 1.0), seed=1, engine="curand_xorwow")


@pytest.mark.plain
def test_arrays_are_refused(host: an.Device) -> None:
    place, mean = host.put(np.array([3])), host.put(np.array([1.0]))
    with pytest.raises(an.InvalidRequest, match="offset is an array, with cuRAND's xorwow"):
        host.random.uniform(4, engine="curand_xorwow", seed=1, offset=place)
    with pytest.raises(an.InvalidRequest, match="mean is an array, with cuRAND's xorwow"):
        host.random.normal(4, mean=mean, engine="curand_xorwow", seed=1)
    with pytest.raises(an.InvalidRequest, match=r"out has strides \(8,\); .* the contiguous \(4,\)"):
        host.random.uniform(engine="curand_xorwow", seed=1, out=host.zeros(8, "float32")[::2])


@pytest.mark.plain
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("philox",), "name='philox'; allowed: 'xorwow'"),
        (("sobol32", 20001), "dimensions=20001; allowed: integers from 1 to 20000 for sobol32"),
        (("xorwow", 2), "dimensions=2; allowed: integers from 1 to 1 for xorwow"),
        (("mrg32k3a", 1, "seeded"), "ordering='seeded'; allowed for mrg32k3a: 'default', 'best', 'legacy', 'dynamic'"),
        (("sobol64", 1, "legacy"), "ordering='legacy'; allowed for sobol64: 'default'"),
    ],
)
def test_engines_that_do_not_exist(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(an.InvalidRequest, match=message):
        an.CurandEngine(*given)


@pytest.mark.plain
def test_engines_are_values() -> None:
    engine = an.CurandEngine("sobol64", dimensions=7)
    assert pickle.loads(pickle.dumps(engine)) == engine
    request = an.RandomRequest(distribution="uniform", shape=7, parameters=(0.0, 1.0), seed=0, engine=engine)
    assert pickle.loads(pickle.dumps(request)).engine == engine


# ---------------------------------------------------------------------------------------------- the library


@pytest.mark.plain
def test_without_curand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sobol points of 32 bits come from SciPy; the others are refused with the package's name."""
    monkeypatch.setenv("ATOMR_NATIVE_CURAND", "/nowhere/libcurand.so")
    engine = an.CurandEngine("sobol32", dimensions=2)
    with an.System(standby="off") as system:
        random = system.device("host").random
        plan = random.plan(
            an.RandomRequest(distribution="uniform", shape=(2, 3), parameters=(0.0, 1.0), seed=0, engine=engine)
        )
        assert "Sobol points by SciPy" in " ".join(plan.wait(60).notes)
        state = {"engine": engine, "offset": 2}
        integers = random.integers((2, 3), low=0, high=2**32, **state).numpy()
        assert integers.tolist() == [[3 << 30, 1 << 30, 3 << 29], [1 << 30, 3 << 30, 3 << 29]]
        unit = random.uniform((2, 3), "float64", **state).numpy()
        assert unit.tolist() == ((integers.astype(float) + 1) / 2**32).tolist()
        single = random.uniform((2, 3), low=1.0, high=3.0, **state).numpy()
        np.testing.assert_allclose(single, 1 + 2 * unit, 1e-6)
        normal = random.normal((2, 3), "float64", mean=1.0, std=2.0, **state).numpy()
        np.testing.assert_allclose(normal[0, :2], [1 + 2 * 0.67448975, 1 - 2 * 0.67448975], 1e-8)
        log = random.lognormal((2, 3), "float64", 1.0, 2.0, **state).numpy()
        np.testing.assert_allclose(np.log(log), normal, 1e-12)
        for refused in (
            lambda: random.poisson(2, rate=2.0, **state),
            lambda: random.uniform(2, engine="curand_xorwow"),
        ):
            with pytest.raises(an.Unsupported, match=r"cuRAND cannot be opened: .* pip install nvidia-curand"):
                refused().numpy()


@pytest.mark.abi
@pytest.mark.plain
def test_every_function_is_exported() -> None:
    found = find("libcurand.so.10")
    if not found:
        pytest.skip("libcurand not found; pip install nvidia-curand, or set ATOMR_NATIVE_CUDA_WHEELS")
    names = re.findall(r"\bF\([^,()]+, (curand\w+),", source("libraries/curand/names.h").read_text())
    assert len(names) == 19
    for path in found:
        listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
        exported = set(re.findall(r" T (\w+)", listed.stdout))
        assert [name for name in names if name not in exported] == []


@pytest.mark.parametrize(
    ("refusals", "error", "text"),
    [
        (
            {"curandCreateGenerator": (203, 1)},
            an.LibraryError,
            r"curand: CURAND_STATUS_INITIALIZATION_FAILED \(203\) .*curandCreateGenerator, 4 numbers of "
            "CURAND_RNG_PSEUDO_XORWOW",
        ),
        ({"curandCreateGenerator": (102, 1)}, an.OutOfMemory, "curandCreateGenerator: no memory for 4 numbers"),
        (
            {"curandSetGeneratorOffset": (104, 1)},
            an.Unsupported,
            r"curandSetGeneratorOffset refuses 4 numbers of .*: CURAND_STATUS_OUT_OF_RANGE \(104\)",
        ),
        (
            {"curandGenerateUniform": (201, 1)},
            an.LibraryError,
            r"LAUNCH_FAILURE \(201\) .*curandGenerateUniform, 4 num",
        ),
    ],
)
def test_errors_name_function_status_and_sizes(
    refuse: Callable[..., Path], refusals: dict[str, tuple[int, int]], error: type[Exception], text: str
) -> None:
    """A generator that has failed is set anew by the next message."""
    curand_reference.library()
    refuse(**refusals)
    with an.System(standby="off") as system:
        random = system.device("cuda:0").random
        with pytest.raises(error, match=text):
            random.uniform(4, engine="curand_xorwow", seed=1).numpy()
        n = 6 if "curandCreateGenerator" in refusals else 4  # a plan that was not built is not tried again
        got = random.uniform(n, engine="curand_xorwow", seed=1).numpy()
        np.testing.assert_array_equal(got, curand_reference.drawn("xorwow", "uniform", n, "float32", seed=1))


def test_the_host_has_no_dynamic_order(host: an.Device) -> None:
    curand_reference.library()
    with pytest.raises(an.Unsupported, match=r"curandSetGeneratorOrdering refuses .*OUT_OF_RANGE") as caught:
        host.random.uniform(4, engine=an.CurandEngine("xorwow", ordering="dynamic"), seed=1).numpy()
    assert caught.value.rule == "random.curand"


#: In a process that has opened no other cuRAND, whose worker is a thread of it.
STATES = """
import ctypes, gc, os
from actions import eventually
import atomr_native as an

library = ctypes.CDLL(os.environ["ATOMR_NATIVE_CURAND"])
alive, states = (ctypes.c_uint.in_dll(library, f"fake_generator{name}") for name in ("s", "_states"))
with an.System(isolation="thread", standby="off") as system:
    random = system.device("cuda:0").random
    random.uniform(4, engine="curand_xorwow", seed=1).wait()
    assert alive.value == 1
    before = states.value
    for offset in (4, 8, 12):
        random.uniform(4, engine="curand_xorwow", seed=1, offset=offset).wait()
    assert states.value == before
    random.uniform(4, engine="curand_xorwow", seed=1, offset=4).wait()
    assert states.value == before + 1
    random.normal(4, engine="curand_xorwow", seed=1).wait()
    assert (alive.value, states.value) == (2, before + 3)
    random.normal(4, engine="curand_xorwow", seed=1, offset=4).wait()
    assert states.value == before + 4
gc.collect()
eventually(lambda: alive.value == 0)
"""


def test_generators_go_on_where_they_are_and_end_with_their_device(fake_environment: dict[str, str]) -> None:
    """Consecutive ranges of words set no state, and the worker of a thread leaves nothing behind."""
    curand_reference.library()
    with using(fake_environment):
        scripts.run(STATES)
