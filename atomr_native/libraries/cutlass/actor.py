"""The CUTLASS actor, ``device.cutlass``: products whose epilogue is an expression, a tree, or a Python function.

Requests and their rules are `GemmRequest`; the same module serves every kind of device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from ..._support.options import check_options
from ..._support.public import public
from ...errors import InvalidRequest
from ...plans.actor import LibraryActor
from ...plans.tuning import as_progress
from .bound import BoundGemm, BoundGemms
from .config import GemmConfig
from .convolution import FusedConvolutionRequest
from .epilogue import EpilogueTree
from .forms import CONVOLUTION, FORMS, GEMM, GROUPED, gemm_values
from .grouped import GroupedGemmOptions, GroupedGemmRequest
from .request import GemmOptions, GemmRequest
from .spec import is_array

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.plan import Plan

__all__ = ["Cutlass"]


@public
class Cutlass(LibraryActor):
    """Products by kernels of CUTLASS, each compiled for its types, layouts and epilogue; messages run in order.

    Every method enqueues and returns its result at once: the handle that was given, or a new one, which is its own
    future.  None waits for the device, but the first call of a structure waits for the compiler, up to half a minute
    for a new kernel, and less than a second for one that was compiled before on this machine.  Parameters and errors
    are those of `GemmRequest`.

    Examples
    --------
    >>> x, w = device.put(np.ones((2, 4), "float32")), device.put(np.eye(4, dtype="float32"))
    >>> device.cutlass.gemm(x, w, epilogue="relu(alpha * acc + bias)", alpha=2.0, operands={"bias": w[0]}).numpy()[0]
    array([3., 2., 2., 2.], dtype=float32)
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "cutlass") -> None:
        super().__init__(device, name)
        self._bound = BoundGemms()

    def gemm(
        self,
        a: GpuRef,
        b: GpuRef,
        *,
        c: GpuRef | None = None,
        out: GpuRef | None = None,
        b_scale: GpuRef | None = None,
        alpha: Any = 1.0,
        beta: Any = 0.0,
        epilogue: str | EpilogueTree | Callable[..., Any] | None = None,
        operands: Any = None,
        outputs: Any = None,
        out_dtype: object = None,
        compute: str | None = None,
        fast_accum: bool = False,
        config: GemmConfig | None = None,
        tune: bool = False,
    ) -> Any:
        """Send ``epilogue(a @ b)``, by default ``alpha * a @ b + beta * c``; see `GemmRequest`.

        Returns
        -------
        GpuRef or tuple of GpuRef
            D, or D and the `outputs` that the epilogue stores, in the order in which it does.
        """
        fields = (a, b, c, out, b_scale, epilogue, out_dtype, compute, fast_accum, config, tune, alpha, beta)
        return self._calls.send(self, GEMM, gemm_values(fields, operands, outputs))

    def grouped_gemm(
        self,
        a: GpuRef,
        b: GpuRef,
        offsets: GpuRef,
        *,
        c: GpuRef | None = None,
        out: GpuRef | None = None,
        alpha: Any = 1.0,
        beta: Any = 0.0,
        epilogue: str | EpilogueTree | Callable[..., Any] | None = None,
        operands: Any = None,
        out_dtype: object = None,
        compute: str | None = None,
        fast_accum: bool = False,
        config: GemmConfig | None = None,
        tune: bool = False,
    ) -> Any:
        """Send a product of each group of rows with a matrix of its own; see `GroupedGemmRequest`.

        Returns
        -------
        GpuRef
            D, (T, N).

        Examples
        --------
        >>> tokens, experts = device.put(np.ones((3, 4), "float32")), device.put(np.ones((2, 4, 2), "float32"))
        >>> ends = device.put(np.array([1, 3], "int32"))  # the first row, and the two others
        >>> device.cutlass.grouped_gemm(tokens, experts, ends).numpy()[2]
        array([4., 4.], dtype=float32)
        """
        fields = (a, b, offsets, c, out, epilogue, out_dtype, compute, fast_accum, config, tune, alpha, beta)
        return self._calls.send(self, GROUPED, gemm_values(fields, operands, None))

    def convolution(
        self,
        x: GpuRef,
        w: GpuRef,
        *,
        c: GpuRef | None = None,
        out: GpuRef | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        alpha: Any = 1.0,
        beta: Any = 0.0,
        epilogue: str | EpilogueTree | Callable[..., Any] | None = None,
        operands: Any = None,
        out_dtype: object = None,
        compute: str | None = None,
        config: GemmConfig | None = None,
        tune: bool = False,
    ) -> Any:
        """Send a convolution of images with filters, channels last, and an epilogue; see `FusedConvolutionRequest`.

        Returns
        -------
        GpuRef
            D, (N, P, Q, K) or (N, Z, P, Q, K).
        """
        fields = (x, w, c, out, "forward", None, stride, padding, dilation, epilogue, out_dtype, compute, config,
                  tune, alpha, beta)  # fmt: skip
        return self._calls.send(self, CONVOLUTION, gemm_values(fields, operands, None))

    def convolution_backward_data(
        self,
        dy: GpuRef,
        w: GpuRef,
        size: tuple[int, ...],
        *,
        c: GpuRef | None = None,
        out: GpuRef | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        alpha: Any = 1.0,
        beta: Any = 0.0,
        epilogue: str | EpilogueTree | Callable[..., Any] | None = None,
        operands: Any = None,
        out_dtype: object = None,
        compute: str | None = None,
        config: GemmConfig | None = None,
        tune: bool = False,
    ) -> Any:
        """Send the gradient by images of spatial extents `size`; it is also the transposed convolution.

        Returns
        -------
        GpuRef
            D, (N, H, W, C) or (N, D, H, W, C).
        """
        fields = (dy, w, c, out, "data_gradient", size, stride, padding, dilation, epilogue, out_dtype, compute, config,
                  tune, alpha, beta)  # fmt: skip
        return self._calls.send(self, CONVOLUTION, gemm_values(fields, operands, None))

    def convolution_backward_filter(
        self,
        x: GpuRef,
        dy: GpuRef,
        size: tuple[int, ...],
        *,
        c: GpuRef | None = None,
        out: GpuRef | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        alpha: Any = 1.0,
        beta: Any = 0.0,
        epilogue: str | EpilogueTree | Callable[..., Any] | None = None,
        operands: Any = None,
        out_dtype: object = None,
        compute: str | None = None,
        config: GemmConfig | None = None,
        tune: bool = False,
    ) -> Any:
        """Send the gradient by filters of spatial extents `size`; with ``c=dw, out=dw, beta=1.0`` it is added to dw.

        Returns
        -------
        GpuRef
            D, (K, R, S, C) or (K, T, R, S, C).
        """
        fields = (dy, x, c, out, "filter_gradient", size, stride, padding, dilation, epilogue, out_dtype, compute,
                  config, tune, alpha, beta)  # fmt: skip
        return self._calls.send(self, CONVOLUTION, gemm_values(fields, operands, None))

    def plan_convolution(self, request: FusedConvolutionRequest, *, progress: object = None) -> Plan:
        """Return the plan of a convolution or a gradient, as `plan` does; ``plan.tell(a, b, ..., out=)``."""
        if not isinstance(request, FusedConvolutionRequest):
            raise InvalidRequest(f"request is a {type(request).__name__}; allowed: FusedConvolutionRequest")
        return self._plan_of(request, handles=True, watcher=_watcher(progress))

    def plan(self, a: GpuRef, b: GpuRef, *, progress: object = None, **options: Unpack[GemmOptions]) -> Plan:
        """Return the plan of a product: arrays lend their layouts, numbers are defaults that each message may replace.

        Waits for the compiler, if the kernel is new; not for the plan to be built.  ``plan.tell(a, b, ..., out=)``
        takes the epilogue's arrays in the order of their first use.

        Parameters
        ----------
        a, b, options
            As for `GemmRequest`.
        progress : bool or callable
            With ``tune=True``: how measuring gets on.  True draws a bar; a function is called with (done, total, what)
            in the thread that reads from the worker, and must not wait for the device.
        """
        check_options("a product", options, (*GemmOptions.__optional_keys__, "progress"))
        return self._plan_of(GemmRequest(a=a, b=b, **options), handles=True, watcher=_watcher(progress))

    def plan_grouped(
        self, a: GpuRef, b: GpuRef, offsets: GpuRef, *, progress: object = None, **options: Unpack[GroupedGemmOptions]
    ) -> Plan:
        """Return the plan of a grouped product, as `plan` does; ``plan.tell(a, b, offsets, ..., out=)``."""
        check_options("a grouped product", options, (*GroupedGemmOptions.__optional_keys__, "progress"))
        request = GroupedGemmRequest(a=a, b=b, offsets=offsets, **options)
        return self._plan_of(request, handles=True, watcher=_watcher(progress))

    def bind(self, name: str, a: GpuRef, b: GpuRef, **options: Unpack[GemmOptions]) -> BoundGemm:
        """Return the plan of a product with b and the epilogue's arrays bound to it, for products of many `a`.

        The actor keeps it under `name`; of more than 64 it forgets the least recently used.

        Parameters
        ----------
        name : str
        a : GpuRef
            Lends its layout.
        b : GpuRef
            The weights.
        **options
            Of `plan`; not `outputs`, nor `out`.
        """
        for option in ("out", "outputs"):
            if options.get(option) is not None:
                raise InvalidRequest(f"{option} is given to bind; allowed: out= of each message")
        check_options("a product", options, GemmOptions.__optional_keys__)
        request = GemmRequest(a=a, b=b, **options)
        plan = self._plan_of(request, handles=True)
        out = next(operand for operand in request.lowered.operands if operand.name == "out")
        arrays = {"b": b, "alpha": options.get("alpha"), "beta": options.get("beta"), "c": options.get("c"),
                  "b_scale": options.get("b_scale")}  # fmt: skip
        arrays |= options.get("operands") or {}
        used = {operand.name for operand in plan.spec.operands} - {"a", "out"}
        fixed = {name: array for name, array in arrays.items() if name in used and is_array(array)}
        made = BoundGemm(plan, fixed, lambda: self._allocate(out))
        self._bound.add(name, made)
        return made

    def bound(self, name: str) -> BoundGemm:
        """Return what `bind` made under a name.

        Raises
        ------
        InvalidRequest
            For an unknown name; the message has the known ones.
        """
        return self._bound.find(name)

    def refit(self, name: str, **operands: GpuRef) -> None:
        """Bind other arrays of the same layouts to a product, by its name; see `BoundGemm.refit`.

        Raises
        ------
        InvalidRequest
            For an unknown name, an unknown operand, or an array of another layout.
        """
        self._bound.find(name).refit(**operands)


def _watcher(progress: object) -> Callable[[int, int, str], object] | None:
    """Return what shows how tuning gets on."""
    return None if progress is None or progress is False else as_progress(progress, "tuning a product by CUTLASS")
