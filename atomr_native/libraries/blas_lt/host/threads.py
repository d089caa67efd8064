"""How many threads a product gets: all of them when it is large, one when sharing would cost more than it gives.

The number is a setting of the whole process, so this is for worker processes only; in thread placement the program's
own setting stays.  It does not change results: BLAS shares a product out by rows and columns of the output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["adopt_process", "sized"]

#: Multiply-adds below which one thread does a product; two threads need about 10 us to meet, on a busy machine
#: milliseconds.
_SMALL = 1 << 22


class _Blas:
    """The BLAS of this process; does nothing until `adopted` is set."""

    def __init__(self) -> None:
        self.adopted = False
        self.found = False
        self.libraries: list[Any] = []
        self.all = 1
        self.now = 1

    def find(self) -> None:
        self.found = True
        import numpy.linalg  # noqa: F401 - loads the BLAS, so that it is found
        from threadpoolctl import ThreadpoolController

        self.libraries = [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]
        self.all = self.now = max((lib.num_threads for lib in self.libraries), default=1)

    def use(self, threads: int) -> None:
        if threads != self.now:
            self.now = threads
            for library in self.libraries:
                library.set_num_threads(threads)


_blas = _Blas()


def adopt_process() -> None:
    """Let `sized` choose for this process; called by a worker process when it starts."""
    _blas.adopted = True


def sized(run: Callable[..., None], multiply_adds: int) -> Callable[..., None]:
    """Return `run` such that its products get the threads that suit this much work."""
    if _blas.adopted and not _blas.found:
        _blas.find()
    small = multiply_adds < _SMALL

    def choose(arrays: tuple[Any, ...], scalars: tuple[Any, ...]) -> None:
        if _blas.all > 1:
            _blas.use(1 if small else _blas.all)
        run(arrays, scalars)

    return choose
