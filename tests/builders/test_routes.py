"""Of several routes to a result the first that is supported is taken; the others are not tried, or say why not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from atomr_native.builders.cuda.routes import NoRoute, Refusal, Refusals, Route, first_supported
from atomr_native.errors import LibraryError, Unsupported


def refusing(name: str, message: str, **rule: object) -> Route[str]:
    def build(_: Refusals) -> str:
        raise Unsupported(message, **rule)  # type: ignore[arg-type]

    return Route(name, build)


def test_the_first_that_is_supported() -> None:
    reached = []

    def routes() -> Iterator[Route[str]]:
        yield refusing("one call", "too narrow", rule="fft.width", lifted_by=("shape",))
        yield refusing("in steps", "too wide")
        yield Route("kernels", lambda refused: "; ".join(f"{r.route}: {r.message}" for r in refused))
        reached.append("later")

    assert first_supported(routes()) == "one call: too narrow; in steps: too wide"
    assert not reached


def test_all_are_refused() -> None:
    routes = [refusing("one call", "too narrow", rule="fft.width", lifted_by=("shape",)), refusing("in steps", "why")]
    with pytest.raises(NoRoute, match="one call: too narrow; in steps: why") as caught:
        first_supported(routes)
    assert caught.value.refusals == (
        Refusal("one call", "too narrow", "fft.width", ("shape",)),
        Refusal("in steps", "why", "", ()),
    )


def test_other_errors_end_the_search() -> None:
    def fails(_: Refusals) -> str:
        raise LibraryError("cufft", 5, "CUFFT_INTERNAL_ERROR", "making a plan", "no memory")

    routes = [Route("one call", fails), Route("kernels", lambda _: "kernels")]
    with pytest.raises(LibraryError, match="CUFFT_INTERNAL_ERROR"):
        first_supported(routes)
    assert first_supported(routes, errors=(Unsupported, LibraryError)) == "kernels"


def test_a_refused_route_keeps_nothing_alive() -> None:
    class Native:
        pass

    kept: list[weakref.ref[Native]] = []

    def build(_: Refusals) -> str:
        native = Native()
        kept.append(weakref.ref(native))
        raise Unsupported(f"refused by {native!r}")

    def last(_: Refusals) -> str:
        gc.collect()
        assert kept[0]() is None
        return "done"

    assert first_supported([Route("one call", build), Route("kernels", last)]) == "done"
