"""Recurrent networks by calls of cuDNN: ``cudnn.rnn``, its gradient, and how much memory training keeps."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ...._lib import cudnn
from ...._lib.cudnn import CONSTANTS, RecurrentPlan
from ....builders.context import Built
from ....builders.cuda.codegen import kernels
from ....builders.cuda.context import CudaContext, library_file
from ....builders.cuda.native import NativeStruct
from ....builders.cuda.target import Launch
from ....builders.cuda.workspace import beyond_limit
from ....errors import InvalidRequest
from ....plans.spec import PlanSpec
from ..recurrent_shapes import RecurrentAttributes
from .descriptors import data_type

__all__ = ["RecurrentCall", "build_rnn", "build_rnn_reserve"]

_CELLS: Final = {"relu": "RNN_RELU", "tanh": "RNN_TANH", "lstm": "LSTM", "gru": "GRU"}
_LAYOUTS: Final = {"tnc": "SEQ_MAJOR_UNPACKED", "ntc": "BATCH_MAJOR_UNPACKED", "packed": "SEQ_MAJOR_PACKED"}
#: Libraries that cuDNN opens by their sonames; they are found once they are loaded.
_NEEDED: Final = ("cublasLt", "cublas", "nvrtc")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentCall(NativeStruct):
    """A network with the members of ``atomr_cudnn_rnn_spec``, see ``cython/libraries/cudnn/rnn.h``."""

    backward: int
    training: int
    cell: int
    dtype: int
    compute: int
    math: int
    steps: int
    batch: int
    inputs: int
    hidden: int
    layers: int
    directions: int
    biased: int
    layout: int
    dropout: int
    length_bits: int
    n_weights: int
    x: int = -1
    weights: int = -1
    hx: int = -1
    cx: int = -1
    y: int = -1
    hy: int = -1
    cy: int = -1
    reserve: int = -1
    dy: int = -1
    dhy: int = -1
    dcy: int = -1
    dx: int = -1
    dhx: int = -1
    dcx: int = -1
    dweights: int = -1
    n_operands: int = 0

    @property
    def is_repeatable(self) -> bool:
        """Whether a captured call does the same again."""
        return not self.length_bits and not self.dropout


def _math(how: RecurrentAttributes) -> str:
    if how.dtype in ("float16", "bfloat16"):
        return "TENSOR_OP"
    return "DEFAULT" if how.tf32 else "FMA"


def recurrent_call(spec: PlanSpec[RecurrentAttributes]) -> RecurrentCall:
    """Return a network as the native plan takes it."""
    how = spec.attributes
    wide = "float64" if how.dtype == "float64" else "float32"
    places = {operand.name: at for at, operand in enumerate(spec.operands)}
    if spec.op == "cudnn.rnn_reserve":
        places = {}
    elif "out" in places:
        places["y"] = places.pop("out")
    return RecurrentCall(
        backward=spec.op == "cudnn.rnn_backward",
        training=how.training,
        cell=CONSTANTS[f"CUDNN_{_CELLS[how.kind]}"],
        dtype=CONSTANTS[data_type(how.dtype)],
        compute=CONSTANTS[data_type(wide)],
        math=CONSTANTS[f"CUDNN_{_math(how)}_MATH"],
        steps=how.steps,
        batch=how.batch,
        inputs=how.inputs,
        hidden=how.hidden,
        layers=how.layers,
        directions=how.directions,
        biased=how.bias,
        layout=CONSTANTS[f"CUDNN_RNN_DATA_LAYOUT_{_LAYOUTS[how.layout]}"],
        dropout=struct.unpack("<q", struct.pack("<d", how.dropout))[0],
        length_bits=how.length_bits,
        n_weights=how.weights.size,
        n_operands=len(spec.operands),
        **places,
    )


def _plan(spec: PlanSpec[RecurrentAttributes], context: CudaContext) -> RecurrentPlan:
    for key in _NEEDED:
        library_file(key)
    cudnn.load(library_file("cudnn"))
    return RecurrentPlan(context.backend, recurrent_call(spec))


def build_rnn(spec: PlanSpec[RecurrentAttributes], context: CudaContext) -> Built:
    """Build ``cudnn.rnn`` or ``cudnn.rnn_backward``.

    Raises
    ------
    Unsupported
        Without cuDNN; for a network that it refuses; for more workspace than the limit.
    InvalidRequest
        If the reserve has fewer bytes than cuDNN keeps.
    """
    plan = _plan(spec, context)
    if plan.workspace > context.workspace_limit:
        raise beyond_limit(spec.op, spec.op, plan.workspace, context.workspace_limit)
    for operand in spec.operands:
        if operand.name == "reserve" and operand.shape[0] < plan.reserve:
            raise InvalidRequest(f"reserve has {operand.shape[0]} bytes; allowed: {plan.reserve} or more")
    return Built(plan, plan.workspace)


def build_rnn_reserve(spec: PlanSpec[RecurrentAttributes], context: CudaContext) -> Built:
    """Build ``cudnn.rnn_reserve``: a kernel that writes a number which is known now.

    Raises
    ------
    Unsupported
        Without cuDNN; for a network that it refuses.
    """
    found = _plan(spec, context).reserve
    source = f"KERNEL sizes(long long *y) {{ AWAIT_LAUNCH(); if (thread_index() == 0) *y = {found}ll; }}\n"
    launch = Launch("sizes", (1, 1, 1), (32, 1, 1), 0, (("operand", 0),))
    return Built(kernels(source, [launch], context.target, dtypes={"int64"}, alignments=[8]).run)
