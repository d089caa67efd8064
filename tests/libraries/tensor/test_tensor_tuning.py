"""Tuning of expressions: which ways of a step compete, what is kept, and that all of them compute the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripts
from actions import eventually
from fake_cuda import using
from hypothesis import given
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.libraries.tensor.cuda.choice import Choice

RNG = np.random.default_rng(5)
SHAPES = {"ijk,kjl->il": ((6, 5, 9), (9, 5, 7)), "bij,bjk->bik": ((3, 8, 9), (3, 9, 7))}


def arrays(subscripts: str, dtype: str = "float32") -> list[np.ndarray]:
    return [RNG.standard_normal(shape).astype(dtype) for shape in SHAPES[subscripts]]


def close(found: np.ndarray, subscripts: str, given: list[np.ndarray]) -> None:
    want = np.einsum(subscripts, *(x.astype(float) for x in given))
    assert np.allclose(found, want, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of kernels."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache, in which no times are known yet."""
    shutil.rmtree(kernels / "tuning", ignore_errors=True)
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(kernels))
    return kernels


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "tuning").rglob("*.json"))


def test_steps_are_measured_once_and_by_all_processes(
    cuda_engine: str, make_system: Callable[..., an.System], cache: Path
) -> None:
    subscripts = "ijk,kjl->il"
    device = make_system().device("cuda:0")
    given = arrays(subscripts)
    refs = [device.put(x) for x in given]
    steps: list[str] = []
    request = an.EinsumRequest(subscripts=subscripts, operands=refs, tune=True)
    plan = device.tensor.plan(request, progress=lambda done, total, what: steps.append(what))
    assert ": tuned: " in plan.tuning
    close(device.tensor.tell(request).numpy(), subscripts, given)
    if cuda_engine == "fake":  # progress is told without waiting, and may lack the last lines
        assert {"kernel", "blas_lt", "cutensor"} <= {
            r for r in ("kernel", "blas_lt", "cutensor") if f"'{r}'" in str(steps)
        }
    assert len(entries(cache)) == 1
    known = {"subscripts": subscripts, "tune": "known"}
    assert device.tensor.plan(an.EinsumRequest(operands=refs, **known)).tuning == plan.tuning
    assert device.tensor.plan(an.EinsumRequest(subscripts=subscripts, operands=refs)).tuning == ""
    other = make_system().device("cuda:0")
    again = other.tensor.plan(an.EinsumRequest(operands=[other.put(x) for x in given], **known))
    assert again.tuning == plan.tuning
    wide = [other.put(x.astype("float64")) for x in given]
    assert other.tensor.plan(an.EinsumRequest(operands=wide, **known)).tuning == ""
    (entry,) = entries(cache)
    entry.write_bytes(entry.read_bytes()[:-9])  # damaged
    third = make_system().device("cuda:0")
    refs = [third.put(x) for x in given]
    assert third.tensor.plan(an.EinsumRequest(operands=refs, **known)).tuning == ""


def test_seconds_bound_what_is_tried(cuda_engine: str, make_system: Callable[..., an.System], cache: Path) -> None:
    """The plan's own way at least; a result is kept, as any."""
    device = make_system().device("cuda:0")
    refs = [device.put(x) for x in arrays("ijk,kjl->il")]
    given = {"subscripts": "ijk,kjl->il", "operands": refs}
    counts = []
    for subscripts, seconds in (("ijk,kjl->il", 1e-9), ("ijk,kjl->li", 60.0)):
        steps: list[tuple[int, int]] = []
        request = an.EinsumRequest(**{**given, "subscripts": subscripts}, tune=seconds)
        plan = device.tensor.plan(request, progress=lambda done, total, what, to=steps: to.append((done, total)))
        assert ": tuned: " in plan.tuning
        counts.append(max(total for _, total in steps))
    assert counts[0] < counts[1]
    assert device.tensor.plan(an.EinsumRequest(**given, tune="known")).tuning
    device.tensor.reduce("sum", "ijk->k", refs[0], tune=1e-9, alpha=2).wait()
    device.tensor.permute("ijk->kij", refs[0], tune=1e-9).wait()
    assert len(entries(cache)) == 4


