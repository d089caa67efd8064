"""Functions that travel by value."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from atomr_native._support import by_value

pytestmark = pytest.mark.plain


def received(function: Callable[..., Any]) -> Any:
    file = io.BytesIO()
    by_value.Pickler(file).dump(function)
    return pickle.loads(file.getvalue())


def test_functions_keep_their_file() -> None:
    factor = 3

    def outer(x: int) -> Callable[[], int]:
        return lambda: x * factor

    found = received(outer)
    assert found is not outer
    assert found.__code__.co_filename == __file__
    assert found(2)() == 6
    assert found(2).__code__.co_filename == __file__  # code within code, too
    assert found(2).__code__.co_firstlineno == outer(2).__code__.co_firstlineno
