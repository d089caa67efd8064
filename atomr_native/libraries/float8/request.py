"""Requests of the float8 actor, their results, and the keyword options of its methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from ..._support.checks import as_integer, check_choice
from ..._support.options import check_options
from ..._support.public import public
from ...arrays.operands import Fresh, check_disjoint, check_input, check_output, is_contiguous
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, ShippedKernels, read, written
from ...plans.spec import OVERWRITE, READ, WRITE, OperandSpec, describe
from .attributes import DequantizeAttributes, QuantizeAttributes
from .spec import (
    WIDE,
    FreshPart,
    Quantization,
    as_float8,
    check_out,
    check_quantize,
    dequantize_kernels,
    quantize_kernels,
    quantize_outputs,
    scale_blocks,
)

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = [
    "DelayedScaling",
    "DequantizeRequest",
    "QuantizeOptions",
    "QuantizeRequest",
    "QuantizeResult",
    "quantize_request",
]

_MARGIN: Final = 60


class QuantizeOptions(TypedDict, total=False):
    """Of `Float8.plan` and `Float8.outputs`."""

    scaling: str
    scale: GpuRef | None
    state: DelayedScaling | None
    saturate: bool
    transposed: bool
    out: GpuRef | None
    scale_out: GpuRef | None
    transposed_out: GpuRef | None
    transposed_scale_out: GpuRef | None


@public
class QuantizeResult(NamedTuple):
    """Outputs of `Float8.quantize`: codes and the scales that bring them back, ``x = q * scale``.

    Attributes
    ----------
    q : GpuRef
        Codes, of x's shape.
    scale : GpuRef
        float32: `a_scale` of a matmul of q, and transposed its `b_scale`.
    transposed : GpuRef or None
        The codes of ``x.T``.
    transposed_scale : GpuRef or None
        Their scales.

    Examples
    --------
    >>> x = device.put(np.ones((128, 256), "float32"))
    >>> made = device.float8.quantize(x, scaling="blk128", transposed=True)
    >>> made.q.shape, made.scale.shape, made.transposed.shape, made.transposed_scale.shape
    ((128, 256), (1, 2), (256, 128), (2, 1))
    """

    q: GpuRef
    scale: GpuRef
    transposed: GpuRef | None = None
    transposed_scale: GpuRef | None = None


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedScaling:
    """Delayed scaling of one tensor of a training loop: arrays on the device that each quantisation updates.

    Made by `Float8.delayed`.  A quantisation with it uses `scale` as it is, puts the tensor's amax into the history at
    `position`, and makes the next scale: the largest finite amax of the history (or the one just recorded) times
    ``2**margin`` by the largest number of the format.  Where no recorded amax is finite and above 0, `scale` stays.

    Attributes
    ----------
    history : GpuRef
        The last amaxes, a ring; float32, of one axis.
    position : GpuRef
        Where the next one goes; int32, of one element.
    scale : GpuRef
        Of the next tensor; float32, of one element.
    dtype : str
        Format of the codes.
    margin : int
        Powers of two by which the scale is larger than it need be, from -60 to 60.
    amax : str
        ``"max"`` of the history, or ``"latest"``.

    Examples
    --------
    >>> state = device.float8.delayed(length=16)
    >>> codes = device.float8.quantize(device.put(np.full(4, 448.0, "float32")), state=state)
    >>> state.scale.numpy(), int(state.position.numpy()[0])
    (array([1.], dtype=float32), 1)
    """

    history: GpuRef
    position: GpuRef
    scale: GpuRef
    dtype: str = "float8_e4m3fn"
    margin: int = 0
    amax: str = "max"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_float8("dtype", self.dtype))
        check_choice("amax", self.amax, ("max", "latest"))
        object.__setattr__(self, "margin", as_integer("margin", self.margin, -_MARGIN, _MARGIN))
        for name, dtype in (("history", "float32"), ("position", "int32"), ("scale", "float32")):
            ref = check_output(name, getattr(self, name))
            one = name != "history"
            if dtype_name(as_dtype(ref.dtype)) != dtype or len(ref.shape) != 1 or (one and ref.shape != (1,)):
                wanted = "(1,)" if one else "(length,)"
                raise InvalidRequest(
                    f"{name} has dtype {dtype_name(as_dtype(ref.dtype))} and shape {tuple(ref.shape)}; allowed: "
                    f"{dtype} of {wanted}"
                )
        if self.history.shape[0] < 1 or not is_contiguous(self.history):
            raise InvalidRequest(
                f"history has shape {tuple(self.history.shape)} and strides {tuple(self.history.strides)}; it must be "
                f"contiguous, of one element at least"
            )

    @property
    def members(self) -> dict[str, GpuRef]:
        """The arrays by name, for `Device.durable_group`."""
        return {"history": self.history, "position": self.position, "scale": self.scale}


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeRequest(Request[QuantizeResult]):
    """Quantisation to float8, checked when it is made.

    Parameters
    ----------
    x
        What to quantise: float32, float16 or bfloat16; of any shape for ``"tensor"``, else a matrix.
    dtype : str
        ``"float8_e4m3fn"`` or ``"float8_e5m2"``.
    scaling : str
        What shares a scale: ``"tensor"`` everything, ``"outer"`` a row, ``"vec128"`` 128 neighbours of a row,
        ``"blk128"`` a block of 128 x 128.
    scale, state
        With ``"tensor"``: a scale that is given (float32, of one element, positive and finite), or delayed scaling.
    saturate : bool
        Whether what is beyond the largest number becomes that; otherwise it is NaN in float8_e4m3fn and infinity in
        float8_e5m2.
    transposed : bool
        Whether the transpose is written too (``"tensor"`` and ``"blk128"``).
    out, scale_out, transposed_out, transposed_scale_out
        Where results go; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> request = an.QuantizeRequest(x=device.put(np.ones((4, 8), "float32")), scaling="outer")
    >>> device.float8.tell(request).scale.shape
    (4, 1)
    """

    x: Any
    dtype: str = "float8_e4m3fn"
    scaling: str = "tensor"
    scale: Any = None
    state: DelayedScaling | None = None
    saturate: bool = True
    transposed: bool = False
    out: Any = None
    scale_out: Any = None
    transposed_out: Any = None
    transposed_scale_out: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_float8("dtype", self.dtype))
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        if self.state is not None and not isinstance(self.state, DelayedScaling):
            raise InvalidRequest(f"state is a {type(self.state).__name__}; allowed: what device.float8.delayed() makes")
        check_quantize(self)
        members = {} if self.state is None else self.state.members
        inputs = [read("x", self.x), *([] if self.scale is None else [read("scale", self.scale)])]
        outputs = [self._output(name, fresh) for name, fresh in quantize_outputs(self).items()]
        given = [(o.name, o.given) for o in outputs if o.given is not None]
        check_disjoint([*given, *members.items()], [(o.name, o.given) for o in inputs])
        states = [Operand(describe(f"state_{name}", ref, READ | WRITE), ref) for name, ref in members.items()]
        amax = "given" if self.scale is not None else "now" if self.state is None else "recorded"
        latest = self.state is not None and self.state.amax == "latest"
        source = dtype_name(as_dtype(self.x.dtype))
        kind = Quantization(source, self.dtype, self.scaling, self.saturate, self.transposed, amax, latest)
        return Lowered(
            op="float8.quantize",
            operands=(*inputs, *outputs, *states),
            collect=partial(_quantized, self.transposed),
            attributes=QuantizeAttributes(
                dtype=self.dtype,
                scaling=self.scaling,
                saturate=self.saturate,
                amax=amax,
                latest=latest,
                margin=0 if self.state is None else self.state.margin,
            ),
            code=ShippedKernels("float8.quantize", partial(quantize_kernels, kind)),
        )

    def _output(self, name: str, fresh: FreshPart) -> Operand:
        given = getattr(self, name)
        if given is None:
            spec = OperandSpec(name, fresh.dtype, fresh.shape, fresh.strides, WRITE | OVERWRITE)
            return Operand(spec, None, fresh.whole)
        check_out(name, given, fresh.dtype, (fresh.shape, fresh.shape or (1,)))
        return Operand(describe(name, given, WRITE | OVERWRITE), given)


def _quantized(transposed: bool, arrays: Mapping[str, Any]) -> QuantizeResult:
    scale = arrays["scale"] if "scale" in arrays else arrays["scale_out"]
    transposed_scale = arrays.get("transposed_scale_out", scale) if transposed else None
    return QuantizeResult(arrays["out"], scale, arrays.get("transposed_out"), transposed_scale)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class DequantizeRequest(Request["GpuRef"]):
    """Numbers of float8 codes, ``q * scale``, checked when it is made.

    Parameters
    ----------
    q
        Codes, float8_e4m3fn or float8_e5m2.
    scale
        float32; its shape says what shares a scale, as in `device.blas_lt`: one element, or for q of (M, K) the shapes
        (M, 1), (M, ceil(K / 128)) and (ceil(M / 128), ceil(K / 128)).
    dtype : str
        Of the result: ``"float32"``, ``"float16"`` or ``"bfloat16"``.
    out
        Where it goes; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> made = device.float8.quantize(device.put(np.ones(3, "float32")))
    >>> request = an.DequantizeRequest(q=made.q, scale=made.scale, dtype="bfloat16")
    >>> device.float8.tell(request).numpy().tolist()
    [1.0, 1.0, 1.0]
    """

    q: Any
    scale: Any
    dtype: str = "float32"
    out: Any = None

    def __post_init__(self) -> None:
        name = dtype_name(as_dtype(self.dtype))
        if name not in WIDE:
            raise InvalidRequest(f"dtype={self.dtype!r}; allowed: {', '.join(WIDE)}")
        object.__setattr__(self, "dtype", name)
        Request.__post_init__(self)

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        q = check_input("q", self.q)
        source, shape = as_float8("q", q.dtype), tuple(q.shape)
        blocks = scale_blocks(shape, check_input("scale", self.scale))
        if self.out is not None:
            check_out("out", self.out, self.dtype, (shape,))
            check_disjoint([("out", self.out)], [("q", q), ("scale", self.scale)])
        out = written("out", self.out, Fresh(shape, DTYPES[self.dtype]))
        return Lowered(
            op="float8.dequantize",
            operands=(read("q", self.q), read("scale", self.scale), out),
            collect=itemgetter("out"),
            attributes=DequantizeAttributes(blocks=blocks),
            code=ShippedKernels("float8.quantize", partial(dequantize_kernels, source, self.dtype)),
        )


def quantize_request(x: Any, dtype: object, options: QuantizeOptions) -> QuantizeRequest:
    """Return the request of `Float8.plan` and `Float8.outputs`, by default of the dtype of its state."""
    check_options("a quantisation", options, QuantizeOptions.__optional_keys__)
    if dtype is None:
        state = options.get("state")
        dtype = state.dtype if isinstance(state, DelayedScaling) else "float8_e4m3fn"
    return QuantizeRequest(x=x, dtype=cast("str", dtype), **options)