def test_equal_steps_of_different_expressions_are_one(
    cuda_engine: str, make_system: Callable[..., an.System], cache: Path
) -> None:
    device = make_system().device("cuda:0")
    a, b, c = (device.put(RNG.standard_normal((20, 20)).astype("float32")) for _ in range(3))
    chain = an.EinsumRequest(subscripts="ij,jk,kl->il", operands=(a, b, c), optimize=[(1, 2), (0, 1)], tune=True)
    assert device.tensor.plan(chain).tuning.count("tuned: ") == 2
    assert len(entries(cache)) == 2  # one leaves its result in the workspace, the other gives it
    renamed = an.EinsumRequest(subscripts="zy,yx->zx", operands=(b, c), tune="known")
    assert device.tensor.plan(renamed).tuning
    turned = an.EinsumRequest(subscripts="zy,yx->xz", operands=(b, c), tune="known")
    assert not device.tensor.plan(turned).tuning
    close_to = device.tensor.tell(chain).numpy()
    assert np.allclose(close_to, np.linalg.multi_dot([x.numpy().astype(float) for x in (a, b, c)]), atol=1e-3)


def test_messages_do_not_wait_for_a_plan_that_is_measured(
    cuda_engine: str, make_system: Callable[..., an.System], cache: Path
) -> None:
    """They take another until it is there, and it from then on; a call keeps its plan only then."""
    subscripts = "ijk,kjl->il"
    device = make_system().device("cuda:0")
    given = arrays(subscripts)
    refs = [device.put(x) for x in given]
    request = an.EinsumRequest(subscripts=subscripts, operands=refs, tune="later")
    first = device.tensor.plan(request)
    close(device.tensor.tell(request).numpy(), subscripts, given)
    eventually(lambda: "tuned: " in device.tensor.plan(request).tuning)
    tuned = device.tensor.plan(request)
    assert tuned.spec.attributes.tune == "measure"
    assert first is tuned or first.tuning == ""
    before = tuned.last_ticket
    for _ in range(3):
        close(device.tensor.einsum(subscripts, *refs, tune="later").numpy(), subscripts, given)
        assert tuned.last_ticket > before
        before = tuned.last_ticket
    assert len(entries(cache)) == 1
    x = device.put(np.arange(12.0).reshape(3, 4))
    assert (device.tensor.reduce("max", "ij->i", x, tune="later").numpy() == [3, 7, 11]).all()
    device.tensor.plan(an.TensorReduceRequest(op="max", subscripts="ij->i", x=x, tune=True)).wait(60)


def test_reductions_and_elementwise_operations_are_measured(
    cuda_engine: str, make_system: Callable[..., an.System], cache: Path
) -> None:
    device = make_system().device("cuda:0")
    x, y = (RNG.standard_normal(shape).astype("float32") for shape in ((9, 8, 7), (7, 9, 8)))
    rx, ry = device.put(x), device.put(y)
    nan = device.full((7, 8), np.nan, "float32")
    reduce = {"op": "sum", "subscripts": "abc->cb", "x": rx, "tune": True}
    turn = {"subscripts": "abc->cab", "operands": (rx,), "unary": ("neg",), "alpha": 2, "tune": True}
    both = {
        "subscripts": "abc,cab->cab",
        "operands": (rx, ry),
        "ab": "mul",
        "beta": 3,
        "tune": True,
        "unary": ("tanh",),
    }
    # What is measured has neither factors nor C; cuTENSOR refuses the C that lies otherwise than the result.
    for request, takes, want in (
        (an.TensorReduceRequest(**reduce), True, x.sum(0).T),
        (an.TensorReduceRequest(**reduce, c=nan, alpha=3, beta=0), True, 3 * x.sum(0).T),
        (an.TensorReduceRequest(**reduce, c=ry[:, 0], alpha=3, beta=2), False, 3 * x.sum(0).T + 2 * y[:, 0]),
        (an.TensorElementwiseRequest(**turn), True, -2 * x.transpose(2, 0, 1)),
        (an.TensorElementwiseRequest(**both), True, np.tanh(x).transpose(2, 0, 1) * 3 * y),
    ):
        plan = device.tensor.plan(request)
        assert plan.tuning.startswith("tuned: ")
        assert ("route cutensor" in plan.tuning and takes) == (plan.notes[-1:] == ("cuTENSOR",))
        assert np.allclose(device.tensor.tell(request).numpy(), want, atol=1e-5)
    assert len(entries(cache)) == 3  # factors make no difference
    known = an.TensorReduceRequest(**{**reduce, "tune": "known"})
    assert device.tensor.plan(known).tuning
    other = an.TensorReduceRequest(**{**reduce, "tune": "known", "op": "max"})
    assert device.tensor.plan(other).tuning == ""
    routed = an.TensorReduceRequest(**reduce, route="kernel")
    assert device.tensor.plan(routed).tuning == ""
    with pytest.raises(an.InvalidRequest, match="tune='no'; allowed: False, True, 'known', 'later'"):
        an.TensorReduceRequest(**{**reduce, "tune": "no"})


