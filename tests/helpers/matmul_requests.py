"""Random matmul requests of NumPy arrays: every type, epilogue, option and scale, awkward extents and views."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from matmul_reference import COMBINATIONS, allows, block_scales, epilogue_operands, random

from atomr_native.dtypes import DTYPES
from atomr_native.libraries._scaling import COMBINATIONS as SCALINGS
from atomr_native.libraries.blas_lt.epilogue import Epilogue
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.blas_lt.types import FLOAT8, rule_of

__all__ = ["requests"]

AWKWARD = (0, 1, 2, 7, 13, 16, 31, 129, 257)


@st.composite
def requests(draw: st.DrawFn) -> MatmulRequest:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    types = draw(st.sampled_from(COMBINATIONS))
    rule = rule_of(*types[:2])
    epilogue = draw(st.sampled_from([e for e in Epilogue if allows(types, e)]))
    m, n, k = (draw(st.sampled_from(AWKWARD)) for _ in range(3))
    batch = draw(st.sampled_from([(), (), (3,), (0,), (2, 2)]))
    trans_a, trans_b = draw(st.booleans()), draw(st.booleans())

    def matrix(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        kind = draw(st.sampled_from(["dense", "far", "shifted"]))
        if kind == "far":  # a leading dimension far beyond the row
            return random(rng, (*shape[:-1], shape[-1] + 1000), dtype)[..., : shape[-1]]
        if kind == "shifted":
            return random(rng, (*shape[:-1], shape[-1] + 3), dtype)[..., 3:]
        return random(rng, shape, dtype)

    options = epilogue_operands(rng, epilogue, batch, m, n, types)
    options |= {"trans_a": trans_a, "trans_b": trans_b}
    whole = types[2] == "int32"
    if types[0].startswith("complex"):
        conj = {f"conj_{x}": draw(st.booleans()) and epilogue != f"bgrad{x}" for x in "ab"}
        options |= {**conj, "alpha": 0.5 - 2j}
    elif not whole:
        options["alpha"] = draw(st.sampled_from([1.0, 0.004, 0.0]))
    if draw(st.booleans()):
        options |= {"c": matrix((*batch, m, n), rule.c(types[2])[0]), "beta": 1 if whole else -0.25}
        if not (whole or types[0].startswith("complex")) and draw(st.booleans()):
            options["c_scale"] = np.asarray([0.5], np.float32)
    if not whole and draw(st.booleans()) and rule.modes[0] != "int32":
        options["compute"] = draw(st.sampled_from([x for x in rule.modes if types[2] == "float16" or "_acc" not in x]))
    if not (whole or types[0].startswith("complex")) and options.get("compute") != "float16_accumulate":
        options["amax"] = draw(st.booleans())
        if draw(st.booleans()):
            options["d_scale"] = np.asarray(0.125, np.float32)
    if types[0] in FLOAT8 or (types[0] == "int8" and not whole):
        kinds = draw(st.sampled_from([("none", "none"), *SCALINGS]))
        if types[0] == "int8":
            kinds = draw(st.sampled_from([("none", "none"), *SCALINGS[:6]]))
        if batch and {"outer", "vec128", "blk128"} & set(kinds):
            kinds = ("tensor", "tensor")
        for which, kind, outer in zip("ab", kinds, (m, n), strict=True):
            if kind != "none":
                options[f"{which}_scale"] = block_scales(rng, which, kind, outer, k)
    if not whole and draw(st.booleans()):  # factors on the device
        kind = DTYPES["float16" if options.get("compute") == "float16_accumulate" else rule.scale(types[2])]
        options |= {name: np.asarray([options[name]], kind) for name in ("alpha", "beta") if name in options}
    a = matrix((*batch, k, m) if trans_a else (*batch, m, k), types[0])
    b = matrix((*batch, n, k) if trans_b else (*batch, k, n), types[1])
    return MatmulRequest(a=a, b=b, **options)
