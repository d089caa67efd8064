"""The solver's methods for QR, singular values and eigenvalues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..._support.checks import check_choice, check_flag
from ...errors import InvalidRequest
from ...plans.actor import LibraryActor
from .algorithms import GENERAL_ON_HOST
from .decomposition import DecompositionRequest, EighResult, QRFactors
from .forms import DECOMPOSITION

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["Decompositions"]


class Decompositions(LibraryActor):
    """Orthogonal decompositions; each method is one message, unless it says otherwise."""

    def qr(self, a: GpuRef, *, mode: str = "reduced", q: GpuRef | None = None, r: GpuRef | None = None) -> Any:
        """Send ``A = Q R`` of any matrix: a `QRResult`, or with ``mode="r"`` R alone.

        ``mode="reduced"``: Q has min(m, n) columns; ``"complete"``: m.  `q` and `r` are outputs.  The signs of R's
        diagonal are LAPACK's.
        """
        return self._calls.send(
            self,
            DECOMPOSITION,
            (
                a, None, None, q, r, None, None, None, None, None, None, None, None, None, None, "qr", mode, True,
                False, False, True, None, "auto", False,
            ),
        )  # fmt: skip

    def qr_factor(self, a: GpuRef, *, packed: GpuRef | None = None, tau: GpuRef | None = None) -> QRFactors:
        """Send the QR factors of A as reflectors, for `qr_multiply`; `packed` and `tau` are outputs."""
        made = self._calls.send(
            self,
            DECOMPOSITION,
            (
                a, None, None, None, None, packed, tau, None, None, None, None, None, None, None, None, "qr_factor",
                "reduced", True, False, False, True, None, "auto", False,
            ),
        )  # fmt: skip
        return cast("QRFactors", made)

    def qr_multiply(
        self,
        packed: GpuRef,
        tau: GpuRef,
        c: GpuRef,
        *,
        right: bool = False,
        adjoint: bool = False,
        out: GpuRef | None = None,
    ) -> GpuRef:
        """Send ``Q C``, or with `right` ``C Q``, by the factors of `qr_factor`: Q is m x m, and never made.

        `adjoint` takes the adjoint of Q.  Factors of a wide matrix are given as ``packed[..., :m]``.
        """
        made: GpuRef = self._calls.send(
            self,
            DECOMPOSITION,
            (
                packed, tau, c, None, None, None, None, out, None, None, None, None, None, None, None, "qr_multiply",
                "reduced", True, right, adjoint, True, None, "auto", False,
            ),
        )  # fmt: skip
        return made

    def svd(
        self,
        a: GpuRef,
        *,
        mode: str = "reduced",
        algorithm: str = "auto",
        check: bool = True,
        u: GpuRef | None = None,
        s: GpuRef | None = None,
        vh: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        """Send ``A = U diag(S) Vh`` of any matrix: an `SVDResult`.

        ``mode="reduced"``: min(m, n) columns of U and rows of Vh; ``"complete"``: m columns and n rows.  `algorithm` as
        in `DecompositionRequest`.  On a GPU the lane waits for ``"jacobi"``, ``"polar"`` and ``"approximate"``; the
        last has half of the digits of small singular values, and pays for many tall matrices.
        """
        return self._calls.send(
            self,
            DECOMPOSITION,
            (
                a, None, None, None, None, None, None, None, u, s, vh, None, None, None, info, "svd", mode, True,
                False, False, check, None, algorithm, False,
            ),
        )  # fmt: skip

    def svdvals(
        self,
        a: GpuRef,
        *,
        algorithm: str = "auto",
        check: bool = True,
        s: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        """Send the singular values of A, in descending order; `algorithm` as in `svd`."""
        return self._calls.send(
            self,
            DECOMPOSITION,
            (
                a, None, None, None, None, None, None, None, None, s, None, None, None, None, info, "svdvals",
                "reduced", True, False, False, check, None, algorithm, False,
            ),
        )  # fmt: skip

    def eigvalsh(
        self,
        a: GpuRef,
        *,
        lower: bool = True,
        algorithm: str = "auto",
        check: bool = True,
        subset_by_index: tuple[int, int] | None = None,
        subset_by_value: tuple[float, float] | None = None,
        w: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        """Send the eigenvalues of a Hermitian A, of which one triangle is read, in ascending order.

        `algorithm`: as in `DecompositionRequest`.  Subsets are those of `eigh`.
        """
        if subset_by_index is not None or subset_by_value is not None:
            from .ranges import check_ranges, is_partial, partial_range, within

            check_ranges(a, None, 1, subset_by_index, subset_by_value)
            if w is not None or info is not None:
                raise InvalidRequest("w and info are outputs of a plain call; omit them with subsets")
            if is_partial(a, None, algorithm):
                found = partial_range(self, a, False, lower, check, subset_by_index, subset_by_value)
            else:
                whole = self.eigvalsh(a, lower=lower, algorithm=algorithm, check=check)
                whole = whole if isinstance(whole, tuple) else (whole,)
                found = within(whole, False, subset_by_index, subset_by_value)
            return found[0] if len(found) == 1 else found
        return self._calls.send(
            self,
            DECOMPOSITION,
            (
                a, None, None, None, None, None, None, None, None, None, None, w, None, None, info, "eigvalsh",
                "reduced", lower, False, False, check, None, algorithm, False,
            ),
        )  # fmt: skip

    def eig(self, a: GpuRef, *, left: bool = False, check: bool = True, where: str | None = None) -> Any:
        """Send eigenvalues and eigenvectors of a square A, complex: an `EigResult`, or a `TwoSidedEigResult`.

        Parameters
        ----------
        a : GpuRef
        left : bool
            Whether left eigenvectors are made, too.
        check : bool
            As in `DecompositionRequest`.
        where : str, optional
            On a GPU ``"host"`` or ``"device"``; by default the host for matrices of up to 1024 rows, and for left
            eigenvectors, which cuSOLVER does not have.  On the host this waits: A is copied there, and the results are
            copied back; no lane waits.  On the device it is a message, for which its lane waits, and no other.

        Raises
        ------
        InvalidRequest
            For other shapes, dtypes and options, before anything is sent.
        """
        return self._general("eig", a, left, check, where)

    def eigvals(self, a: GpuRef, *, check: bool = True, where: str | None = None) -> Any:
        """Send the eigenvalues of a square A, complex; `where` as in `eig`."""
        return self._general("eigvals", a, False, check, where)

    def _general(self, routine: str, a: GpuRef, left: bool, check: bool, where: str | None) -> Any:
        if where is not None:
            check_choice("where", where, ("host", "device"))
        if where == "device" and left:
            raise InvalidRequest(f"{routine} with left=True does not take where='device', which has right eigenvectors")
        values = (
            a, None, None, None, None, None, None, None, None, None, None, None, None, None, None, routine, "reduced",
            True, False, False, check, None, "auto", left,
        )  # fmt: skip
        if self.device.kind == "host":
            return self._calls.send(self, DECOMPOSITION, values)
        request = DecompositionRequest(routine=routine, a=a, check=check, left=left)
        if where is None:
            where = "host" if left or a.shape[-1] <= GENERAL_ON_HOST else "device"
        if where == "device":
            return self._calls.send(self, DECOMPOSITION, values)
        from .lapack import general

        return general(self.device, request)

    def eigh(
        self,
        a: GpuRef,
        b: GpuRef | None = None,
        *,
        type: int = 1,
        lower: bool = True,
        algorithm: str = "auto",
        check: bool = True,
        subset_by_index: tuple[int, int] | None = None,
        subset_by_value: tuple[float, float] | None = None,
        w: GpuRef | None = None,
        v: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        """Send eigenvalues, in ascending order, and eigenvectors of a Hermitian A: an `EighResult`.

        Parameters
        ----------
        a : GpuRef
            Of it one triangle is read.
        b : GpuRef, optional
            Hermitian and positive definite: the problem is ``A x = w B x``, with ``type=2`` ``A B x = w x``, with
            ``type=3`` ``B A x = w x``.  Vectors are scaled by ``V^H B V = 1``, of type 3 by ``V^H B^-1 V = 1``.
            Several messages, which read all of A: B is factored by Cholesky, whose error is `NotPositiveDefinite`.
        type : int
            1, 2 or 3.
        lower : bool
            Which triangle of A and B is read.
        algorithm : str
            As in `DecompositionRequest`.
        check : bool
            As in `DecompositionRequest`; with `b`, info is n + i where the leading minor of order i of B is not
            positive, as LAPACK has it.
        subset_by_index : (int, int), optional
            The first and the last eigenvalue that are returned, counted from 0.  Of more than 512 rows, without `b`,
            the others are not computed to the end (`EigenRangeRequest`), for which the lane waits on a GPU; else the
            result is a view of all.
        subset_by_value : (float, float), optional
            Eigenvalues above the first and up to the second number, computed as those by index.  Waits for their
            number, since the shape of the result depends on it; of one matrix only.
        w, v, info : GpuRef, optional
            Outputs of a call without `b` and subsets; `info` with ``check=False``.

        Raises
        ------
        InvalidRequest
            For other shapes, dtypes and options, before anything is sent.
        """
        subset = subset_by_index is not None or subset_by_value is not None
        if b is None and not subset and type == 1:
            return self._eigh(a, lower, check, algorithm, w, v, info)
        from .ranges import check_ranges, generalised, is_partial, partial_range, within

        check_ranges(a, b, type, subset_by_index, subset_by_value)
        if w is not None or v is not None or info is not None:
            raise InvalidRequest("w, v and info are outputs of a plain call; omit them with b and with subsets")
        check_flag("check", check, bool | np.bool)
        if is_partial(a, b, algorithm):
            found = partial_range(self, a, True, lower, check, subset_by_index, subset_by_value)
        else:
            if b is None:
                whole = self._eigh(a, lower, check, algorithm)
            else:
                whole = generalised(self, a, b, type, lower, check, algorithm)
            found = within(whole, True, subset_by_index, subset_by_value)
        return EighResult(*found) if check else found

    def _eigh(
        self,
        a: GpuRef,
        lower: bool,
        check: bool,
        algorithm: str,
        w: GpuRef | None = None,
        v: GpuRef | None = None,
        info: GpuRef | None = None,
    ) -> Any:
        return self._calls.send(
            self,
            DECOMPOSITION,
            (
                a, None, None, None, None, None, None, None, None, None, None, w, v, None, info, "eigh", "reduced",
                lower, False, False, check, None, algorithm, False,
            ),
        )  # fmt: skip
