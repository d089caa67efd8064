"""The library actors of a device.

Generated from the registry of libraries by ``make format``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..libraries.blas.actor import Blas
    from ..libraries.blas_lt.actor import BlasLt
    from ..libraries.cudnn.actor import Cudnn
    from ..libraries.cutlass.actor import Cutlass
    from ..libraries.elementwise.actor import ElementwiseActor
    from ..libraries.fft.actor import Fft
    from ..libraries.float8.actor import Float8
    from ..libraries.fused.actor import Fused
    from ..libraries.random.actor import Random
    from ..libraries.solver.actor import Solver
    from ..libraries.sparse.actor import Sparse
    from ..libraries.tensor.actor import Tensor

__all__ = ["DeviceLibraries"]


class DeviceLibraries:
    """The library actors of `Device`, each made at first use."""

    if TYPE_CHECKING:

        def _library(self, name: str) -> Any: ...

    @cached_property
    def blas(self) -> Blas:
        """Vectors and matrices by the classic BLAS routines.  Made at first use."""
        actor: Blas = self._library("blas")
        return actor

    @cached_property
    def blas_lt(self) -> BlasLt:
        """Matrix products with fused epilogues."""
        actor: BlasLt = self._library("blas_lt")
        return actor

    @cached_property
    def cudnn(self) -> Cudnn:
        """Convolutions, and graphs of operations that cuDNN fuses.  Made at first use."""
        actor: Cudnn = self._library("cudnn")
        return actor

    @cached_property
    def cutlass(self) -> Cutlass:
        """Products by kernels of CUTLASS, with epilogues of one's own.  Made at first use."""
        actor: Cutlass = self._library("cutlass")
        return actor

    @cached_property
    def elementwise(self) -> ElementwiseActor:
        """Expressions over arrays, and reductions."""
        actor: ElementwiseActor = self._library("elementwise")
        return actor

    @cached_property
    def fft(self) -> Fft:
        """Fourier transforms.  Made at first use."""
        actor: Fft = self._library("fft")
        return actor

    @cached_property
    def float8(self) -> Float8:
        """Quantisation to float8 and back.  Made at first use."""
        actor: Float8 = self._library("float8")
        return actor

    @cached_property
    def fused(self) -> Fused:
        """Activations, norms, optimizer steps and more, each in one pass over memory.  Made at first use."""
        actor: Fused = self._library("fused")
        return actor

    @cached_property
    def random(self) -> Random:
        """Random numbers, the same on every device.  Made at first use."""
        actor: Random = self._library("random")
        return actor

    @cached_property
    def solver(self) -> Solver:
        """Dense linear algebra: solves, least squares, singular values, eigenvalues.  Made at first use."""
        actor: Solver = self._library("solver")
        return actor

    @cached_property
    def sparse(self) -> Sparse:
        """Sparse matrices: products, triangular solves, conversions.  Made at first use."""
        actor: Sparse = self._library("sparse")
        return actor

    @cached_property
    def tensor(self) -> Tensor:
        """Tensors by their modes: einsum, contractions, reductions and permutations.  Made at first use."""
        actor: Tensor = self._library("tensor")
        return actor
