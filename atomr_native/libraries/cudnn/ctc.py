"""The request of connectionist temporal classification: a loss of sequences and labels without an alignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated, Any, Final

from msgspec import Meta

from ..._support.checks import as_integer, check_choice, check_flag
from ..._support.public import public
from ...arrays.operands import check_input
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request, read, written
from ...plans.spec import Attributes
from ...protocol.typed import one_of
from .spec import FLOATS, check_given, dtype_of, fresh_of

__all__ = ["CTC_LAYOUTS", "CtcAttributes", "CtcLossRequest"]

#: Orders of the axes of scores.
CTC_LAYOUTS: Final = ("tnc", "ntc")


class CtcAttributes(Attributes, frozen=True, kw_only=True):
    """Of ``cudnn.ctc_loss``.

    Attributes
    ----------
    layout : str
    blank : int
    zero_infinity : bool
    """

    layout: Annotated[str, one_of(*CTC_LAYOUTS)]
    blank: Annotated[int, Meta(ge=0)]
    zero_infinity: bool


def _both(arrays: Mapping[str, Any]) -> Any:
    return arrays["costs"], arrays["dx"]


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class CtcLossRequest(Request[Any]):
    """Connectionist temporal classification, checked when it is made.

    The cost of a sequence is the negative logarithm of the probability of its labels: the sum over all ways to repeat
    labels, and to put blanks between them, until there are as many as steps; equal neighbours have a blank between
    them.

    Parameters
    ----------
    x : GpuRef
        Scores of the classes in each step, before their softmax, (steps, sequences, classes) in the order that `layout`
        names, of any strides; float16, bfloat16, float32 or float64.
    labels : GpuRef
        int32, (sequences, labels of the longest): classes that are not blank.  What is behind the end is not read.
    input_lengths, label_lengths : GpuRef
        int32, (sequences,): steps and labels of each.
    blank : int
        The class of the blank.
    layout : str
        ``tnc`` or ``ntc``.
    gradient : bool
        Whether to compute the gradient of the sum of all costs by x, too.
    zero_infinity : bool
        Whether a sequence with too few steps for its labels costs 0, not infinity.  Its gradient is 0.

    Returns
    -------
    GpuRef or tuple of GpuRef
        The costs, (sequences,), float64 of float64 and else float32; with `gradient` also that, as x.  Behind the end
        of a sequence it is 0.  Lengths and labels are read on the device: a sequence with a length out of range, or
        with a label that is blank or no class, has NaN as its cost and gradient.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.zeros((3, 1, 2))  # 3 steps of 2 classes that are equally likely
    >>> labels, lengths = device.put(np.array([[1]], "int32")), [device.put(np.array([n], "int32")) for n in (3, 1)]
    >>> request = an.CtcLossRequest(x=x, labels=labels, input_lengths=lengths[0], label_lengths=lengths[1])
    >>> np.exp(-device.cudnn.tell(request).numpy()).round(3)  # 6 of 8 ways
    array([0.75], dtype=float32)
    """

    x: Any
    labels: Any
    input_lengths: Any
    label_lengths: Any
    blank: int = 0
    layout: str = "tnc"
    gradient: bool = False
    zero_infinity: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("layout", self.layout, CTC_LAYOUTS)
        for name in ("gradient", "zero_infinity"):
            check_flag(name, getattr(self, name))
        dtype = dtype_of("x", self.x, FLOATS)
        shape = tuple(check_input("x", self.x).shape)
        if len(shape) != 3 or 0 in shape:
            raise InvalidRequest(f"x has shape {shape}; allowed: 3 axes, {self.layout}, at least 1 of each")
        sequences = shape[self.layout.index("n")]
        blank = as_integer("blank", self.blank, 0, shape[2] - 1)
        dtype_of("labels", self.labels, ("int32",))
        found = tuple(self.labels.shape)
        if len(found) != 2 or found[0] != sequences:
            raise InvalidRequest(f"labels has shape {found}; allowed: ({sequences}, labels of the longest)")
        for name in ("input_lengths", "label_lengths"):
            dtype_of(name, getattr(self, name), ("int32",))
            if tuple(getattr(self, name).shape) != (sequences,):
                raise InvalidRequest(f"{name} has shape {tuple(getattr(self, name).shape)}; allowed: ({sequences},)")
        inputs = [read(name, getattr(self, name)) for name in ("x", "labels", "input_lengths", "label_lengths")]
        check_given([], [(operand.name, operand.given) for operand in inputs])
        wide = "float64" if dtype == "float64" else "float32"
        outputs = [written("costs", None, fresh_of((sequences,), wide))]
        if self.gradient:
            outputs.append(written("dx", None, fresh_of(shape, dtype)))
        return Lowered(
            op="cudnn.ctc_loss",
            operands=(*inputs, *outputs),
            collect=_both if self.gradient else itemgetter("costs"),
            attributes=CtcAttributes(layout=self.layout, blank=blank, zero_infinity=self.zero_infinity),
        )
