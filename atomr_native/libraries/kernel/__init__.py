"""Users' kernels, in Numba's CUDA Python and in CUDA C++: ``device.kernel``, ``device.cuda_kernel``."""

from .._contract import Aliasing, Library, Operation

LIBRARY = Library(
    name="kernel",
    summary="Users' kernels, in Numba's CUDA Python and in CUDA C++.",
    actor="",
    mailbox=False,
    # A kernel alone knows which of its arrays may overlap.
    operations=(
        Operation(
            "kernel.*",
            Aliasing.UNCHECKED,
            "host:build_kernel",
            "cuda:build_kernel",
            attributes="attributes:KernelAttributes",
        ),
    ),
    exports={
        "CudaKernel": "cuda_kernel",
        "Kernel": "actor",
        "NumbaKernel": "numba_kernel",
        "Records": "spec",
        "TensorMap": "tensor_map",
        "device_function": "cuda_kernel",
    },
)
