"""Steps of optimizers over many parameters in one message: against float64, and the bits of steps one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import fused_reference as reference
import numpy as np
import pytest
from codegen_engines import Engine, both, engines
from fused_reference import close
from placements import Placement
from plan_builds import build_host

import atomr_native as an
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.fused.spec import FLOATS

ADAMW = {"lr": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.1}
SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}
ORDER = ("grad", "param", "m", "v", "master")
#: Of less than a group of eight, with a rest, nothing, of several blocks' elements, a number.
SHAPES = [(3,), (5, 7), (0, 4), (2, 3000), (), (2048,)]
#: Every gradient without and with master weights, of shapes that differ.
MIXED = [(shape, *kind) for shape, kind in zip(itertools.cycle(SHAPES), itertools.product(FLOATS, (False, True)))]


def draw(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return np.asarray(2 * np.random.default_rng(seed).standard_normal(shape)).astype(DTYPES[dtype])


def odd(array: np.ndarray) -> np.ndarray:
    """Return a copy that does not start at a multiple of 16 bytes."""
    memory = np.zeros(array.size + 1, array.dtype)
    memory[1:] = array.reshape(-1)
    return memory[1:].reshape(array.shape)


def collections(
    kinds: list[tuple[tuple[int, ...], str, bool]], state: tuple[str, ...] = ("m", "v")
) -> dict[str, list[Any]]:
    """Return parameters, gradients, state and master weights, which are None for those without."""
    made: dict[str, list[Any]] = {name: [] for name in ("param", "grad", *state, "master")}
    for i, (shape, gradient, master) in enumerate(kinds):
        start = draw(shape, "float32", 10 * i)
        made["param"].append(start.astype(DTYPES["bfloat16"]) if master else start)
        made["grad"].append(draw(shape, gradient, 10 * i + 1))
        made["master"].append(start.copy() if master else None)
        for j, name in enumerate(state):
            made[name].append(np.asarray(abs(draw(shape, "float32", 10 * i + 2 + j))))
    return made


def one_by_one(single: Any, lists: dict[str, list[Any]], **options: Any) -> dict[str, list[Any]]:
    """Return copies after the steps of each parameter on the host."""
    copies = {name: [None if a is None else a.copy() for a in arrays] for name, arrays in lists.items()}
    for i in range(len(lists["param"])):
        made = single(**{name: arrays[i] for name, arrays in copies.items()}, **options).lowered
        run: Any = build_host(made.spec()).run
        run(tuple(o.given for o in made.operands), tuple(scalar.value for scalar in made.scalars))
    return copies


def check_bits(got: dict[str, list[Any]], want: dict[str, list[Any]]) -> None:
    for name, arrays in want.items():
        for i, (ours, theirs) in enumerate(zip(got[name], arrays, strict=True)):
            if theirs is not None:
                ours, theirs = (np.ascontiguousarray(a).reshape(-1).view("u1") for a in (ours, theirs))
                np.testing.assert_array_equal(ours, theirs, err_msg=f"{name}{i}")


# ---------------------------------------------------------------------------------------------- kernels


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engines("cpu", tmp_path_factory) as made:
        yield made


@pytest.mark.parametrize("place", ["aligned", "odd"])
@pytest.mark.parametrize("nesterov", [None, False, True])
def test_kernels_have_the_bits_of_the_host(engine: Engine, nesterov: bool | None, place: str) -> None:
    """Mixed dtypes and shapes, each element once: also those of more blocks of elements than the grid has."""
    kinds = [*MIXED, ((40_000,), "bfloat16", True)]
    lists: dict[str, Any] = collections(kinds, ("m", "v") if nesterov is None else ("m",))
    if place == "odd":
        lists = {name: [None if a is None else odd(a) for a in arrays] for name, arrays in lists.items()}
    request: Any
    if nesterov is None:
        request = an.AdamWListRequest(**lists, step=3, **ADAMW)
    else:
        request = an.SgdListRequest(**lists, nesterov=nesterov, **SGD)
    made = request.lowered
    arrays, scalars = (tuple(o.given for o in made.operands), tuple(s.value for s in made.scalars))
    both(engine, made.spec(), arrays, scalars, 0)
    (launch,) = engine.build(made.spec()).run.launches
    assert launch.grid == (16, 1, 1)  # 8 blocks for each multiprocessor


@pytest.mark.parametrize("kind", [("float32", False), ("float16", True)])
def test_kernels_of_one_kind_and_of_nothing(engine: Engine, kind: tuple[str, bool]) -> None:
    for shapes in ([(0,)], [(7,)], [(7,), (0,), (2049,)]):
        made = an.SgdListRequest(**collections([(shape, *kind) for shape in shapes], ("m",)), **SGD).lowered
        both(engine, made.spec(), tuple(o.given for o in made.operands), tuple(s.value for s in made.scalars), 0)


# ---------------------------------------------------------------------------------------------- devices


def put(device: an.Device, lists: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [None if a is None else device.put(a) for a in arrays] for name, arrays in lists.items()}


def read(lists: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [None if a is None else a.numpy() for a in arrays] for name, arrays in lists.items()}


@pytest.fixture
def is_gpu(placement: Placement) -> bool:
    """Whether steps one by one, too, run on a GPU: the fake driver does not run kernels of Numba."""
    return placement.device != "host" and not placement.fake


def wanted(device: an.Device, is_gpu: bool, adamw: bool, lists: dict[str, list[Any]], **options: Any) -> Any:
    """Return arrays after steps one by one: on a GPU by its kernels, elsewhere by the host's arithmetic."""
    if not is_gpu:
        return one_by_one(an.AdamWRequest if adamw else an.SgdRequest, lists, **options)
    refs = put(device, lists)
    for i in range(len(refs["param"])):
        send: Any = device.fused.adamw if adamw else device.fused.sgd_momentum
        send(**{name: arrays[i] for name, arrays in refs.items()}, **options)
    return read(refs)


