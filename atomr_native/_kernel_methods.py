"""Users' kernels on a device: the methods by which they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ._checks import as_flag
from .errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from .cuda_kernel import CudaKernel
    from .device import Device
    from .kernel import KernelActor
    from .numba_kernel import NumbaKernel

__all__ = ["LIBRARY_ACTORS", "KernelMethods"]

#: Names of actors that a device has by itself.
LIBRARY_ACTORS = ("memory", "blas", "blas_lt", "elementwise", "float8", "fused")


class KernelMethods:
    """What `Device` has of kernels."""

    _kernel_actors: dict[str, KernelActor]

    def kernel(
        self,
        function: Any,
        *,
        actor: str = "kernels",
        writes: Iterable[str] | None = None,
        overwrites: Iterable[str] = (),
        fastmath: bool | None = None,
        max_registers: int | None = None,
        debug: bool | None = None,
        cluster: int | tuple[int, ...] | None = None,
        stand_ins: Mapping[str, Any] | None = None,
    ) -> NumbaKernel:
        """Make a kernel of a function for Numba: ``device.kernel(f)[grid, block](x, y, 2.0)`` sends one launch.

        On a GPU it is compiled here, at the first launch with new argument types, for the device's architecture; on the
        host device Numba's simulator runs it.

        Parameters
        ----------
        function
            A function decorated with ``numba.cuda.jit``, or a plain one in the same language.
        actor : str
            Name of the mailbox that runs it.  Kernels of one run in order; those of several may overlap, where they
            touch different arrays.
        writes : iterable of str, optional
            Array parameters that it writes; all others are then only read.  By default, what the source does not
            prove to be only read counts as written.  Messages are ordered by it, so it must be true.
        overwrites : iterable of str
            Array parameters of which it writes every element and reads none: they need not have been written before.
        fastmath : bool, optional
        max_registers : int, optional
            Of each thread.  Both override what ``jit`` was given.
        debug : bool, optional
            Check indices: one that is out of bounds fails the message with `LibraryError` ("IndexError"), which names
            the index and its place in the source, instead of faulting.  Exceptions and failing assertions of the
            kernel do so, too, under their own names.  The lane waits for each such launch.  By default as the System
            was made.
        cluster : int or tuple of int, optional
            Blocks of a cluster (compute capability 9.0 and later); the host device runs the same blocks without.
        stand_ins : mapping of str to function, optional
            For the host device: Python functions that do what functions do that the kernel declares
            (``cuda.declare_device``), by the names under which they are declared.

        Raises
        ------
        InvalidRequest
            If `function` is no kernel, or a name is no parameter of it; from a launch, if the kernel synchronises its
            grid and not all blocks can run at once.
        Unsupported
            If numba-cuda is not installed; on the host device from a launch, if a declared function has no stand-in or
            the grid to be synchronised has more than one block.
        """
        from . import numba_kernel

        device = cast("Device", self)
        return numba_kernel.make(
            device, function, actor=actor, writes=writes, overwrites=overwrites, fastmath=fastmath,
            max_registers=max_registers, debug=device.system.config.debug if debug is None else as_flag("debug", debug),
            cluster=cluster, stand_ins=stand_ins,
        )  # fmt: skip

    def cuda_kernel(
        self,
        source: str,
        name: str,
        *,
        parameters: str | None = None,
        options: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        include: Sequence[str] = (),
        link: Sequence[bytes] = (),
        writes: Iterable[str] | None = None,
        overwrites: Iterable[str] = (),
        actor: str = "kernels",
        cluster: int | tuple[int, ...] | None = None,
        cooperative: bool = False,
        overlaps: bool = False,
    ) -> CudaKernel:
        """Compile a kernel in CUDA C++ by NVRTC: ``device.cuda_kernel(source, "scale<float>")[grid, block](x, 2.0)``.

        Waits for the compiler, unless the disk cache has it; needs a GPU device, for its architecture.

        Parameters
        ----------
        source : str
            The program.
        name : str
            The kernel's name expression: a name, or a template with its arguments.
        parameters : str, optional
            Its parameters as C++ has them, ``"float *x, int n"``; by default as the source declares them.  They are
            held against what the compiler says of them, and against the machine code.
        options : sequence of str
            Of NVRTC; by default ``--std=c++17``.
        headers : mapping of str to str, optional
            Text of headers by name.
        include : sequence of str
            Folders of headers.
        link : sequence of bytes
            LTO-IR to link with: of device functions that the source declares (see `device_function`).
        writes : iterable of str, optional
            Pointer parameters through which it writes; by default those that do not point to const.
        overwrites : iterable of str
            Pointer parameters of which it writes every element and reads none.
        actor : str
            Name of the mailbox that runs it.
        cluster : int or tuple of int, optional
            Blocks of a cluster (compute capability 9.0 and later).
        cooperative : bool
            Whether its blocks may wait for each other (grid synchronisation).
        overlaps : bool
            Whether it may begin while the launch before it still ends, for which it waits itself, with
            ``griddepcontrol.wait``, before it touches device memory (programmatic dependent launch; nothing changes
            below compute capability 9.0).

        Raises
        ------
        InvalidRequest
            For a declaration that does not fit, and a kernel with `overlaps` that does not wait first in all threads.
        Unsupported
            On the host device, and without NVRTC.
        LibraryError
            If it does not compile: with the compiler's log.
        """
        from . import cuda_kernel

        return cuda_kernel.make(
            cast("Device", self), source, name, parameters=parameters, options=options, headers=headers,
            include=include, link=link, writes=writes, overwrites=overwrites, actor=actor, cluster=cluster,
            cooperative=cooperative, overlaps=overlaps,
        )  # fmt: skip

    def _compute_capability(self) -> tuple[int, int]:
        """Return what kernels of this device are compiled for."""
        device = cast("Device", self)
        found = device.facts["compute_capability"]
        if found is None:
            raise Unsupported(f"{device.name} has no compute capability: kernels are compiled for GPUs")
        return found[0], found[1]

    def _kernel_actor(self, name: str) -> KernelActor:
        if not isinstance(name, str) or not name or name in LIBRARY_ACTORS:
            raise InvalidRequest(
                f"actor {name!r}; it must be a string that is not empty and not one of {', '.join(LIBRARY_ACTORS)}"
            )
        from .kernel import KernelActor

        device = cast("Device", self)
        with device._lanes_lock:
            found = self._kernel_actors.get(name)
            if found is None:
                found = self._kernel_actors[name] = KernelActor(device, name)
            return found
