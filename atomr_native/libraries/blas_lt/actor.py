"""The matmul actor, ``device.blas_lt``: fused matrix products as messages.

Requests and their rules are `MatmulRequest` and `Epilogue`; the same module serves every kind of device.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from ..._support.checks import as_path
from ..._support.options import check_options
from ..._support.public import public
from ...plans.actor import LibraryActor
from ...plans.tuning import TuningStore, as_progress, read_file, write_file
from .epilogue import Epilogue
from .forms import FORMS, GROUP, LISTS, MATMUL, group_values, operand_values
from .grouped import GroupedRequest
from .request import (
    GroupOptions,
    GroupPlanOptions,
    MatmulOptions,
    MatmulRequest,
    MatmulResult,
    PlainEpilogue,
    ProductOptions,
    StoringEpilogue,
)
from .stand_in import stand_in
from .tuning import OLDER_FORMATS, OPERATION, TITLE, is_sound

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.lowering import Lowered
    from ...plans.plan import Plan
    from ...plans.spec import PlanSpec
    from .custom_epilogue import CustomEpilogue

__all__ = ["BlasLt"]


@public
class BlasLt(LibraryActor):
    """Fused matrix products on one device; messages to it run in order.

    Every method enqueues and returns; none waits for the device, except that the first immediate call of a structure
    waits for its plan, and that a full mailbox blocks or raises as the System was told.

    Examples
    --------
    >>> x, w = device.put(np.ones((2, 4), "float32")), device.put(np.eye(4, dtype="float32"))
    >>> device.blas_lt.matmul(x, w, alpha=2.0, epilogue="relu").numpy()
    array([[2., 2., 2., 2.],
           [2., 2., 2., 2.]], dtype=float32)
    >>> [y.shape for y in device.blas_lt.grouped([x, w], [w, w])]
    [(2, 4), (4, 4)]
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "blas_lt") -> None:
        super().__init__(device, name)

    def _specification(self, lowered: Lowered) -> PlanSpec:
        """Return the plan's specification; of another library's operation where that stands in for cuBLASLt."""
        if lowered.op == "blas_lt.matmul" and self.owner.kind != "host":
            found = stand_in(lowered, self._target)
            if found is not None:
                return found
        return super()._specification(lowered)

    @overload
    def matmul(
        self,
        a: GpuRef,
        b: GpuRef,
        *,
        epilogue: PlainEpilogue = ...,
        amax: Literal[False] = ...,
        **options: Unpack[ProductOptions],
    ) -> GpuRef: ...
    @overload
    def matmul(
        self,
        a: GpuRef,
        b: GpuRef,
        *,
        epilogue: StoringEpilogue,
        amax: bool | GpuRef = ...,
        **options: Unpack[ProductOptions],
    ) -> MatmulResult: ...
    @overload
    def matmul(
        self,
        a: GpuRef,
        b: GpuRef,
        *,
        epilogue: PlainEpilogue = ...,
        amax: Literal[True] | GpuRef,
        **options: Unpack[ProductOptions],
    ) -> MatmulResult: ...
    @overload
    def matmul(
        self,
        a: GpuRef,
        b: GpuRef,
        *,
        epilogue: Epilogue | CustomEpilogue | str = ...,
        amax: bool | GpuRef = ...,
        **options: Unpack[ProductOptions],
    ) -> Any: ...

    def matmul(
        self,
        a: GpuRef,
        b: GpuRef,
        *,
        c: GpuRef | None = None,
        out: GpuRef | None = None,
        alpha: Any = 1.0,
        beta: Any = 0.0,
        trans_a: bool = False,
        trans_b: bool = False,
        bias: GpuRef | None = None,
        epilogue: Epilogue | CustomEpilogue | str = Epilogue.DEFAULT,
        aux: GpuRef | None = None,
        bias_grad: GpuRef | None = None,
        out_dtype: object = None,
        compute_type: object = None,
        compute: str | None = None,
        fast_accum: bool = False,
        reduced_precision: bool = False,
        conj_a: bool = False,
        conj_b: bool = False,
        a_scale: GpuRef | None = None,
        b_scale: GpuRef | None = None,
        c_scale: GpuRef | None = None,
        d_scale: GpuRef | None = None,
        amax: bool | GpuRef = False,
        tune: bool | str = False,
        copies: bool = True,
        operands: Mapping[str, GpuRef] | None = None,
        route: str = "auto",
    ) -> Any:
        """Send ``D = epilogue(alpha * op(A) @ op(B) + beta * C)`` and return its output at once.

        Parameters are those of `MatmulRequest`.  Outputs that are not given are allocated.

        Returns
        -------
        GpuRef or MatmulResult
            D; with `aux` and `bias_grad` where the epilogue stores them, and `amax` where it was asked for.  They are
            their own futures.

        Raises
        ------
        InvalidRequest, Unsupported
            Before anything is enqueued.
        OutOfMemory
            If an output cannot be allocated.
        MailboxFull
            If the mailbox stays full.
        """
        values: tuple[Any, ...] = (
            a, b, c, out, bias, aux, bias_grad, a_scale, b_scale, c_scale, d_scale, trans_a, trans_b, epilogue,
            out_dtype, compute_type, compute, fast_accum, reduced_precision, conj_a, conj_b, amax, tune, copies, route,
            alpha, beta, None,
        )  # fmt: skip
        if operands is not None:
            values = (*values[:-1], *operand_values(operands))
        return self._calls.send(self, MATMUL, values)

    def plan(self, a: GpuRef, b: GpuRef, *, progress: object = None, **options: Unpack[MatmulOptions]) -> Plan:
        """Return the plan of a matmul: ``plan.tell(a, b, [c], [bias], [aux], [operands], out=, [aux=], [bias_grad=])``.

        Operands given here lend their layouts only; outputs that are not given are C-contiguous.  `alpha` and `beta`
        are defaults that each message may replace; whether `beta` is 0 is part of the plan.  Does not wait for the
        plan to be built: ``plan.notes`` and ``plan.tuning`` do.

        Parameters
        ----------
        a, b, options
            As for `MatmulRequest`.
        progress : bool or callable
            With ``tune=True``: how tuning gets on.  True draws a bar; a function is called with
            (done, total, what) in the thread that reads from the worker, and must not wait for the device.

        Raises
        ------
        InvalidRequest, Unsupported
            As for `matmul`.
        """
        check_options("a matmul", options, (*MatmulOptions.__optional_keys__, "progress"))
        watcher = None if progress is None or progress is False else as_progress(progress, f"tuning {TITLE}")
        return self._plan_of(MatmulRequest(a=a, b=b, **options), handles=True, watcher=watcher)

    def grouped(
        self,
        a: Sequence[GpuRef],
        b: Sequence[GpuRef],
        *,
        c: Sequence[GpuRef] | None = None,
        bias: Sequence[GpuRef] | None = None,
        out: Sequence[GpuRef] | None = None,
        alpha: Any = 1.0,
        beta: Any = 0.0,
        way: str = "auto",
        **options: Unpack[GroupOptions],
    ) -> list[GpuRef]:
        """Send several products of any shapes, at any addresses, as one message, and return their outputs at once.

        Parameters
        ----------
        a, b, c, bias, out : sequence of GpuRef
            Of one length; c, bias and out may be missing.
        alpha, beta : float
            Factors of all members.
        way : str
            ``"auto"``, ``"batched"``, ``"grouped"`` or ``"each"``: how a GPU computes them, see `GroupedRequest`.
        options
            What else `MatmulRequest` has, the same for all; no operands, and no outputs but D.

        Raises
        ------
        InvalidRequest, Unsupported, OutOfMemory, MailboxFull
            As for `matmul`.
        """
        lists: tuple[Any, ...] = (a, b, c, bias, out)
        for given in lists:
            if given is not None and given.__class__ is not list and not isinstance(given, list | tuple):
                named = tuple(sorted((options | {"alpha": alpha, "beta": beta}).items()))
                GroupedRequest(**dict(zip(LISTS, lists, strict=True)), way=way, options=named)  # which refuses it
        made: list[GpuRef] = self._calls.send(self, GROUP, group_values(lists, way, options, alpha, beta))
        return made

    def grouped_plan(self, a: Sequence[GpuRef], b: Sequence[GpuRef], **options: Unpack[GroupPlanOptions]) -> Plan:
        """Return the plan of a group: ``plan.tell(a0, b0, [c0], [bias0], out0, a1, ...)``; its notes say the way.

        Parameters and errors are those of `grouped`; operands given here lend their layouts only, and whether they
        start at multiples of 16 bytes.
        """
        check_options("a group's plan", options, GroupPlanOptions.__optional_keys__)
        given: dict[str, Any] = {**options}
        lists = {name: given.pop(name) for name in ("c", "bias", "out", "way") if name in given}
        request = GroupedRequest(a=a, b=b, **lists, options=tuple(sorted(given.items())))
        return self._plan_of(request, handles=True)

    def export_tuning(self, path: str | os.PathLike[str]) -> int:
        """Write what tuning has found for GPUs like this device's to the file `path`; returns how many entries.

        Entries hold for one version of cuBLASLt and one kind of GPU; all versions are written.
        """
        file = as_path(path)
        gpu = {name: self.device.facts.get(name) for name in ("name", "multiprocessors")}
        entries = [(key, value) for key, value in TuningStore().entries(OPERATION) if gpu.items() <= key.gpu.items()]
        write_file(file, entries)
        return len(entries)

    def import_tuning(self, path: str | os.PathLike[str]) -> int:
        """Take the tuning file `path` into the cache; returns how many entries were new.

        Plans made from now on with ``tune=True`` or ``tune="known"`` use them, where library and GPU are the same.

        Raises
        ------
        InvalidRequest
            If it is no tuning file, or a damaged one.
        OSError
            If it cannot be read, or the cache not be written.
        """
        store, new = TuningStore(), 0
        for key, value in read_file(as_path(path), OPERATION, is_sound, OLDER_FORMATS):
            if not is_sound(store.find(key)):
                store.keep(key, value)
                new += 1
        return new