@pytest.mark.parametrize("odd_places", [False, True])
def test_steps_of_adamw_have_the_bits_of_single_steps(device: an.Device, is_gpu: bool, odd_places: bool) -> None:
    lists = collections([*MIXED, ((70_001,), "float32", False)])
    refs = put(device, lists)
    if odd_places:
        refs = {name: [None if a is None else shifted(device, a) for a in arrays] for name, arrays in refs.items()}
    for step in (1, 2, 3):
        lists = wanted(device, is_gpu, True, lists, step=step, **ADAMW)
        assert device.fused.adamw(**refs, step=step, **ADAMW) is refs["param"]
    check_bits(read(refs), lists)


def shifted(device: an.Device, array: an.GpuRef) -> an.GpuRef:
    """Return a copy that starts one element after the start of its memory."""
    whole = device.zeros((array.size + 1,), array.dtype)
    view = whole[1:].reshape(array.shape)
    device.copy(array, out=view)
    return view


@pytest.mark.parametrize("nesterov", [False, True])
def test_steps_of_sgd_have_the_bits_of_single_steps(device: an.Device, is_gpu: bool, nesterov: bool) -> None:
    lists = collections(MIXED, ("m",))
    refs = put(device, lists)
    for lr in (0.1, 0.05):
        options = {**SGD, "lr": lr, "nesterov": nesterov}
        lists = wanted(device, is_gpu, False, lists, **options)
        device.fused.sgd_momentum(**refs, **options)
    check_bits(read(refs), lists)


