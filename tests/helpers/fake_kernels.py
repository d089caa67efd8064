"""Users' kernels in CUDA C++ on the fake driver: compiled for this processor, where NVRTC would compile for a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kernel_shim
import pytest

import atomr_native as an
from atomr_native.compile import cpp_kinds, cubin, nvrtc

__all__ = ["make"]

_SHIM = "#define __grid_constant__\n"


def make(device: an.Device, source: str, name: str, sizes: tuple[int, ...], **options: Any) -> an.CudaKernel:
    """Make a kernel of a source; `sizes` are those of its parameters, which a cubin would tell, and that it waits."""

    def compiled(text: str, _: str, *, names: tuple[str, ...], **__: Any) -> nvrtc.Program:
        plain = text.removesuffix(cpp_kinds.PROBE)  # which is C++
        return nvrtc.Program(kernel_shim.compile_module(_SHIM + plain), {given: given for given in names})

    def kernels(_: bytes) -> Mapping[str, tuple[int, ...]]:
        return {name: sizes}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "compile_program", compiled)
        patch.setattr(cubin, "kernels", kernels)
        patch.setattr(cubin, "why_no_overlap", lambda *_: "")
        return device.cuda_kernel(source, name, **options)