def test_a_deterministic_system_measures_nothing(
    cuda_engine: str, make_system: Callable[..., an.System], cache: Path
) -> None:
    device = make_system(deterministic=True).device("cuda:0")
    refs = [device.put(x) for x in arrays("bij,bjk->bik")]
    request = an.EinsumRequest(subscripts="bij,bjk->bik", operands=refs, tune=True)
    assert device.tensor.plan(request).tuning == ""
    assert entries(cache) == []


def test_a_deterministic_plan_does_without_cutensor(cuda_system: an.System) -> None:
    device = cuda_system.device("cuda:0")
    a, b = (device.put(RNG.standard_normal(shape)) for shape in ((30, 20, 10), (10, 20, 40)))
    request = an.EinsumRequest(subscripts="ijk,kjl->il", operands=(a, b), deterministic=True)
    assert "cuBLASLt, after copies of" in device.tensor.plan(request).notes[0]
    first = device.tensor.tell(request).numpy()
    assert all(np.array_equal(device.tensor.tell(request).numpy(), first) for _ in range(3))


#: Algorithms of cuTENSOR in the fake: -3, TGETT, and kernels from 3 on are refused, and compiled ones but of -1.
WAYS = [
    (Choice("kernel"), "a kernel"), (Choice("blas_lt"), "cuBLASLt"), (Choice("cutensor", (-1, -1)), "cuTENSOR"),
    (Choice("cutensor", (-4, 2)), "cuTENSOR"), (Choice("cutensor", (-2, 1)), "cuTENSOR"),
    (Choice("cutensor", (-1, 0, 1)), "cuTENSOR"), (Choice("cutensor", (-4, 0, 1)), "cuBLASLt"),
    (Choice("cutensor", (-3, 0)), "cuBLASLt"), (Choice("cutensor", (-4, 5)), "cuBLASLt"), (Choice(), ""),
]  # fmt: skip

#: Builders are in a program whose device is in a thread of its own.
PROGRAM = """
import json, sys
import numpy as np
import atomr_native as an
from atomr_native.libraries.tensor.cuda import einsum as built
from atomr_native.libraries.tensor.cuda.choice import Choice

subscripts, shapes, ways = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
given = [rng.standard_normal(shape).astype("float32") for shape in shapes]
want = np.einsum(subscripts, *(x.astype(float) for x in given))
c = rng.standard_normal(want.shape).astype("float32")
said, listed = [], []
with an.System(isolation="thread", standby="off") as system:
    refs = [system.device("cuda:0").put(x) for x in given]
    for options in ({}, {"route": "blas_lt"}, {"route": "kernel"}, {"compute": "3xtf32"}):
        built.StepTuner.tuned = lambda self, measure, seconds: listed.append(self._problem.candidates())
        request = an.EinsumRequest(subscripts=subscripts, operands=refs, tune=True, **options)
        system.device("cuda:0").tensor.plan(request).wait(60)
for way in ways:
    built.StepTuner.tuned = lambda self, measure, seconds: (Choice.of(tuple(way)), str(way))
    with an.System(isolation="thread", standby="off") as system:
        device = system.device("cuda:0")
        refs = [device.put(x) for x in given]
        request = an.EinsumRequest(subscripts=subscripts, operands=refs, tune="known")
        plan = device.tensor.plan(request)
        assert np.allclose(device.tensor.tell(request).numpy(), want, atol=1e-3), way
        more = {"c": device.put(c), "alpha": 2, "beta": 3, "tail": lambda r: np.maximum(r, 0)}
        found = device.tensor.contract(subscripts, *refs, **more, tune="known").numpy()
        assert np.allclose(found, np.maximum(2 * want + 3 * c, 0), atol=1e-3), way
        said.append((plan.notes[-1], plan.tuning))
candidates = [[[one.choice, one.config] for one in found] for found in listed]
print(json.dumps([said, candidates]))
"""