def test_steps_against_float64(device: an.Device) -> None:
    lists = collections(MIXED)
    refs = put(device, lists)
    device.fused.adamw(**refs, step=2, **ADAMW)
    got = read(refs)
    for i, (param, grad, m, v, master) in enumerate(zip(*lists.values(), strict=True)):
        want = reference.adamw(param if master is None else master, grad, m, v, 2, **ADAMW)
        for name, one in zip(("param" if master is None else "master", "m", "v"), want, strict=True):
            close(got[name][i], one, "float32", 20)
        if master is not None:
            np.testing.assert_array_equal(got["param"][i], got["master"][i].astype(DTYPES["bfloat16"]))


def test_dicts_and_tuples(device: an.Device) -> None:
    kinds = [((3,), "float32", False), ((5, 7), "float16", True)]
    lists = collections(kinds)
    want = one_by_one(an.AdamWRequest, lists, step=1, **ADAMW)
    refs = put(device, lists)
    dicts: dict[str, Any] = {name: dict(zip("ba", arrays, strict=True)) for name, arrays in refs.items()}
    dicts = {name: dict(sorted(given.items())) if name == "grad" else given for name, given in dicts.items()}
    del dicts["master"]["b"]  # as None in a list
    assert device.fused.adamw(**dicts, step=1, **ADAMW) is dicts["param"]
    for name in ("m", "v"):
        for one, other in zip(refs[name], want[name], strict=True):
            close(one.numpy(), other.astype(np.float64), "float32", 4)
    once = [array.numpy() for array in refs["param"]]
    made = device.fused.tell(an.AdamWListRequest(**dicts, step=2, **ADAMW))
    assert [one is other for one, other in zip(made, refs["param"], strict=True)] == [True, True]
    tuples: dict[str, Any] = {name: tuple(arrays) for name, arrays in refs.items()}
    assert device.fused.adamw(**tuples, step=3, **ADAMW) is tuples["param"]
    assert not np.array_equal(once[0], refs["param"][0].numpy())


def test_a_plan_and_its_notes(device: an.Device, is_gpu: bool) -> None:
    lists = collections([((3,), "float32", False), ((2, 5), "float16", True)])
    first, second = put(device, lists), put(device, lists)
    plan = device.fused.plan(an.AdamWListRequest(**first, step=1, **ADAMW))
    operands = [a for i in range(2) for name in ORDER if (a := second[name][i]) is not None]
    plan.tell(*operands, step=4, lr=0.01)
    check_bits(read(second), wanted(device, is_gpu, True, lists, step=4, **{**ADAMW, "lr": 0.01}))
    check_bits(read(first), lists)
    notes = () if device.kind == "host" else ("one launch of a generated kernel for 2 parameters",)
    assert plan.notes == notes


def test_the_same_arrays_again_and_again(device: an.Device, is_gpu: bool) -> None:
    """Launches from records have each step's numbers."""
    lists = collections([((33,), "float32", False), ((5, 7), "bfloat16", True)])
    refs = put(device, lists)
    for step in range(1, 9):
        lists = wanted(device, is_gpu, True, lists, step=step, **ADAMW)
        device.fused.adamw(**refs, step=step, **ADAMW)
    check_bits(read(refs), lists)


def test_recorded_steps(device: an.Device, is_gpu: bool) -> None:
    lists = collections([((33,), "float32", False), ((5, 7), "bfloat16", True)])
    refs = put(device, lists)

    @device.graph
    def train(lr: Any, step: Any) -> None:
        device.fused.adamw(**refs, **{**ADAMW, "lr": lr}, step=step)

    plan = train.plan(0.1, 1)
    for step in range(1, 5):
        plan.tell(lr=0.1 / step, step=step)
        lists = wanted(device, is_gpu, True, lists, **{**ADAMW, "lr": 0.1 / step}, step=step)
    check_bits(read(refs), lists)


def test_the_most_parameters_of_a_message(device: an.Device, is_gpu: bool) -> None:
    for count, master in ((60, False), (48, True)):
        lists = collections([((i % 5,), "float32", master) for i in range(count)])
        refs = put(device, lists)
        device.fused.adamw(**refs, step=1, **ADAMW)
        check_bits(read(refs), wanted(device, is_gpu, True, lists, step=1, **ADAMW))
        more = {name: [*arrays, *arrays[:1]] for name, arrays in refs.items()}
        with pytest.raises(an.InvalidRequest, match=f"{count + 1} parameters .* at most 240"):
            device.fused.adamw(**more, step=1, **ADAMW)


