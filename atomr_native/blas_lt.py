"""The matmul actor, ``device.blas_lt``: fused matrix products as messages.

Requests and their rules are `MatmulRequest` and `Epilogue`; the same module serves every kind of device.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ._custom_epilogue import CustomEpilogue, custom_attributes, custom_part, given_operands
from ._grouped_spec import GroupedRequest, grouped_requests, grouped_spec
from ._matmul_spec import (
    Epilogue,
    Fresh,
    MatmulRequest,
    MatmulShape,
    base_epilogue,
    check_matmul_memory,
    is_array,
    matmul_shape,
    matmul_spec,
    scalar_names,
    scalar_values,
)
from ._operands import check_handle, overlaps
from ._signature import signature_of
from .dtypes import dtype_name
from .gpu_ref import layout_of
from .library_actor import LibraryActor
from .tuning import TuningStore, as_progress, read_file, write_file

if TYPE_CHECKING:
    from ._lib.sender import Layout
    from .gpu_ref import GpuRef
    from .plan import Plan
    from .plan_spec import PlanSpec
    from .reply import Reply

__all__ = [
    "BlasLt",
    "CustomEpilogue",
    "Epilogue",
    "GroupedRequest",
    "MatmulRequest",
    "MatmulResult",
    "MatmulShape",
    "matmul_shape",
    "matmul_spec",
]

#: Immediate calls remembered by an actor; a program has a few dozen.
_CALLS = 4096
#: Operands of a call besides those that `matmul` names, in message order.
_EXTRA = ("a_scale", "b_scale", "c_scale", "d_scale", "alpha", "beta")


class MatmulResult(NamedTuple):
    """Outputs of a matmul that has more than D.

    Attributes
    ----------
    out : GpuRef
        D.
    aux : GpuRef or None
        What the forward epilogue stored for the backward pass.
    bias_grad : GpuRef or None
        The bias gradient.
    amax : GpuRef or None
        The largest magnitude of D before its scale.
    """

    out: GpuRef
    aux: GpuRef | None = None
    bias_grad: GpuRef | None = None
    amax: GpuRef | None = None


class _Call(NamedTuple):
    """What an immediate call needs once its structure is known."""

    plan: Plan
    shape: MatmulShape
    names: tuple[str, ...]
    real: bool
    reads_c: bool
    reads_aux: bool
    outputs_given: bool
    epilogue: Epilogue
    out: Fresh
    aux: Fresh | None
    bias_grad: Fresh | None
    amax: Fresh | None


class _Given(NamedTuple):
    """Operands of a call, as `check_matmul_memory` reads them."""

    a: Any
    b: Any
    c: Any
    out: Any
    bias: Any
    aux: Any
    bias_grad: Any
    beta: Any
    alpha: Any = None
    a_scale: Any = None
    b_scale: Any = None
    c_scale: Any = None
    d_scale: Any = None
    amax: Any = None
    operands: Any = None


def _check_handles(request: MatmulRequest) -> None:
    for name in ("a", "b", "c", "out", "bias", "aux", "bias_grad"):
        check_handle(name, getattr(request, name))
    for name in (*_EXTRA, "amax"):
        if is_array(getattr(request, name)):
            check_handle(name, getattr(request, name))
    for name, operand in given_operands(request).items():
        check_handle(name, operand)


def _frozen(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return what of the options belongs to a structure."""
    return tuple(
        (name, _frozen(value) if isinstance(value, dict) else getattr(value, "layout", value))
        for name, value in sorted(options.items())
    )


