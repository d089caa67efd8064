"""Functions of elements in kernels that call them as cuFFT's do, by the linker that cuFFT uses.  Needs no device."""

from __future__ import annotations

import pytest

from atomr_native.compile import nvrtc

__all__ = ["GENERIC", "HOPPER", "linked"]

HOPPER = (9, 0)
#: Accesses in PTX without the kind of memory.
GENERIC = r"\b(?:ld|st)\.(?:v\d\.)?[fsub]\d+"

#: As cuFFT writes them: it declares the function in C++, and calls it from another that its kernels call.
_CALLER = {
    "load": """extern __device__ {element} {name}(void *, unsigned long long, void *, void *);
__device__ {element} inner_load(void *a, unsigned long long i, void *info, void *s) {{ return {name}(a, i, info, s); }}
extern "C" __global__ void user_load({element} *p, void *info) {{
  unsigned long long i = blockIdx.x * 64ull + threadIdx.x;
  p[i] = inner_load(p, i, info, 0);
}}""",
    "store": """extern __device__ void {name}(void *, unsigned long long, {element}, void *, void *);
__device__ void inner_store(void *a, unsigned long long i, {element} v, void *info, void *s) {{
  {name}(a, i, v, info, s);
}}
extern "C" __global__ void user_store({element} *p, void *info) {{
  unsigned long long i = blockIdx.x * 64ull + threadIdx.x;
  inner_store(p, i, p[i], info, 0);
}}""",
}


def linked(functions: dict[str, tuple[str, str, bytes]]) -> str:
    """Return the PTX of kernels that call functions: of each its C++ name, its element and its LTO-IR."""
    from shipped_kernels import ptx_of  # needs Numba

    codes = []
    for which, (name, element, code) in functions.items():
        source = _CALLER[which].format(name=name, element=element)
        options = ("--relocatable-device-code=true", "-minimal")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nvrtc, "_OWN", ())
            caller = nvrtc.compile_program(source, "compute_75", options=options, output="ltoir").code
        codes += [caller, code]
    text = ptx_of(codes, HOPPER)
    assert all(f"user_{which}" in text for which in functions)
    return text
