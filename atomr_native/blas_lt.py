"""The matmul actor, ``device.blas_lt``: fused matrix products as messages.

Requests and their rules are `MatmulRequest` and `Epilogue`; the same module serves every kind of device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Unpack, cast, overload

from ._checks import as_path, check_options
from ._custom_epilogue import CustomEpilogue, custom_attributes, custom_part, given_operands
from ._grouped_spec import ALIGNMENT, GroupedRequest, grouped_requests, grouped_spec
from ._lib.sender import are_aligned
from ._matmul_spec import (
    Epilogue,
    MatmulRequest,
    MatmulShape,
    base_epilogue,
    is_array,
    matmul_shape,
    matmul_spec,
    scalar_names,
    scalar_values,
)
from ._messages import Form, Message, new
from ._operands import check_handle
from ._options import (
    GroupOptions,
    GroupPlanOptions,
    MatmulOptions,
    PlainEpilogue,
    ProductOptions,
    StoringEpilogue,
)
from ._signature import signature_of
from .dtypes import dtype_name
from .library_actor import LibraryActor
from .tuning import TuningStore, as_progress, read_file, write_file

if TYPE_CHECKING:
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

#: Operands of a request, besides those of a `CustomEpilogue` and factors in device memory.
_ARRAYS: Final = (
    "a", "b", "c", "out", "bias", "aux", "bias_grad", "a_scale", "b_scale", "c_scale", "d_scale",
)  # fmt: skip
_OPTIONS: Final = (
    "trans_a", "trans_b", "epilogue", "out_dtype", "compute_type", "compute", "fast_accum", "conj_a", "conj_b", "amax",
    "tune", "copies",
)  # fmt: skip
_FACTORS: Final = ("alpha", "beta")
_FIELDS: Final = (*_ARRAYS, *_OPTIONS, *_FACTORS)


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


def _made(values: tuple[Any, ...]) -> MatmulRequest:
    """Return the request of a call: its fields, the names of a custom epilogue's operands, and these operands."""
    given, operands = values[len(_FIELDS)], values[len(_FIELDS) + 1 :]
    if isinstance(given, _Names):
        given = dict(zip(given.names, operands, strict=True))
    return MatmulRequest(**dict(zip(_FIELDS, values, strict=False)), operands=given)


def _taken(r: MatmulRequest) -> tuple[Any, ...]:
    return (*_fields_of(r), *_split(r.operands))


class _Names(NamedTuple):
    names: tuple[str, ...]


@lru_cache(maxsize=1024, typed=True)
def _names(*names: str) -> _Names:
    return _Names(names)


def _split(operands: Any) -> tuple[Any, ...]:
    """Return the names of operands, and the operands; what is no mapping as it is, for the request to refuse."""
    if operands.__class__ is dict or isinstance(operands, Mapping):
        return (_names(*operands), *operands.values())
    return (operands,)


_fields_of: Final = attrgetter(*_FIELDS)
_MATMUL: Final = Form(
    _made,
    _taken,
    (*_FIELDS, "operands"),
    b"a" * len(_ARRAYS) + b"o" * len(_OPTIONS) + b"n" * len(_FACTORS) + b"o",
    (*({f.name: f.default for f in fields(MatmulRequest)}[name] for name in _FIELDS), None),
    b"a",
)


def _made_group(values: tuple[Any, ...]) -> GroupedRequest:
    """Return the request of a group: which lists there are and how long they are, options, factors, the arrays."""
    lists, names, options, _, alpha, beta, *arrays = values
    found: dict[str, Any] = {"a": None, "b": None}
    start = 0
    for name, count in zip(_LISTS, lists, strict=True):
        if count is not None:
            found[name] = arrays[start : start + count]
            start += count
    given = dict(zip(names, options, strict=True)) | {"alpha": alpha, "beta": beta}
    return GroupedRequest(**found, way=given.pop("way"), options=tuple(sorted(given.items())))


def _taken_group(r: GroupedRequest) -> tuple[Any, ...]:
    given = dict(r.options)
    alpha, beta = given.pop("alpha", 1.0), given.pop("beta", 0.0)
    return _group((r.a, r.b, r.c, r.bias, r.out), r.way, given, alpha, beta)


def _group(lists: tuple[Any, ...], way: str, options: Mapping[str, Any], alpha: Any, beta: Any) -> tuple[Any, ...]:
    counts: list[int | None] = []
    arrays: list[Any] = []
    for given in lists:
        if given is None:
            counts.append(None)
        else:
            counts.append(len(given))
            arrays += given
    aligned = are_aligned(arrays, ALIGNMENT)
    return (tuple(counts), ("way", *options), (way, *options.values()), aligned, alpha, beta, *arrays)


_LISTS: Final = ("a", "b", "c", "bias", "out")
_GROUP: Final = Form(
    _made_group, _taken_group, ("lists", "names", "options", "aligned", "alpha", "beta"), b"oooonn", (None,) * 6, b"a"
)


def _scalars(shape: MatmulShape) -> tuple[tuple[str, ...], Callable[..., tuple[float, ...]] | None]:
    """Return which numbers travel in a message, and how they become its scalars."""
    if shape.on_device:
        return (), None
    return _FACTORS, _parts if shape.scale.kind == "c" else None


def _check_handles(request: MatmulRequest) -> None:
    for name in ("a", "b", "c", "out", "bias", "aux", "bias_grad"):
        check_handle(name, getattr(request, name))
    for name in ("a_scale", "b_scale", "c_scale", "d_scale", "alpha", "beta", "amax"):
        if is_array(getattr(request, name)):
            check_handle(name, getattr(request, name))
    for name, operand in given_operands(request).items():
        check_handle(name, operand)


