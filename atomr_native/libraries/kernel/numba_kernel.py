"""Users' Numba kernels: ``device.kernel(f)[grid, block](x, y, 2.0)``.

On the host device Numba's simulator runs them as Python with Numba's types, slowly.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._lib.sender import STAGING
from ..._support.checks import as_flag, as_integer
from ..._support.options import named_methods
from ...arrays.gpu_ref import GpuRef
from ...arrays.layout import layout_of
from ...compile.numba.instrument import REPORT_WORDS
from ...dtypes import dtype_name
from ...errors import InvalidRequest, Unsupported
from ...plans.spec import OVERWRITE, READ, WRITE
from ...protocol.binaries import Binary
from . import spec
from .actor import Kernel, KernelActor
from .attributes import CompiledKernel, PickledKernel
from .spec import Configuration, Members, Records

if TYPE_CHECKING:
    from types import FunctionType

    from ...compile.linker import MachineCode
    from ...plans.owner import PlanOwner

__all__ = ["NumbaKernel", "make"]


@named_methods
class NumbaKernel(Kernel):
    """A Python function compiled for a device by Numba; made by `Device.kernel`."""

    def __init__(
        self,
        actor: KernelActor,
        function: FunctionType,
        options: dict[str, Any],
        writes: Iterable[str] | None,
        overwrites: Iterable[str],
        *,
        checks: bool,
        cluster: object = None,
        stand_ins: Mapping[str, FunctionType] | None = None,
        signatures: Sequence[Sequence[Any]] = (),
    ) -> None:
        super().__init__(actor, function.__name__, tuple(inspect.signature(function).parameters), cluster=cluster)
        self._stand_ins = tuple(sorted((stand_ins or {}).items()))
        self.checks = checks
        self.signatures = signatures
        self.function = function
        self.options = options
        self._check_parameters()
        full = self._check_names("overwrites", overwrites)
        self._writes = None if writes is None else self._check_names("writes", writes) | full
        self._overwrites = full
        self._proofs: dict[tuple[Any, ...], frozenset[str]] = {}
        self._codes: dict[tuple[Any, ...], MachineCode] = {}
        self._pickled: dict[tuple[Any, ...], bytes] = {}
        self._report: GpuRef | None = None

    def _check_parameters(self) -> None:
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                raise InvalidRequest(f"kernel {self.name} has the parameter {parameter}; allowed: positional ones")
            if parameter.default is not parameter.empty:
                raise InvalidRequest(
                    f"parameter {name} of kernel {self.name} has a default; launches pass every argument"
                )

    def classify(self, name: str, value: object) -> tuple[Any, ...]:
        """Return an argument with the type that Numba gives it; a struct is put on the device."""
        if isinstance(value, np.void) and value.dtype.names:
            if value.dtype.hasobject:
                raise InvalidRequest(f"{name} is of {value.dtype}, which holds Python objects; a kernel takes numbers")
            # Numba's kernels take a struct by its address: each launch gets a copy, freed in order with it.
            ref = self.actor.device.put(np.frombuffer(value.tobytes(), np.uint8))
            return "record", Records(ref, value.dtype)
        if isinstance(value, GpuRef) and dtype_name(value.dtype).startswith("float8"):  # on the host device as on GPUs
            raise Unsupported(
                f"{name} is {value!r}; Numba has no arrays of {dtype_name(value.dtype)}: pass ref.view('uint8') and "
                f"convert in the kernel"
            )
        if isinstance(value, tuple):
            items = tuple(self._member(f"{name}[{i}]", item) for i, item in enumerate(value))
            return "tuple", Members(items, type(value) if hasattr(value, "_fields") else None)
        return spec.classify(name, value)

    def _member(self, name: str, value: object) -> tuple[Any, ...]:
        """Return a member of a tuple as `classify` does."""
        if isinstance(value, np.void):
            raise Unsupported(f"{name} is a struct, in a tuple; pass it as an argument of its own")
        return self.classify(name, value)

    def fitted(self, arguments: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return arguments with the types of the signatures that the kernel was decorated with, if it was."""
        if not self.signatures:
            return arguments
        from .signatures import fitted

        return fitted(self.name, self.signatures, self.parameters, arguments)

    def limits(self, name: str, kind: type) -> tuple[int, int] | None:
        """Return the range of the integers that the signatures accept for a parameter, within a word of a message."""
        limits = super().limits(name, kind)
        if kind is float or not self.signatures:
            return limits
        from ...compile.numba.api import types

        wanted = [signature[self.parameters.index(name)] for signature in self.signatures]
        ranges = [(kind.minval, kind.maxval) for kind in wanted if isinstance(kind, types.Integer)]
        ranges += [limits] if limits is not None else []
        return (max(low for low, _ in ranges), min(high for _, high in ranges)) if ranges else None

    def accesses(self, arguments: Sequence[tuple[Any, ...]]) -> dict[str, int]:
        """Return how the arrays of each parameter count: as declared, or as far as the types prove."""
        read = self._read(arguments) if self._writes is None else frozenset(self.parameters) - self._writes
        return {
            name: WRITE | OVERWRITE if name in self._overwrites else READ if name in read else READ | WRITE
            for name in self.parameters
        }

    def _read(self, arguments: Sequence[tuple[Any, ...]]) -> frozenset[str]:
        from ...compile.numba import cache, front_end
        from .signatures import types_of

        types = types_of(self.parameters, arguments)
        found = self._proofs.get(types)
        if found is None:
            host = self.actor.owner.kind == "host"
            capability = front_end.HOST_CAPABILITY if host else self.actor.owner.compute_capability()
            found = self._proofs[types] = cache.read_only(self.function, types, capability, self.options)
        return found

    def code(self, arguments: Sequence[tuple[Any, ...]]) -> CompiledKernel | PickledKernel:
        """Return the code for these arguments, for a worker.  Compiles and waits the first time."""
        if self.actor.owner.kind == "host":
            return PickledKernel(Binary(self._for_the_simulator(arguments)))
        found = self._machine_code(arguments)
        return CompiledKernel(found.entry, found.code, found.sites, found.awaits)

    def configured(self, launch: Configuration, arguments: Sequence[tuple[Any, ...]]) -> Configuration:
        """Return how the kernel is launched: with all blocks at once, if its code makes them wait for each other."""
        if self.actor.owner.kind != "host":
            return dataclasses.replace(launch, cooperative=self._machine_code(arguments).cooperative)
        from ...compile.numba import survey

        if math.prod(launch.grid) > 1 and survey.survey(self.function)[1]:
            raise Unsupported(
                f"kernel {self.name} synchronises its grid, of {launch.grid} blocks; the host device runs blocks one "
                f"after the other, so that there it can only have one"
            )
        return launch

    def _machine_code(self, arguments: Sequence[tuple[Any, ...]]) -> MachineCode:
        from ...compile import linker
        from .signatures import types_of

        types = types_of(self.parameters, arguments)
        found = self._codes.get(types)
        if found is None:
            self._check_captured()
            found = self._codes[types] = linker.machine_code(
                self.function, types, self.actor.owner.compute_capability(), self.options, checks=self.checks
            )
        return found

    def _for_the_simulator(self, arguments: Sequence[tuple[Any, ...]]) -> bytes:
        from .signatures import types_of

        types = types_of(self.parameters, arguments)
        found = self._pickled.get(types)
        if found is None:
            found = self._pickled[types] = self._pickle(types)
        return found

    def _pickle(self, types: tuple[Any, ...]) -> bytes:
        from ...compile import linker
        from ...compile.numba import survey, typed_python

        self._check_captured()
        for name in sorted(survey.survey(self.function)[0].difference(dict(self._stand_ins))):
            raise Unsupported(
                f"kernel {self.name} calls {name}, which is declared and not Python, so that the host device cannot "
                f"run it; give it a Python function that does the same: device.kernel(f, stand_ins={{{name!r}: g}})"
            )
        return linker.pickled(typed_python.for_host(self.function, types), self._stand_ins)

    def _check_captured(self) -> None:
        """Refuse an array on a GPU that is no argument: Numba would compile its address, which others lack."""
        from ...compile.numba import survey

        name = survey.captured(self.function)
        if name is not None:
            raise InvalidRequest(
                f"kernel {self.name} refers to {name}, an array on a GPU, by another way than its arguments; pass it "
                f"as one (a NumPy array may be referred to: it is compiled into the kernel)"
            )

    def report(self) -> tuple[GpuRef, ...]:
        """Return the extra operand of a checked kernel: the memory of its reports."""
        if not self.checks or self.actor.owner.kind == "host":
            return ()
        if self._report is None or not self._report.valid:
            layout = layout_of((REPORT_WORDS,), np.dtype(np.int64))
            self._report = self.actor.owner.memory.new(layout, STAGING)
        return (self._report,)