class BlasLt(LibraryActor):
    """Fused matrix products on one device; messages to it run in order.

    Every method enqueues and returns; none waits for the device, except that the first immediate call of a structure
    waits for its plan, and that a full mailbox blocks or raises as the System was told.
    """

    def __init__(self, device: Any, name: str = "blas_lt") -> None:
        super().__init__(device, name)
        # By structure: the call; and its plan and the layout of D, where that is all that a call is to allocate.
        self._calls: dict[Any, tuple[_Call, Plan, Layout | None]] = {}

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
        epilogue: Epilogue | CustomEpilogue | str = "default",
        aux: GpuRef | None = None,
        bias_grad: GpuRef | None = None,
        out_dtype: object = None,
        compute_type: object = None,
        **options: Any,
    ) -> GpuRef | MatmulResult:
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
        if (
            options
            or (alpha.__class__ is not float and is_array(alpha))
            or (beta.__class__ is not float and is_array(beta))
        ):
            given = {
                "a": a, "b": b, "c": c, "out": out, "alpha": alpha, "beta": beta, "trans_a": trans_a,
                "trans_b": trans_b, "bias": bias, "epilogue": epilogue, "aux": aux, "bias_grad": bias_grad,
                "out_dtype": out_dtype, "compute_type": compute_type,
            }  # fmt: skip
            return self._with_options(given | options)
        key: Any
        try:
            key = (
                a.layout, b.layout, bias if bias is None else bias.layout, epilogue, trans_a, trans_b, beta != 0,
                out_dtype, compute_type,
            )  # fmt: skip
            if c is not None or out is not None or aux is not None or bias_grad is not None:
                key += (
                    c if c is None else c.layout, out if out is None else out.layout,
                    aux if aux is None else aux.layout, bias_grad if bias_grad is None else bias_grad.layout,
                    c is out,
                )  # fmt: skip
            known = self._calls.get(key)
        except (AttributeError, TypeError):  # an operand is no GpuRef, or a dtype no dtype: the request says which
            key = known = None
        if known is not None:
            call, plan, layout = known
            if layout is not None:  # the shortest way
                made = self._allocate(layout)
                self._send(plan, (a, b, made) if bias is None else (a, b, bias, made), (alpha, beta), False)
                return made
            if call.outputs_given and overlaps([x for x in (a, b, c, out, bias, aux, bias_grad) if x is not None]):
                check_matmul_memory(_Given(a, b, c, out, bias, aux, bias_grad, beta), call.epilogue)
        else:
            call = self._prepare(
                key,
                MatmulRequest(
                    a=a, b=b, c=c, out=out, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b, bias=bias,
                    epilogue=epilogue, aux=aux, bias_grad=bias_grad, out_dtype=out_dtype, compute_type=compute_type,
                ),
            )  # fmt: skip
        refs, result = self._operands(call, a, b, c, out, bias, aux, bias_grad)
        self._send(
            call.plan, refs, (alpha, beta) if call.real else scalar_values(call.shape, alpha, beta), False
        )  # fmt: skip
        return result

    def _with_options(self, given: dict[str, Any]) -> GpuRef | MatmulResult:
        """Send a matmul whose options are not among those that `matmul` names itself."""
        try:
            scalars = {
                name: value if is_array(value) else bool(value)
                for name, value in (("alpha", given["alpha"]), ("beta", given["beta"]))
            }
            key: Any = _frozen(given | scalars | {"in_place": given["c"] is given["out"]})
            known = self._calls.get(key)
        except (TypeError, ValueError):  # something odd: the request says what
            key = known = None
        call = self._prepare(key, MatmulRequest(**given)) if known is None else known[0]
        if known is not None and call.outputs_given:
            memory = [given.get(name) for name in _Given._fields]
            if overlaps([x for x in (*memory, *(given.get("operands") or {}).values()) if is_array(x)]):
                check_matmul_memory(_Given(*memory), call.epilogue)
        refs, result = self._named(call, given | (given.get("operands") or {}))
        self._send(call.plan, refs, scalar_values(call.shape, given["alpha"], given["beta"]), False)
        return result

    def plan(self, a: GpuRef, b: GpuRef, *, progress: object = None, **options: Any) -> Plan:
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
        request = MatmulRequest(a=a, b=b, **options)
        shape = matmul_shape(request)
        _check_handles(request)
        spec = self._spec(request, shape)
        if progress:
            self.device._plans.watchers[spec] = as_progress(progress)
        return self._plan(
            spec, signature_of(spec, scalar_names(shape), scalar_values(shape, request.alpha, request.beta))
        )

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
        **options: Any,
    ) -> list[GpuRef]:
        """Send several products of any shapes, at any addresses, as one message, and return their outputs at once.

        Parameters are those of `GroupedRequest`.

        Raises
        ------
        InvalidRequest, Unsupported, OutOfMemory, MailboxFull
            As for `matmul`.
        """
        options |= {"alpha": alpha, "beta": beta}
        request = GroupedRequest(a=a, b=b, c=c, bias=bias, out=out, way=way, options=tuple(sorted(options.items())))
        plan, members, spec = self._group(request)
        first = members[0][1]
        refs: list[Any] = []
        outputs: list[GpuRef] = []
        for (one, shape), (places, _) in zip(members, dict(spec.attributes)["members"], strict=True):
            outputs.append(one.out if one.out is not None else self._empty(*shape.out))
            refs += [outputs[-1] if name == "out" else getattr(one, name) for name, _ in places]
        self._send(plan, tuple(refs), scalar_values(first, alpha, beta), False)
        return outputs

    def grouped_plan(self, a: Sequence[GpuRef], b: Sequence[GpuRef], **options: Any) -> Plan:
        """Return the plan of a group: ``plan.tell(a0, b0, [c0], [bias0], out0, a1, ...)``; its notes say the way.

        Parameters and errors are those of `grouped`; operands given here lend their layouts only, and whether they
        start at multiples of 16 bytes.
        """
        own = ("c", "bias", "out", "way")
        lists = {name: options.pop(name) for name in own if name in options}
        return self._group(GroupedRequest(a=a, b=b, **lists, options=tuple(sorted(options.items()))))[0]

    def _group(self, request: GroupedRequest) -> tuple[Plan, list[tuple[MatmulRequest, MatmulShape]], PlanSpec]:
        members = grouped_requests(request)
        for one, _ in members:
            _check_handles(one)
        spec, first = grouped_spec(members, request.way), members[0][1]
        defaults = scalar_values(first, 1.0, 0.0)
        return self._plan(spec, signature_of(spec, scalar_names(first), defaults)), members, spec

    def export_tuning(self, path: str | os.PathLike[str]) -> int:
        """Write what tuning has found for GPUs like this device's to a file, to be shipped; returns how many entries.

        Entries hold for one version of cuBLASLt and one kind of GPU; all versions are written.
        """
        gpu = {name: self.device.facts.get(name) for name in ("name", "multiprocessors")}
        entries = [e for e in TuningStore().entries() if gpu.items() <= e["gpu"].items()]
        write_file(Path(path), entries)
        return len(entries)

    def import_tuning(self, path: str | os.PathLike[str]) -> int:
        """Take a tuning file into the cache; returns how many entries were new.

        Plans made from now on with ``tune=True`` or ``tune="known"`` use them, where library and GPU are the same.

        Raises
        ------
        InvalidRequest
            If it is no tuning file, or a damaged one.
        OSError
            If it cannot be read, or the cache not be written.
        """
        store, new = TuningStore(), 0
        for entry in read_file(Path(path)):
            if store.find(entry["library"], entry["gpu"], entry["description"]) is None:
                store.keep(entry)
                new += 1
        return new

    def tell(self, request: MatmulRequest) -> GpuRef | MatmulResult:
        """Send a request and return its outputs at once, as `matmul` does."""
        return cast("GpuRef | MatmulResult", self._request(request, False))

    def ask(self, request: MatmulRequest) -> Reply:
        """Send a request and return its reply, whose value is what `tell` returns."""
        return cast("Reply", self._request(request, True))

    def _request(self, request: MatmulRequest, reply: bool) -> Any:
        _check_handles(request)
        shape = matmul_shape(request)
        call = self._call(request, shape, self._spec(request, shape))
        given = given_operands(request)
        refs, result = self._named(call, {n: given[n] if n in given else getattr(request, n) for n in call.names})
        answer = self._send(call.plan, refs, scalar_values(shape, request.alpha, request.beta), reply, result)
        return answer if reply else result

    def _prepare(self, key: Any, request: MatmulRequest) -> _Call:
        """Check a call whose structure is new, make its plan, and remember both."""
        _check_handles(request)
        shape = matmul_shape(request)
        call = self._call(request, shape, self._spec(request, shape))
        if len(self._calls) >= _CALLS:
            self._calls.clear()
        if key is not None:
            given = (request.c, request.out, request.aux, request.bias_grad, request.amax)
            more = call.aux or call.bias_grad or call.amax or any(is_array(x) for x in given)
            plain = not more and shape.scale.kind == "f"
            self._calls[key] = call, call.plan, layout_of(*call.out) if plain else None
        return call

    def _spec(self, request: MatmulRequest, shape: MatmulShape) -> PlanSpec:
        """Return the plan specification; compiles a custom epilogue, if the device is a GPU."""
        spec, epilogue = matmul_spec(request, shape), request.epilogue
        if not isinstance(epilogue, CustomEpilogue):
            return spec
        from . import _kernel_code, kernels

        limit = self.device.system.config.workspace_limit
        spec = replace(
            spec, attributes=spec.attributes + custom_attributes(epilogue, spec, dtype_name(shape.scale), limit)
        )
        function = _kernel_code.pickled(epilogue.function)
        if self.device.name == "host":
            return replace(spec, attributes=(*spec.attributes, ("function", function)))
        part = custom_part(epilogue, spec, function)
        made = kernels.machine_code("epilogue", (part,), self.device._compute_capability())
        return replace(spec, attributes=(*spec.attributes, ("entries", made.entries), ("code", made.code)))

    def _call(self, request: MatmulRequest, shape: MatmulShape, spec: PlanSpec) -> _Call:
        epilogue = base_epilogue(request.epilogue)
        names = tuple(operand.name for operand in spec.operands)
        aux = None if epilogue.reads_aux else shape.aux
        defaults = scalar_values(shape, 1.0, 0.0)
        return _Call(
            plan=self._plan(spec, signature_of(spec, scalar_names(shape), defaults)),
            shape=shape,
            names=names,
            real=shape.scale.kind != "c",
            reads_c="c" in names,
            reads_aux=epilogue.reads_aux,
            outputs_given=is_array(request.amax)
            or any(
                x is not None for x in (request.out, request.bias_grad, None if epilogue.reads_aux else request.aux)
            ),
            epilogue=epilogue,
            out=shape.out,
            aux=aux,
            bias_grad=shape.bias_grad,
            amax=shape.amax,
        )

    def _operands(
        self, call: _Call, a: Any, b: Any, c: Any, out: Any, bias: Any, aux: Any, bias_grad: Any
    ) -> tuple[tuple[GpuRef, ...], GpuRef | MatmulResult]:
        """Return the operands in message order, and the result; allocates outputs that are missing."""
        refs: tuple[Any, ...] = (a, b, c) if call.reads_c else (a, b)
        if bias is not None:
            refs += (bias,)
        if call.reads_aux:
            refs += (aux,)
        if out is None:
            out = self._empty(*call.out)
        if call.aux is None and call.bias_grad is None:
            return (*refs, out), out
        refs += (out,)
        if call.aux is not None:
            aux = self._empty(*call.aux) if aux is None else aux
            refs += (aux,)
        if call.bias_grad is not None:
            bias_grad = self._empty(*call.bias_grad) if bias_grad is None else bias_grad
            refs += (bias_grad,)
        return refs, MatmulResult(out, aux if call.aux is not None else None, bias_grad)

    def _named(self, call: _Call, given: dict[str, Any]) -> tuple[tuple[GpuRef, ...], GpuRef | MatmulResult]:
        """As `_operands`, for operands by name."""
        fresh = {"out": call.out, "aux": call.aux, "bias_grad": call.bias_grad, "amax": call.amax}
        refs: dict[str, Any] = {}
        for name in call.names:
            value = given.get(name)
            structure = fresh.get(name)
            refs[name] = value if is_array(value) or structure is None else self._empty(*structure)
        result = refs["out"]
        if call.aux is not None or call.bias_grad is not None or call.amax is not None:
            aux = refs["aux"] if call.aux is not None else None
            result = MatmulResult(result, aux, refs.get("bias_grad"), refs.get("amax"))
        return tuple(refs.values()), result
