"""GPU work as messages to supervised actors: cheap, and with faults that do not kill the program.

Start with `System`; see README.md and docs/architecture.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import (
    ActorStopped,
    AskTimeout,
    AtomrError,
    DependencyFailed,
    DeviceFault,
    DeviceLost,
    GpuRefStale,
    InvalidRequest,
    LibraryError,
    MailboxFull,
    NoCudaArrayInterface,
    NoReply,
    OutOfMemory,
    PlanQuarantined,
    Suspect,
    UnhandledMessage,
    Unsupported,
)

if TYPE_CHECKING:
    from . import epilogues, observe
    from ._kernel_spec import Records
    from .actors._handlers import handler
    from .actors.actor import Actor
    from .actors.answer import Answer, ReplyTo
    from .actors.context import Context
    from .actors.mailbox import Mailbox
    from .actors.messages import DeviceEnded, DeviceRestarted, Terminated
    from .actors.pipeline import Pipeline
    from .actors.pool import Pool
    from .actors.ref import ActorRef
    from .actors.supervision import AllForOne, Directive, OneForOne, Supervision
    from .blas import Blas, BlasRequest
    from .blas_lt import BlasLt, CustomEpilogue, Epilogue, GroupedRequest, MatmulRequest, MatmulResult
    from .cuda_kernel import CudaKernel, device_function
    from .device import Device
    from .elementwise import ElementwiseActor
    from .float8 import DelayedScaling, DequantizeRequest, Float8, QuantizeRequest, QuantizeResult
    from .fused import (
        ActivationGradientRequest,
        ActivationRequest,
        AdamWRequest,
        DropoutRequest,
        Fused,
        GatedGradient,
        NormGradient,
        NormGradientRequest,
        NormRequest,
        NormResult,
        RopeRequest,
        SgdRequest,
    )
    from .gpu_ref import GpuRef
    from .groups import DurableGroup
    from .kernel import Kernel
    from .lane import Lane
    from .numba_kernel import NumbaKernel
    from .plan import Plan
    from .plan_spec import PlanSpec
    from .reply import Reply, gather
    from .statistics import DeviceFacts, DeviceStats, MemoryStats, SystemStats
    from .system import DeadLetter, System
    from .tensor_map import TensorMap

__version__ = "0.1.0"

#: Loaded when used, so that importing the package stays cheap.
_LAZY = {
    "ActivationGradientRequest": "fused",
    "ActivationRequest": "fused",
    "Actor": "actors.actor",
    "ActorRef": "actors.ref",
    "AdamWRequest": "fused",
    "AllForOne": "actors.supervision",
    "Answer": "actors.answer",
    "Blas": "blas",
    "BlasLt": "blas_lt",
    "BlasRequest": "blas",
    "Context": "actors.context",
    "CudaKernel": "cuda_kernel",
    "CustomEpilogue": "blas_lt",
    "DeadLetter": "system",
    "DelayedScaling": "float8",
    "DequantizeRequest": "float8",
    "Device": "device",
    "DeviceEnded": "actors.messages",
    "DeviceFacts": "statistics",
    "DeviceRestarted": "actors.messages",
    "DeviceStats": "statistics",
    "Directive": "actors.supervision",
    "DropoutRequest": "fused",
    "DurableGroup": "groups",
    "ElementwiseActor": "elementwise",
    "Epilogue": "blas_lt",
    "Float8": "float8",
    "Fused": "fused",
    "GatedGradient": "fused",
    "GpuRef": "gpu_ref",
    "GroupedRequest": "blas_lt",
    "Kernel": "kernel",
    "Lane": "lane",
    "Mailbox": "actors.mailbox",
    "MatmulRequest": "blas_lt",
    "MatmulResult": "blas_lt",
    "MemoryStats": "statistics",
    "NormGradient": "fused",
    "NormGradientRequest": "fused",
    "NormRequest": "fused",
    "NormResult": "fused",
    "NumbaKernel": "numba_kernel",
    "OneForOne": "actors.supervision",
    "Pipeline": "actors.pipeline",
    "Plan": "plan",
    "PlanSpec": "plan_spec",
    "Pool": "actors.pool",
    "QuantizeRequest": "float8",
    "QuantizeResult": "float8",
    "Records": "_kernel_spec",
    "Reply": "reply",
    "ReplyTo": "actors.answer",
    "RopeRequest": "fused",
    "SgdRequest": "fused",
    "Supervision": "actors.supervision",
    "System": "system",
    "SystemStats": "statistics",
    "TensorMap": "tensor_map",
    "Terminated": "actors.messages",
    "device_function": "cuda_kernel",
    "gather": "reply",
    "handler": "actors._handlers",
}

__all__ = [
    "ActivationGradientRequest",
    "ActivationRequest",
    "Actor",
    "ActorRef",
    "ActorStopped",
    "AdamWRequest",
    "AllForOne",
    "Answer",
    "AskTimeout",
    "AtomrError",
    "Blas",
    "BlasLt",
    "BlasRequest",
    "Context",
    "CudaKernel",
    "CustomEpilogue",
    "DeadLetter",
    "DelayedScaling",
    "DependencyFailed",
    "DequantizeRequest",
    "Device",
    "DeviceEnded",
    "DeviceFacts",
    "DeviceFault",
    "DeviceLost",
    "DeviceRestarted",
    "DeviceStats",
    "Directive",
    "DropoutRequest",
    "DurableGroup",
    "ElementwiseActor",
    "Epilogue",
    "Float8",
    "Fused",
    "GatedGradient",
    "GpuRef",
    "GpuRefStale",
    "GroupedRequest",
    "InvalidRequest",
    "Kernel",
    "Lane",
    "LibraryError",
    "Mailbox",
    "MailboxFull",
    "MatmulRequest",
    "MatmulResult",
    "MemoryStats",
    "NoCudaArrayInterface",
    "NoReply",
    "NormGradient",
    "NormGradientRequest",
    "NormRequest",
    "NormResult",
    "NumbaKernel",
    "OneForOne",
    "OutOfMemory",
    "Pipeline",
    "Plan",
    "PlanQuarantined",
    "PlanSpec",
    "Pool",
    "QuantizeRequest",
    "QuantizeResult",
    "Records",
    "Reply",
    "ReplyTo",
    "RopeRequest",
    "SgdRequest",
    "Supervision",
    "Suspect",
    "System",
    "SystemStats",
    "TensorMap",
    "Terminated",
    "UnhandledMessage",
    "Unsupported",
    "__version__",
    "device_function",
    "epilogues",
    "gather",
    "handler",
    "observe",
]


def __getattr__(name: str) -> Any:
    if name in ("epilogues", "observe"):
        return importlib.import_module(f".{name}", __name__)  # which sets the attribute
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
