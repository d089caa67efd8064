"""The kinds of device that the same tests run on, and where these work."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fake_cuda
import pytest

import atomr_native as an
from atomr_native.system import has_gpu

__all__ = [
    "ALL",
    "ENGINES",
    "GPU",
    "HOST",
    "HOSTS",
    "OPTIONS",
    "PROCESSES",
    "Placement",
    "program",
    "programs",
    "resolve",
]


#: Quick to start, with operations that wait and fail on demand.
OPTIONS: dict[str, Any] = {"standby": "off", "allow_crash": True}

#: The parameter of a GPU, where there is one: elsewhere its tests would be collected only to be left out.
GPU = (pytest.param("gpu", marks=pytest.mark.gpu),) if has_gpu() else ()
#: What a CUDA device is made of: the fake driver, or a GPU.
ENGINES = ("fake", *GPU)


class _System(an.System):
    """A System whose default device is the one that is tested."""

    default = "host"

    def _default(self) -> an.Device:
        return self.device(self.default)


@dataclass(frozen=True)
class Placement:
    """A kind of device.

    Attributes
    ----------
    device, isolation
        As a System has them.
    variables
        For the environment in which a System is made.
    """

    device: str
    isolation: str
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def cuda(self) -> bool:
        """Whether it is a CUDA device: its memory is not this process's, and work is asynchronous."""
        return self.device != "host"

    @property
    def fake(self) -> bool:
        """Whether it is the fake driver, which is right and slow."""
        return bool(self.variables)

    def using(self) -> contextlib.AbstractContextManager[None]:
        """Have the Systems, and programs, that are made meanwhile find this kind of device."""
        return fake_cuda.using(dict(self.variables)) if self.variables else contextlib.nullcontext()

    def on_fake(self, **settings: object) -> Placement:
        """Return this placement with settings of the fake driver, ``FAKE_CUDA_<NAME>`` for each; others as they are."""
        more = tuple((f"FAKE_CUDA_{name.upper()}", str(value)) for name, value in settings.items())
        return dataclasses.replace(self, variables=self.variables + more) if self.fake else self

    def system(self, **options: Any) -> an.System:
        """Make a System whose default device is of this kind."""
        with self.using():
            made = _System(**{"isolation": self.isolation, **options})
        made.default = self.device
        return made


def programs(*kinds: str) -> list[Any]:
    """Return parameters of a fixture that calls `program`: these kinds of device, in a process and in a thread."""
    return [
        pytest.param(f"{kind} {isolation}", marks=[pytest.mark.gpu] if kind == "gpu" else [])
        for kind in kinds
        for isolation in ("process", "thread")
    ]


@contextlib.contextmanager
def program(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Have programs that are started meanwhile find a kind of device; return isolation and name for their Systems."""
    kind, isolation = request.param.split()
    with fake_cuda.using(request.getfixturevalue("fake_environment")) if kind == "fake" else contextlib.nullcontext():
        yield isolation, "host" if kind == "host" else "cuda:0"


HOST = Placement("host", "process")
#: Parameters of fixtures.  A GPU in a thread would take the tests' own process along when it faults.
PROCESSES = ("host", "fake", *GPU)
HOSTS = ("process", "thread")
ALL = (*HOSTS, *PROCESSES[1:])


def resolve(request: pytest.FixtureRequest) -> Placement:
    """Return the placement that a fixture's parameter names."""
    kind: str = request.param
    if kind == "gpu":
        return Placement("cuda:0", "process")
    if kind == "fake":
        return Placement("cuda:0", "process", tuple(request.getfixturevalue("fake_environment").items()))
    return Placement("host", "thread" if kind == "thread" else "process")