@pytest.mark.parametrize("subscripts", SHAPES)
def test_all_ways_of_a_step_compute_it(fake_environment: dict[str, str], cache: Path, subscripts: str) -> None:
    ways = [choice.words for choice, _ in WAYS]
    with using({**fake_environment, "ATOMR_NATIVE_CACHE": str(cache)}):
        said, candidates = json.loads(scripts.run(PROGRAM, json.dumps([subscripts, SHAPES[subscripts], ways])))
    for (choice, route), (note, tuning) in zip(WAYS, said, strict=True):
        assert route in note
        assert tuning.endswith(f": {list(choice.words)}")
    every, lt, kernel, emulated = (
        [(Choice.of(tuple(words)), config) for words, config in found] for found in candidates
    )
    # The first is what a plan does by itself.
    assert all(found[0][0] == Choice() for found in (every, lt, kernel, emulated))
    assert {choice.route for choice, _ in every} == {"", "kernel", "blas_lt", "cutensor"}
    assert {choice.route for choice, _ in lt[1:]} == {"blas_lt"}
    assert len(lt) > 2
    assert [choice.route for choice, _ in kernel[1:]] == ["kernel"]
    assert {choice.route for choice, _ in emulated[1:]} == {"cutensor"}
    # Three kernels of its model, one of the patient one, three of GETT, two of TTGT, and one that is compiled; and with
    # the workspace of the plan one, and three of GETT.
    assert sum(choice.route == "cutensor" for choice, _ in every) == 14
    assert every[0][1] == {"route": "kernel"}  # of a small product
    assert len({choice for choice, _ in every}) == len(every)


@pytest.mark.parametrize("words", [(), (4,), (-1,), (3,), (3, -1), (1, 0), (2, *range(7)), (3, -4, 2**64)])
def test_other_numbers_are_no_choice(words: tuple[int, ...]) -> None:
    assert Choice.of(words) is None


@given(st.lists(st.integers(-(2**70), 2**70) | st.integers(-3, 5), max_size=10))
def test_numbers_are_a_choice_or_none(words: list[int]) -> None:
    found = Choice.of(tuple(words))
    if found is not None:
        assert found.words == tuple(words)


@pytest.mark.parametrize("choice", [choice for choice, _ in WAYS] + [Choice("blas_lt", tuple(range(8)))])
def test_choices_are_numbers(choice: Choice) -> None:
    assert Choice.of(choice.words) == choice


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"tune": "always"}, "tune='always'; allowed: False, True, 'known', 'later'"),
        ({"tune": 1}, "tune=1; allowed: False, True, 'known'"),
        ({"tune": 0.0}, "tune=0.0; allowed: .*seconds above 0"),
        ({"tune": float("nan")}, "tune=nan; allowed: .*seconds above 0"),
        ({"deterministic": True, "tune": 2.0}, "tune=2.0 with deterministic=True; allowed: False"),
        ({"deterministic": True, "tune": "later"}, "tune='later' with deterministic=True; allowed: False"),
        ({"deterministic": "yes"}, "deterministic='yes' must be True or False"),
        ({"deterministic": True, "tune": True}, "tune=True with deterministic=True; allowed: False"),
        ({"deterministic": True, "route": "cutensor"}, "route='cutensor', .* with deterministic=True; allowed: routes"),
        ({"deterministic": True, "compute": "8xint8"}, "compute='8xint8' with deterministic=True"),
    ],
)
def test_refusals(given: dict[str, Any], text: str) -> None:
    x = np.ones((4, 4))
    with pytest.raises(an.InvalidRequest, match=text):
        an.EinsumRequest(subscripts="ij,jk->ik", operands=(x, x), **given)


def test_the_host_has_nothing_to_measure() -> None:
    with an.System(isolation="thread") as system:
        device = system.device("host")
        x = device.put(np.ones((4, 4)))
        found = device.tensor.einsum("ij,jk->ik", x, x, tune=True, deterministic=False)
        assert (found.numpy() == 4).all()
