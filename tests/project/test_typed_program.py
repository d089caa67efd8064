"""What type checkers are told of options is what calls take."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
import typed_program

import atomr_native as an
from atomr_native.libraries.blas.request import BlasOptions
from atomr_native.libraries.blas.spec import ROUTINES
from atomr_native.libraries.blas_lt import request
from atomr_native.libraries.float8.request import QuantizeOptions


def test_the_program_runs(nothing_left: None) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: a custom epilogue is compiled")
    typed_program.main()


def fields(request: type[Any], *own: str) -> set[str]:
    return {field.name for field in dataclasses.fields(request)}.difference(own)


def test_options_are_those_of_requests() -> None:
    assert request.MatmulOptions.__optional_keys__ == fields(an.MatmulRequest, "a", "b")
    assert QuantizeOptions.__optional_keys__ == fields(an.QuantizeRequest, "x", "dtype")
    assert BlasOptions.__optional_keys__ == fields(an.BlasRequest, "routine")
    lists = fields(an.GroupedRequest, "a", "b", "options")
    own = request.GroupPlanOptions.__optional_keys__ - request.GroupOptions.__optional_keys__
    assert own == lists | {"alpha", "beta"}
    call = set(inspect.signature(an.BlasLt.matmul).parameters) - {"self", "a", "b"}
    assert request.MatmulOptions.__optional_keys__ == call


@pytest.mark.parametrize("routine", ["gemv", "symm", "syrk", "trmm", "trsm", "geam", "gemm"])
def test_options_of_routines_are_what_they_take(routine: str) -> None:
    from atomr_native.libraries.blas.request import ROUTINE_OPTIONS

    _, adds, flags = ROUTINES[routine]
    wanted = {"alpha", *flags} | ({"beta"} if adds or routine == "geam" else set())
    assert ROUTINE_OPTIONS[routine].__optional_keys__ - {"out"} == wanted


def test_every_epilogue_has_a_result() -> None:
    plain, storing = (set(map(str, kind.__args__)) for kind in (request.PlainEpilogue, request.StoringEpilogue))
    assert not plain & storing
    assert plain | storing == set(map(str, an.Epilogue))
    assert storing == {str(one) for one in an.Epilogue if one.writes_aux or one.writes_bias_grad}
