"""Whether the epilogue of a gradient is faster in the product, or in a kernel after it.

cuBLASLt's kernels with ``drelu``, ``drelu_bgrad`` and ``dgelu_bgrad`` are slow: on an H200 (13.1, bfloat16, the
algorithms of the heuristic and tuned ones alike) they took 1.28, 1.31 and 1.41 times as long as the plain product at
4096 x 8192 x 8192, and 1.40, 1.46 and 1.61 times at 1024 x 4096 x 4096.  A pass over D costs its bytes and launches,
whatever K is.  Small products of training steps lose more with ``dgelu_bgrad``: on an H100 (13.1, bfloat16) the call
took 9.0 us with it and 5.0 with ``dgelu`` at 128 x 512 x 512, 20.8 and 13.3 at 512 x 2048 x 2048, and messages took 9.3
and 8.1 us, and 21.6 and 18.8.  Measured times of both products decide; without them, the figures of Hopper do.  Nothing
is known about ``bgrada`` and ``bgradb`` in cuBLASLt's own layouts, so only tuning moves them out of the call.

The other epilogues stay the library's.  ``dgelu`` (1.08 and 1.15) multiplies numbers that a pass over D would find
rounded, so only a product in float32 can have it apart.  That takes more bytes, and may gain where launches are what
costs, in small products: tuning measures it.  Those that write an aux (1.02 to 1.11) store as many bytes again as D, or
bits of numbers before they are rounded; a separate pass would take as long as they lose.
"""

from __future__ import annotations

import math
from typing import Final

from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import MatmulAttributes

__all__ = ["AFTER", "after_note", "apart_microseconds", "faster_after", "pass_microseconds"]

#: Epilogues of which a part can follow the product, and the epilogue that is left to the library.
AFTER: Final = {
    "drelu": "default", "drelu_bgrad": "default", "dgelu_bgrad": "dgelu", "bgrada": "default", "bgradb": "default",
}  # fmt: skip

#: Epilogues that tuning also measures apart from the product, which is then in float32.
_APART: Final = ("dgelu", "dgelu_bgrad")

#: Minimum cost of an epilogue, as a part of the plain product's time; microseconds more, from so many rows of D.
_LOSS: Final = {"drelu": 0.28, "drelu_bgrad": 0.28, "dgelu_bgrad": 0.28}
_LOST: Final = {"dgelu_bgrad": 5.0}
_ROWS: Final = 128
#: Operations, and bytes of device memory, a microsecond; microseconds of one more kernel.
_OPERATIONS: Final = 650e6
_BYTES: Final = 3.5e6
_LAUNCH: Final = 2.0
#: Microseconds of the kernel that makes an epilogue of a product, besides its bytes: on an H100 in a graph, 1.7 in all
#: at 128 x 512, and 3.3 at 512 x 2048.
_EPILOGUE: Final = 1.6
_NARROW: Final = ("float16", "bfloat16")
_PARTS: Final = {
    "drelu": "the mask of 'drelu' is",
    "drelu_bgrad": "the mask and the sums of 'drelu_bgrad' are",
    "dgelu_bgrad": "the sums of 'dgelu_bgrad' are",
    "bgrada": "the sums of 'bgrada' are",
    "bgradb": "the sums of 'bgradb' are",
}


def after_note(epilogue: str, why: str) -> str:
    """Return the plan's note about its epilogue."""
    stored = "; summed is D as it is stored" if epilogue.endswith("_bgrad") else ""
    return f"{_PARTS[epilogue]} made by a kernel after the matmul, since {why}{stored}"


def pass_microseconds(spec: PlanSpec[MatmulAttributes]) -> float:
    """Return the predicted time of the kernels after a product, from the bytes that they move."""
    epilogue = spec.attributes.epilogue
    moved = {"bgrada": "a", "bgradb": "b"}.get(epilogue, "out")
    array = next(o for o in spec.operands if o.name == moved)
    size: int = math.prod(array.shape) * as_dtype(array.dtype).itemsize
    launches = 1 if epilogue == "drelu" else 2
    return _LAUNCH * launches + (2 if epilogue.startswith("drelu") else 1) * size / _BYTES


def apart_microseconds(spec: PlanSpec[MatmulAttributes]) -> float | None:
    """Return the predicted time of the kernels that make all of an epilogue from a product in float32.

    None where tuning does not consider that: for epilogues but those with the derivative of GELU, for products with
    other factors than float32, and with scales.
    """
    how, operands = spec.attributes, {o.name: o for o in spec.operands}
    if (
        how.epilogue not in _APART
        or how.scale != "float32"
        or any(n == "amax" or n.endswith("_scale") for n in operands)
    ):
        return None
    size: int = math.prod(operands["out"].shape)
    moved = 4 + sum(as_dtype(operands[name].dtype).itemsize for name in ("out", "aux"))
    sums = 0
    if how.epilogue.endswith("_bgrad"):  # a copy in float32 is kept, and summed
        moved, sums = moved + 8, 2
    return _EPILOGUE + _LAUNCH * sums + moved * size / _BYTES


def faster_after(spec: PlanSpec[MatmulAttributes], arch: str) -> bool:
    """Whether an epilogue of `AFTER` is predicted to be faster after the product.

    True only on Hopper, with operands and D of bfloat16, which was measured, or float16, which is taken to be alike.

    Parameters
    ----------
    spec
        Specification of ``blas_lt.matmul``.
    arch
        Architecture of the device.
    """
    operands, epilogue = {o.name: o for o in spec.operands}, spec.attributes.epilogue
    a, out = operands["a"], operands["out"]
    if not arch.startswith("sm_90") or a.dtype not in _NARROW or out.dtype not in _NARROW:
        return False
    k = a.shape[-2 if spec.attributes.trans_a else -1]
    product = 2 * math.prod(out.shape) * k / _OPERATIONS
    lost = _LOST.get(epilogue, 0.0) if out.shape[-2] >= _ROWS else 0.0
    return bool(_LOSS.get(epilogue, 0.0) * product + lost > pass_microseconds(spec))
