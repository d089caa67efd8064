"""The native description of a matmul."""

from __future__ import annotations

from dataclasses import dataclass

from ....builders.cuda.native import NativeStruct

__all__ = ["MatmulDescription"]


@dataclass(frozen=True, slots=True)
class MatmulDescription(NativeStruct):
    """A matmul with the members of ``atomr_matmul_spec``, see ``cython/libraries/cublaslt/plan.h``.

    The tuner sets `has_algo` and `algo`.
    """

    m: int
    n: int
    k: int
    batch: int
    type_a: int
    type_b: int
    type_c: int
    type_d: int
    type_bias: int
    type_aux: int
    compute: int
    scale: int
    trans_a: int
    trans_b: int
    order_a: int
    order_b: int
    ld_a: int
    ld_b: int
    ld_c: int
    ld_d: int
    step_a: int
    step_b: int
    step_c: int
    step_d: int
    epilogue: int
    step_bias: int
    ld_aux: int
    step_aux: int
    clear_aux: int
    fast_accum: int
    reduced_precision: int
    mode_a: int
    mode_b: int
    a: int
    b: int
    c: int
    d: int
    bias: int
    aux: int
    bias_grad: int
    a_scale: int
    b_scale: int
    d_scale: int
    amax: int
    alpha_at: int
    beta_at: int
    alpha: int
    beta: int
    alpha_imag: int
    beta_imag: int
    n_operands: int
    n_scalars: int
    pointers: int = -1
    members: int = 0
    apart: int = 0
    zero: int = 0
    workspace_bytes: int = 0
    has_algo: int = 0
    algo: tuple[int, ...] = (0,) * 8

    def numbers(self) -> list[int]:
        """Return all numbers in the order of the members, for digests: files of tuning results name them."""
        return [
            number for value in self.fields().values() for number in (value if isinstance(value, tuple) else (value,))
        ]