def make(
    owner: PlanOwner,
    function: object,
    *,
    actor: str,
    writes: Iterable[str] | None,
    overwrites: Iterable[str],
    fastmath: bool | None,
    max_registers: int | None,
    debug: bool,
    cluster: object,
    stand_ins: Mapping[str, object] | None,
) -> NumbaKernel:
    """Make a kernel; see `Device.kernel`."""
    from ...compile.numba import api, compiler, survey

    python = api.python_function(function)
    options = compiler.jit_options(function)
    if fastmath is not None:
        options["fastmath"] = as_flag("fastmath", fastmath)
    if max_registers is not None:
        options["max_registers"] = as_integer("max_registers", max_registers, 16, 255)
    if stand_ins is not None and not isinstance(stand_ins, Mapping):
        raise InvalidRequest(f"stand_ins is {stand_ins!r}; allowed: a mapping from names to Python functions")
    declared = survey.survey(python)[0]
    for name in sorted(set(stand_ins or {}).difference(declared), key=str):
        raise InvalidRequest(
            f"stand_ins names {name!r}; functions that kernel {python.__name__} declares: "
            f"{', '.join(sorted(declared)) or 'none'}"
        )
    return NumbaKernel(
        owner.kernel_actor(actor), python, options, writes, overwrites, checks=debug, cluster=cluster,
        stand_ins={name: api.device_python(value) for name, value in (stand_ins or {}).items()},
        signatures=api.signatures(function),
    )  # fmt: skip