X, Y = np.ones(3, np.float32), np.ones((2, 2), np.float32)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no collection": ({"param": X}, "param is a ndarray; allowed: a list, a tuple or a dict"),
    "nothing": ({"param": []}, "at least one array"),
    "fewer": ({"grad": [X.copy()]}, "grad has 1 arrays; allowed: a list or a tuple of as many as param, 2"),
    "an array": ({"m": X}, "m has the type ndarray; allowed: a list or a tuple"),
    "a dict": ({"v": {0: X, 1: Y}}, "v has the type dict"),
    "masters of another length": ({"master": [None]}, "master has 1 arrays"),
    "masters of float32": ({"master": [None, Y.copy()]}, "parameter 1: param has dtype float32"),
    "another shape": ({"m": [X.copy(), X.copy()]}, "parameter 1: m has dtype float32 and shape"),
    "None": ({"v": [X.copy(), None]}, "parameter 1: v"),
    "a gradient's memory": ({"grad": [X.copy(), "param1"]}, "parameter 1: param overlaps grad"),
    "another parameter's gradient": ({"grad": ["m0", Y.copy()], "param": [X, Y]}, "m overlaps grad"),
    "a state twice": ({"v": ["m0", Y.copy()]}, "parameter 0: v overlaps m"),
    "a step": ({"step": 0}, "step=0"),
    "a number": ({"beta2": 1.0}, "beta2=1.0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    changed, match = REFUSED[name]
    given: dict[str, Any] = {key: [X.copy(), Y.copy()] for key in ("param", "grad", "m", "v")} | {"step": 1}
    places = {"param1": given["param"][1], "m0": given["m"][0]}
    for key, value in changed.items():
        arrays = isinstance(value, list)
        given[key] = [places[a] if isinstance(a, str) else a for a in value] if arrays else value
    with pytest.raises(an.InvalidRequest, match=match):
        an.AdamWListRequest(**given)


def test_arrays_of_two_parameters_share_no_memory() -> None:
    shared = X.copy()
    lists = {"param": [X.copy(), X.copy()], "grad": [X.copy(), X.copy()], "m": [X.copy(), shared]}
    with pytest.raises(an.InvalidRequest, match="m1 overlaps grad0"):
        an.SgdListRequest(**{**lists, "grad": [shared, X.copy()]})
    with pytest.raises(an.InvalidRequest, match="m1 overlaps m0"):
        an.SgdListRequest(**{**lists, "m": [shared, shared]})
    an.SgdListRequest(**{**lists, "grad": [X, X]})  # which are only read


def test_refusals_of_keys(device: an.Device) -> None:
    refs = {name: {"w": device.ones(3), "b": device.ones(2)} for name in ("param", "grad", "m")}
    for name, given, match in (
        ("grad", {"w": device.ones(3)}, r"grad has the keys \['w'\]; allowed: a dict with the keys of param"),
        ("m", [device.ones(3), device.ones(2)], "m has the type list; allowed: a dict"),
        ("master", {"x": device.ones(3)}, r"master has the keys \['x'\]"),
        ("m", {"w": device.ones(3), "b": device.ones(3)}, "parameter 'b': m has dtype float32 and shape"),
    ):
        with pytest.raises(an.InvalidRequest, match=match):
            device.fused.sgd_momentum(**{**refs, name: given})
    np.testing.assert_array_equal(refs["param"]["w"].numpy(), np.ones(3))  # nothing was sent
    with pytest.raises(an.InvalidRequest, match="grad"):
        device.fused.sgd_momentum(device.ones(3), [device.ones(3)], device.ones(3))
