"""Methods of the sparse actor for matrices with two numbers in each four."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...._support.checks import check_choice, check_flag
from ....errors import InvalidRequest
from ..conversions import Conversions
from .matrix import StructuredMatrix
from .patterns import GROUP
from .request import BROKEN, COMPRESS, LINEAR, PRUNE
from .routes import ROUTES, StructuredRoute, choose
from .spec import METHODS

if TYPE_CHECKING:
    from ....arrays.gpu_ref import GpuRef

__all__ = ["Structures"]


class Structures(Conversions):
    """Methods of the sparse actor for structured matrices."""

    def prune_24(self, x: GpuRef, *, method: str = "strip", out: GpuRef | None = None) -> GpuRef:
        """Send a matrix with two numbers in each four of a row, and zeros elsewhere.  Enqueues.

        See `StructuredPruneRequest`.
        """
        made: GpuRef = self._calls.send(self, PRUNE, (x, out, method))
        return made

    def check_24(self, x: GpuRef) -> None:
        """Look on the device for fours with more than two numbers that differ from 0, and wait for the result.

        Raises
        ------
        InvalidRequest
            Where a four of neighbours in a row has more: names the first.
        """
        broken = self._calls.send(self, BROKEN, (x, None))
        xp = self._xp
        if broken.size and bool(xp.any(broken)):
            row, group = divmod(int(xp.argmax(broken.reshape(broken.size))), broken.shape[1])
            first = GROUP * group
            raise InvalidRequest(
                f"x[{row}, {first}:{first + GROUP}] has more than two numbers that differ from 0; allowed: two; "
                f"device.sparse.prune_24 keeps two"
            )

    def compress_24(self, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send the compressed memory of a matrix that has two numbers in each four of a row.  Enqueues.

        See `StructuredCompressRequest`; `structured` makes a `StructuredMatrix` of it.
        """
        made: GpuRef = self._calls.send(self, COMPRESS, (x, out))
        return made

    def structured(
        self, x: GpuRef, *, prune: str | None = None, dense: bool = True, check: bool = True
    ) -> StructuredMatrix:
        """Return a matrix for sparse tensor cores.

        Waits for a check of x, where it is neither pruned here nor trusted; else it enqueues.

        Parameters
        ----------
        x : GpuRef
            The matrix; see `StructuredCompressRequest`.
        prune : str, optional
            ``"strip"`` or ``"tile"``: x is pruned first, see `StructuredPruneRequest`; else it has two numbers in each
            four.
        dense : bool
            Whether the dense matrix is kept, so that products may take either; without it the matrix
            takes 5/8 of its memory, of 8-bit dtypes 3/4.
        check : bool
            Whether x is checked where it is not pruned.

        Raises
        ------
        InvalidRequest
            For other dtypes and shapes, and for more than two numbers in a four.

        Examples
        --------
        >>> w = device.put(np.arange(32 * 32, dtype="float16").reshape(32, 32) / 1024)
        >>> device.sparse.structured(w, prune="tile", dense=False)
        <StructuredMatrix (32, 32) float16, compressed only>
        """
        check_flag("dense", dense)
        check_flag("check", check)
        if prune is not None:
            check_choice("prune", prune, METHODS)
            x = self.prune_24(x, method=prune)
        elif check:
            self.check_24(x)
        compressed = self.compress_24(x)
        return StructuredMatrix((int(x.shape[0]), int(x.shape[1])), x.dtype, compressed, x if dense else None)

    def linear_24(
        self,
        x: GpuRef,
        a: StructuredMatrix,
        *,
        bias: GpuRef | None = None,
        activation: str = "none",
        alpha: float = 1.0,
        beta: float = 0.0,
        row_alpha: GpuRef | None = None,
        row_beta: GpuRef | None = None,
        scale_a: GpuRef | None = None,
        scale_x: GpuRef | None = None,
        out: GpuRef | None = None,
        out_dtype: Any = None,
        tune: bool | str = False,
        route: str = "auto",
    ) -> GpuRef:
        """Send ``act(alpha x A.T + beta out + bias)`` with a structured matrix A.  Enqueues.

        Parameters
        ----------
        x, bias, activation, alpha, beta, row_alpha, row_beta, scale_a, scale_x, out, out_dtype, tune
            As `StructuredProductRequest` has them.
        a : StructuredMatrix
        route : str
            ``"auto"``: by sparse tensor cores, or, where A has kept its dense matrix and extents are small, by
            `BlasLt.matmul`; `route_24` says which, and why.  ``"structured"`` and ``"dense"`` decide.

        Raises
        ------
        InvalidRequest, Unsupported, LibraryError, OutOfMemory, MailboxFull

        Examples
        --------
        >>> w = device.sparse.structured(device.put(np.eye(32, dtype="float16")), prune="strip")
        >>> x = device.put(np.full((8, 32), -1, "float16"))
        >>> device.sparse.linear_24(x, w, activation="relu", route="structured").numpy().max()
        np.float16(0.0)
        """
        options = {
            "bias": bias, "activation": activation, "row_alpha": row_alpha, "row_beta": row_beta, "scale_a": scale_a,
            "scale_x": scale_x, "out": out, "out_dtype": out_dtype,
        }  # fmt: skip
        found = self._route_24(a, x, route, options)
        if found.name == "dense":
            return self._dense_24(x, a, options, alpha, beta, tune)
        made: GpuRef = self._calls.send(
            self,
            LINEAR,
            (
                a.compressed, x, bias, row_alpha, row_beta, scale_a, scale_x, out, a.shape, a.dtype, out_dtype,
                activation, tune, alpha, beta,
            ),
        )  # fmt: skip
        return made

    def route_24(
        self,
        a: StructuredMatrix,
        x: GpuRef,
        *,
        bias: GpuRef | None = None,
        activation: str = "none",
        row_alpha: GpuRef | None = None,
        row_beta: GpuRef | None = None,
        scale_a: GpuRef | None = None,
        scale_x: GpuRef | None = None,
        out: GpuRef | None = None,
        out_dtype: Any = None,
        route: str = "auto",
    ) -> StructuredRoute:
        """Return how `linear_24` computes a product with these options.  Sends nothing."""
        options = {
            "bias": bias, "activation": activation, "row_alpha": row_alpha, "row_beta": row_beta, "scale_a": scale_a,
            "scale_x": scale_x, "out": out, "out_dtype": out_dtype,
        }  # fmt: skip
        return self._route_24(a, x, route, options)

    def _route_24(self, a: StructuredMatrix, x: GpuRef, route: str, options: dict[str, Any]) -> StructuredRoute:
        check_choice("route", route, ROUTES)
        if not isinstance(a, StructuredMatrix):
            raise InvalidRequest(f"a={a!r}; allowed: a StructuredMatrix, which device.sparse.structured makes")
        if route == "dense" and a.dense is None:
            raise InvalidRequest("route='dense' of a matrix that is compressed only; allowed: 'auto', 'structured'")
        return choose(a, x, route, options)

    def _dense_24(
        self, x: GpuRef, a: StructuredMatrix, options: dict[str, Any], alpha: float, beta: float, tune: bool | str
    ) -> GpuRef:
        for name in ("row_alpha", "row_beta"):
            if options[name] is not None:
                raise InvalidRequest(f"{name} with route='dense'; allowed: None, or route='structured'")
        bias, activation, out = options["bias"], options["activation"], options["out"]
        words = [] if activation == "none" else [activation]
        words += ["bias"] if bias is not None else []
        given = {
            "bias": bias, "a_scale": options["scale_x"], "b_scale": options["scale_a"], "out": out,
            "out_dtype": options["out_dtype"], "c": out if beta else None,
        }  # fmt: skip
        if a.dtype.itemsize == 1 and given["out_dtype"] is None and out is None:
            given["out_dtype"] = "int32" if a.dtype.kind == "i" else "bfloat16"
        made: GpuRef = self.device.blas_lt.matmul(
            x, a.dense, trans_b=True, epilogue="_".join(words) or "default", alpha=alpha, beta=beta, tune=tune,
            **{name: value for name, value in given.items() if value is not None},
        )  # fmt: skip
        return made