def _parts(alpha: complex, beta: complex) -> tuple[float, ...]:
    """Return the scalars of a complex message."""
    first, second = complex(alpha), complex(beta)
    return first.real, second.real, first.imag, second.imag


class BlasLt(LibraryActor):
    """Fused matrix products on one device; messages to it run in order.

    Every method enqueues and returns; none waits for the device, except that the first immediate call of a structure
    waits for its plan, and that a full mailbox blocks or raises as the System was told.
    """

    _forms = {MatmulRequest: _MATMUL, GroupedRequest: _GROUP}  # noqa: RUF012 - of the base class

    def __init__(self, device: Any, name: str = "blas_lt") -> None:
        super().__init__(device, name)

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
        conj_a: bool = False,
        conj_b: bool = False,
        a_scale: GpuRef | None = None,
        b_scale: GpuRef | None = None,
        c_scale: GpuRef | None = None,
        d_scale: GpuRef | None = None,
        amax: bool | GpuRef = False,
        tune: bool | str = False,
        copies: bool = False,
        operands: Mapping[str, GpuRef] | None = None,
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
            out_dtype, compute_type, compute, fast_accum, conj_a, conj_b, amax, tune, copies, alpha, beta, None,
        )  # fmt: skip
        if operands is not None:
            values = (*values[:-1], *_split(operands))
        return self._calls.send(self, _MATMUL, values)

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
        request = MatmulRequest(a=a, b=b, **options)
        shape = matmul_shape(request)
        _check_handles(request)
        spec = self._spec(request, shape)
        if progress is not None and progress is not False:
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
                GroupedRequest(**dict(zip(_LISTS, lists, strict=True)), way=way, options=named)  # which refuses it
        made: list[GpuRef] = self._calls.send(self, _GROUP, _group(lists, way, options, alpha, beta))
        return made

    def grouped_plan(self, a: Sequence[GpuRef], b: Sequence[GpuRef], **options: Unpack[GroupPlanOptions]) -> Plan:
        """Return the plan of a group: ``plan.tell(a0, b0, [c0], [bias0], out0, a1, ...)``; its notes say the way.

        Parameters and errors are those of `grouped`; operands given here lend their layouts only, and whether they
        start at multiples of 16 bytes.
        """
        check_options("a group's plan", options, GroupPlanOptions.__optional_keys__)
        given: dict[str, Any] = {**options}
        lists = {name: given.pop(name) for name in ("c", "bias", "out", "way") if name in given}
        return self._group_of(GroupedRequest(a=a, b=b, **lists, options=tuple(sorted(given.items()))))[0]

    def export_tuning(self, path: str | os.PathLike[str]) -> int:
        """Write what tuning has found for GPUs like this device's to the file `path`; returns how many entries.

        Entries hold for one version of cuBLASLt and one kind of GPU; all versions are written.
        """
        file = as_path(path)
        gpu = {name: self.device.facts.get(name) for name in ("name", "multiprocessors")}
        entries = [e for e in TuningStore().entries() if gpu.items() <= e["gpu"].items()]
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
        for entry in read_file(as_path(path)):
            if store.find(entry["library"], entry["gpu"], entry["description"]) is None:
                store.keep(entry)
                new += 1
        return new

    @overload
    def tell(self, request: MatmulRequest) -> Any: ...
    @overload
    def tell(self, request: GroupedRequest) -> list[GpuRef]: ...

    def tell(self, request: MatmulRequest | GroupedRequest) -> Any:
        """Send a request and return its outputs at once, as `matmul` and `grouped` do."""
        return self._request(request, False)

    def ask(self, request: MatmulRequest | GroupedRequest) -> Reply:
        """Send a request and return its reply, whose value is what `tell` returns."""
        return cast("Reply", self._request(request, True))

    def _message(self, request: MatmulRequest | GroupedRequest) -> Message:
        if isinstance(request, GroupedRequest):
            return self._grouped(request)
        _check_handles(request)
        shape = matmul_shape(request)
        spec = self._spec(request, shape)
        given = given_operands(request)
        fresh = {"out": shape.out, "aux": shape.aux, "bias_grad": shape.bias_grad, "amax": shape.amax}
        operands: dict[str, Any] = {}
        for operand in spec.operands:
            name = operand.name
            value = given[name] if name in given else getattr(request, name)
            structure = fresh.get(name)
            operands[name] = value if is_array(value) or structure is None else new(*structure)
        result = operands["out"]
        stored = None if base_epilogue(request.epilogue).reads_aux else operands.get("aux")
        more = (stored, operands.get("bias_grad"), operands.get("amax"))
        if any(one is not None for one in more):
            result = MatmulResult(result, *more)
        plan = self._plan(spec, signature_of(spec, scalar_names(shape), scalar_values(shape, 1.0, 0.0)))
        return Message(plan, tuple(operands.values()), result, *_scalars(shape))

    def _grouped(self, request: GroupedRequest) -> Message:
        plan, members, spec = self._group_of(request)
        operands: list[Any] = []
        outputs: list[Any] = []
        for (one, shape), (places, _) in zip(members, dict(spec.attributes)["members"], strict=True):
            outputs.append(one.out if one.out is not None else new(*shape.out))
            operands += [outputs[-1] if name == "out" else getattr(one, name) for name, _ in places]
        return Message(plan, tuple(operands), outputs, *_scalars(members[0][1]))

    def _group_of(self, request: GroupedRequest) -> tuple[Plan, list[tuple[MatmulRequest, MatmulShape]], PlanSpec]:
        members = grouped_requests(request)
        for one, _ in members:
            _check_handles(one)
        spec, first = grouped_spec(members, request.way), members[0][1]
        defaults = scalar_values(first, 1.0, 0.0)
        return self._plan(spec, signature_of(spec, scalar_names(first), defaults)), members, spec

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
