"""Misspelt options and wrong arguments: the error names them, the nearest name, and what is allowed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import atomr_native as an
from atomr_native._support.options import named_options
from atomr_native.patterns import Batcher


@pytest.mark.plain
@pytest.mark.parametrize(
    ("call", "option", "nearest"),
    [
        (lambda **o: an.System(**o), "memory_limits", "memory_limit"),
        (lambda **o: an.Mailbox(**o), "capacty", "capacity"),
        (lambda **o: an.OneForOne(**o), "max_restart", "max_restarts"),
        (lambda **o: an.AllForOne(**o), "backof", "backoff"),
        (lambda **o: an.System(**o), "zzz", None),
    ],
)
def test_a_misspelt_option_is_told_the_nearest(call: Callable[..., Any], option: str, nearest: str | None) -> None:
    with pytest.raises(an.UnknownOption) as caught:
        call(**{option: 1})
    error = caught.value
    assert isinstance(error, TypeError)
    assert isinstance(error, an.InvalidRequest)
    assert (error.option, error.nearest) == (option, nearest)
    assert nearest is None or (nearest in error.allowed and f"did you mean {nearest!r}?" in str(error))
    assert f"unknown option {option!r}" in str(error)
    assert pickle.loads(pickle.dumps(error)).allowed == error.allowed
    del error, caught


@pytest.mark.host_only
@pytest.mark.parametrize(
    ("use", "nearest"),
    [
        (lambda d: d.durable_group({}, checksums=True), "checksum"),
        (lambda d: d.kernel(print, write=()), "writes"),
        (lambda d: d.cuda_kernel("", "f", actors="x"), "actor"),
        (lambda d: d.blas_lt.plan(d.put([[1.0]]), d.put([[1.0]]), epilog="relu"), "epilogue"),
    ],
)
def test_the_options_of_a_device(device: an.Device, use: Callable[[an.Device], Any], nearest: str) -> None:
    with pytest.raises(an.UnknownOption) as caught:
        use(device)
    assert caught.value.nearest == nearest
    del caught


def test_other_errors_stay_what_they_are() -> None:
    @named_options
    def f(a: int, *, option: int = 0) -> int:
        if option:
            raise TypeError("mine")
        return a

    assert f(3) == 3
    with pytest.raises(TypeError, match="mine"):
        f(1, option=2)
    with pytest.raises(TypeError, match="missing") as caught:
        f()  # type: ignore[call-arg]
    assert not isinstance(caught.value, an.AtomrError)
    with pytest.raises(an.UnknownOption, match=r"unknown option 'option_' of f \(did you mean 'option'\?\)"):
        f(1, option_=2)  # type: ignore[call-arg]


class Worker(an.Actor):
    """An actor with a constructor."""

    def __init__(self, model: str, *, depth: int = 1) -> None:
        self.model, self.depth = model, depth

    def receive(self, message: object) -> object:
        return message


class Open(an.Actor):
    """An actor that takes any option."""

    def __init__(self, **options: object) -> None:
        self.options = options

    def receive(self, message: object) -> object:
        return self.options


@pytest.mark.plain
def test_wrong_arguments_of_a_constructor_are_refused_at_once() -> None:
    with an.System() as system:
        for args, options, said in (
            ((), {}, "missing a required argument: 'model'"),
            (("m", 2), {}, "too many positional arguments"),
            (("m",), {"model": "n"}, "multiple values for argument 'model'"),
        ):
            for spawn in (system.spawn, lambda *a, **o: system.pool(*a, size=2, **o)):
                with pytest.raises(an.InvalidRequest) as caught:
                    spawn(Worker, *args, **options)
                assert said in str(caught.value)
                assert str(caught.value).startswith("Worker(")
        with pytest.raises(an.UnknownOption, match="did you mean 'depth'") as unknown:
            system.spawn(Worker, "m", dept=2)
        assert unknown.value.allowed == ("depth", "model")
        with pytest.raises(an.UnknownOption, match="did you mean 'max_size'"):
            system.spawn(Batcher, print, maxsize=3)
        assert system.stats()["actors"] == {}
        assert system.spawn(Worker, "m", depth=2).ask(7).result(30) == 7
        assert system.spawn(Open, anything=2).ask(7).result(30) == {"anything": 2}
        del caught, unknown
