"""Users' kernels on a device: methods that make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._support.checks import as_flag

if TYPE_CHECKING:
    from ..libraries.kernel.cuda_kernel import CudaKernel
    from ..libraries.kernel.numba_kernel import NumbaKernel
    from .state import DeviceState

__all__ = ["KernelMethods"]


class KernelMethods:
    """The kernel methods of `Device`."""

    _state: DeviceState

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
        """Make a kernel from a Numba function: ``device.kernel(f)[grid, block](x, y, 2.0)`` sends one launch.

        For a GPU, it is compiled in this process, at the first launch with new argument types, for the device's
        architecture; on the host device Numba's simulator runs it, in the types that Numba infers for a GPU.

        Parameters
        ----------
        function
            A function decorated with ``numba.cuda.jit``, or a plain function in the same language.
        actor : str
            Name of the mailbox that runs it.  Kernels of one mailbox run in order; kernels of several mailboxes may
            overlap if they touch different arrays.
        writes : iterable of str, optional
            Array parameters that the kernel writes; all others are then only read.  By default, every array that is
            not proven to be only read, by the types that Numba infers, counts as written.  Messages are ordered by this
            declaration, so it must be true.
        overwrites : iterable of str
            Array parameters whose every element the kernel writes and none of which it reads; they may be
            uninitialised.
        fastmath : bool, optional
        max_registers : int, optional
            Registers per thread.  Both options override those of ``jit``.
        debug : bool, optional
            Check indices: an index out of bounds fails the message with `LibraryError` ("IndexError"), which names the
            index and its place in the source, instead of a fault.  Exceptions and failing assertions of the kernel do
            the same, under their own names.  The lane waits for each such launch.  The default is the System's `debug`.
        cluster : int or tuple of int, optional
            Blocks of a cluster (compute capability 9.0 and later); the host device runs the same blocks without
            clusters.
        stand_ins : mapping of str to function, optional
            For the host device: Python equivalents of the functions that the kernel declares (``cuda.declare_device``),
            by their declared names.

        Raises
        ------
        InvalidRequest
            If `function` is not a kernel, or a name is not one of its parameters; from a launch, if the kernel
            synchronises its grid and not all blocks can run at once.
        Unsupported
            If numba-cuda is not installed; on the host device from a launch, if a declared function has no stand-in or
            a synchronised grid has more than one block.
        """
        from ..libraries.kernel import numba_kernel

        return numba_kernel.make(
            self._state, function, actor=actor, writes=writes, overwrites=overwrites, fastmath=fastmath,
            max_registers=max_registers, debug=self._state.config.debug if debug is None else as_flag("debug", debug),
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
            The source text.
        name : str
            The kernel's name expression: a name, or a template with its arguments.
        parameters : str, optional
            Its parameters in C++ syntax, ``"float *x, int n"``; by default read from the source.  They are checked
            against the compiler's types and against the machine code.
        options : sequence of str
            Options of NVRTC; by default ``--std=c++17``.
        headers : mapping of str to str, optional
            Text of headers by name.
        include : sequence of str
            Folders of headers.
        link : sequence of bytes
            LTO-IR of device functions that the source declares (see `device_function`).
        writes : iterable of str, optional
            Pointer parameters through which the kernel writes; by default those that do not point to const.
        overwrites : iterable of str
            Pointer parameters whose every element the kernel writes and none of which it reads.
        actor : str
            Name of the mailbox that runs it.
        cluster : int or tuple of int, optional
            Blocks of a cluster (compute capability 9.0 and later).
        cooperative : bool
            Whether its blocks may wait for each other (grid synchronisation).
        overlaps : bool
            Whether the kernel may begin while the previous launch still ends.  It must wait for it with
            ``griddepcontrol.wait`` before it touches device memory (programmatic dependent launch; no effect below
            compute capability 9.0).

        Raises
        ------
        InvalidRequest
            For a wrong declaration, and for a kernel with `overlaps` whose threads do not all wait first.
        Unsupported
            On the host device, and without NVRTC.
        LibraryError
            If it does not compile; the message has the compiler's log.
        """
        from ..libraries.kernel import cuda_kernel

        return cuda_kernel.make(
            self._state, source, name, parameters=parameters, options=options, headers=headers,
            include=include, link=link, writes=writes, overwrites=overwrites, actor=actor, cluster=cluster,
            cooperative=cooperative, overlaps=overlaps,
        )  # fmt: skip
