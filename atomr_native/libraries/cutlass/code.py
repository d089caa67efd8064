"""The machine code of a plan: the kernel that is chosen, rendered and compiled where the program runs."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...errors import LibraryError, Unsupported
from ...protocol.binaries import Binary
from .attributes import CompiledKernel, GemmAttributes

if TYPE_CHECKING:
    from ...plans.lowering import Target
    from ...plans.spec import PlanSpec

__all__ = ["GemmCode", "compiled_kernel", "compiled_kernels"]

_log = logging.getLogger("atomr_native")


def compiled_kernel(
    spec: PlanSpec[GemmAttributes],
    functions: tuple[FunctionType, ...],
    capability: tuple[int, int],
    cancel: threading.Event | None = None,
) -> CompiledKernel:
    """Return a plan's kernel as machine code.  Waits for the compiler, if no cache has it; setting `cancel` ends that.

    Raises
    ------
    Unsupported
        If no kernel computes the plan, or a compiler is not installed.
    LibraryError
        If it does not compile, with the compiler's whole text.
    """
    from ...compile.nvrtc import arch_of
    from .choice import kernel_of
    from .kernels import check, compile_kernel, function_ltoir, render
    from .recording import record

    chosen = kernel_of(spec, capability)
    kernel = chosen.kernel
    check(kernel)
    record(spec, functions)
    rendered = render(kernel)
    arity = dict(rendered.functions)
    parts = {
        symbol: function_ltoir(function, arity[symbol], symbol, capability, kernel.compute, rendered.brief)
        for symbol, function in ((f"f{place}", function) for place, function in enumerate(functions))
    }
    made = compile_kernel(rendered, parts, arch_of(capability), cancel=cancel)
    return CompiledKernel(
        rendered.entry,
        Binary(made.cubin),
        Binary(made.builder),
        rendered.fields,
        rendered.pointers,
        rendered.scalars,
        rendered.setup,
        chosen.splits,
        chosen.swizzle,
        chosen.title,
        chosen.source,
        chosen.turned,
    )


def compiled_kernels(
    spec: PlanSpec[GemmAttributes],
    functions: tuple[FunctionType, ...],
    capability: tuple[int, int],
    cancel: threading.Event | None = None,
) -> tuple[CompiledKernel, ...]:
    """Return a plan's kernel, as `compiled_kernel` does, and the other candidates if the plan is tuned.

    All compile at once.  A candidate that does not compile, for one whose tensor cores would wait, is left out.
    """
    if not spec.attributes.tune:
        return (compiled_kernel(spec, functions, capability, cancel),)
    from .candidates import candidates

    wanted = [
        replace(spec, attributes=replace(spec.attributes, choice=one, tune=False))
        for one in candidates(spec, capability)
    ]
    with ThreadPoolExecutor(len(wanted), "atomr-cutlass") as pool:
        jobs = [pool.submit(compiled_kernel, one, functions, capability, cancel) for one in wanted]
    made = [jobs[0].result()]
    for job in jobs[1:]:
        problem = job.exception()
        if problem is None:
            made.append(job.result())
        elif isinstance(problem, (LibraryError, Unsupported)):
            _log.info("a candidate of a product by CUTLASS is left out: %s", problem)
        else:
            raise problem
    return tuple(made)


@dataclass(frozen=True, slots=True)
class GemmCode:
    """The kernel of a product, and its epilogue's Python functions.

    Attributes
    ----------
    functions : tuple of function
    """

    functions: tuple[FunctionType, ...]

    def attributes(self, spec: PlanSpec[GemmAttributes], target: Target) -> GemmAttributes:
        """Return the attributes with the kernel, or for the host device with the pickled functions."""
        if target.capability is None:
            if not self.functions:
                return spec.attributes
            from ...compile.linker import pickled

            return replace(spec.attributes, functions=tuple(Binary(pickled(one)) for one in self.functions))
        first, *others = compiled_kernels(spec, self.functions, target.capability)
        return replace(spec.attributes, kernel=first, candidates=tuple(others))
