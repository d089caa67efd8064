"""GPU work as messages to supervised actors: cheap to send, and safe from faults of the worker.

Start with `System`; see README.md and docs/architecture.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import ActorStopped as ActorStopped
from .errors import AskTimeout as AskTimeout
from .errors import AtomrError as AtomrError
from .errors import DependencyFailed as DependencyFailed
from .errors import DeviceFault as DeviceFault
from .errors import DeviceLost as DeviceLost
from .errors import FactorizationError as FactorizationError
from .errors import GpuRefStale as GpuRefStale
from .errors import InvalidAxis as InvalidAxis
from .errors import InvalidRequest as InvalidRequest
from .errors import LibraryError as LibraryError
from .errors import LoopLimitReached as LoopLimitReached
from .errors import MailboxFull as MailboxFull
from .errors import MessageCall as MessageCall
from .errors import NestedCall as NestedCall
from .errors import NoArrayOperator as NoArrayOperator
from .errors import NoCudaArrayInterface as NoCudaArrayInterface
from .errors import NodeLost as NodeLost
from .errors import NoReply as NoReply
from .errors import NotConverged as NotConverged
from .errors import NotPositiveDefinite as NotPositiveDefinite
from .errors import OutOfMemory as OutOfMemory
from .errors import PlanQuarantined as PlanQuarantined
from .errors import SingularMatrix as SingularMatrix
from .errors import Suspect as Suspect
from .errors import UnhandledMessage as UnhandledMessage
from .errors import UnknownOption as UnknownOption
from .errors import Unsupported as Unsupported

if TYPE_CHECKING:
    from . import array_api as array_api
    from . import observe as observe
    from .actors._handlers import handler as handler
    from .actors.actor import Actor as Actor
    from .actors.answer import Answer as Answer
    from .actors.answer import ReplyTo as ReplyTo
    from .actors.context import Context as Context
    from .actors.mailbox import Mailbox as Mailbox
    from .actors.messages import DeviceEnded as DeviceEnded
    from .actors.messages import DeviceRestarted as DeviceRestarted
    from .actors.messages import Terminated as Terminated
    from .actors.pipeline import Pipeline as Pipeline
    from .actors.pool import Pool as Pool
    from .actors.ref import ActorRef as ActorRef
    from .actors.supervision import AllForOne as AllForOne
    from .actors.supervision import Directive as Directive
    from .actors.supervision import OneForOne as OneForOne
    from .actors.supervision import Supervision as Supervision
    from .arrays.gpu_ref import GpuRef as GpuRef
    from .communicators.communicator import Communicator as Communicator
    from .communicators.communicator import CommunicatorStats as CommunicatorStats
    from .communicators.durable import CommunicatorGroup as CommunicatorGroup
    from .communicators.plan import CollectivePlan as CollectivePlan
    from .communicators.recording import CommunicatorProgram as CommunicatorProgram
    from .communicators.recording import CommunicatorRecording as CommunicatorRecording
    from .communicators.reply import CollectiveReply as CollectiveReply
    from .communicators.request import CollectiveRequest as CollectiveRequest
    from .device import Device as Device
    from .interop.shared import SharedArray as SharedArray
    from .libraries.blas.actor import Blas as Blas
    from .libraries.blas.request import BlasRequest as BlasRequest
    from .libraries.blas_lt import epilogues as epilogues
    from .libraries.blas_lt.actor import BlasLt as BlasLt
    from .libraries.blas_lt.custom_epilogue import CustomEpilogue as CustomEpilogue
    from .libraries.blas_lt.epilogue import Epilogue as Epilogue
    from .libraries.blas_lt.grouped import GroupedRequest as GroupedRequest
    from .libraries.blas_lt.request import MatmulRequest as MatmulRequest
    from .libraries.blas_lt.request import MatmulResult as MatmulResult
    from .libraries.cudnn.activations import ActivationFunctionGradientRequest as ActivationFunctionGradientRequest
    from .libraries.cudnn.activations import ActivationFunctionRequest as ActivationFunctionRequest
    from .libraries.cudnn.actor import Cudnn as Cudnn
    from .libraries.cudnn.attention import AttentionGradientRequest as AttentionGradientRequest
    from .libraries.cudnn.attention import AttentionRequest as AttentionRequest
    from .libraries.cudnn.attention_float8 import Float8AttentionGradientRequest as Float8AttentionGradientRequest
    from .libraries.cudnn.attention_float8 import Float8AttentionRequest as Float8AttentionRequest
    from .libraries.cudnn.convolution import ConvolutionDataGradientRequest as ConvolutionDataGradientRequest
    from .libraries.cudnn.convolution import ConvolutionFilterGradientRequest as ConvolutionFilterGradientRequest
    from .libraries.cudnn.convolution import ConvolutionRequest as ConvolutionRequest
    from .libraries.cudnn.ctc import CtcLossRequest as CtcLossRequest
    from .libraries.cudnn.graph import GraphRequest as GraphRequest
    from .libraries.cudnn.norms import NormalizationGradientRequest as NormalizationGradientRequest
    from .libraries.cudnn.norms import NormalizationRequest as NormalizationRequest
    from .libraries.cudnn.pooling import PoolingGradientRequest as PoolingGradientRequest
    from .libraries.cudnn.pooling import PoolingRequest as PoolingRequest
    from .libraries.cudnn.recurrent import RecurrentGradientRequest as RecurrentGradientRequest
    from .libraries.cudnn.recurrent import RecurrentRequest as RecurrentRequest
    from .libraries.cudnn.recurrent_shapes import RecurrentWeights as RecurrentWeights
    from .libraries.cudnn.response import ResponseNormalizationGradientRequest as ResponseNormalizationGradientRequest
    from .libraries.cudnn.response import ResponseNormalizationRequest as ResponseNormalizationRequest
    from .libraries.cudnn.softmax import SoftmaxGradientRequest as SoftmaxGradientRequest
    from .libraries.cudnn.softmax import SoftmaxRequest as SoftmaxRequest
    from .libraries.cudnn.traced import GraphTensor as GraphTensor
    from .libraries.cutlass.actor import Cutlass as Cutlass
    from .libraries.cutlass.bound import BoundGemm as BoundGemm
    from .libraries.cutlass.config import GemmConfig as GemmConfig
    from .libraries.cutlass.convolution import FusedConvolutionRequest as FusedConvolutionRequest
    from .libraries.cutlass.epilogue import EpilogueTree as EpilogueTree
    from .libraries.cutlass.grouped import GroupedGemmRequest as GroupedGemmRequest
    from .libraries.cutlass.request import GemmRequest as GemmRequest
    from .libraries.elementwise.actor import ElementwiseActor as ElementwiseActor
    from .libraries.elementwise.request import ElementwiseRequest as ElementwiseRequest
    from .libraries.elementwise.request import ReduceRequest as ReduceRequest
    from .libraries.elementwise.request import SoftmaxCrossEntropyRequest as SoftmaxCrossEntropyRequest
    from .libraries.elementwise.request import SoftmaxCrossEntropyResult as SoftmaxCrossEntropyResult
    from .libraries.fft.actor import Fft as Fft
    from .libraries.fft.cosine import DctRequest as DctRequest
    from .libraries.fft.frames import IstftRequest as IstftRequest
    from .libraries.fft.frames import StftRequest as StftRequest
    from .libraries.fft.half import HalfFftRequest as HalfFftRequest
    from .libraries.fft.many import FftLayout as FftLayout
    from .libraries.fft.request import FftRequest as FftRequest
    from .libraries.fft.shift import FftShiftRequest as FftShiftRequest
    from .libraries.fft.sources import CudaFunction as CudaFunction
    from .libraries.float8.actor import Float8 as Float8
    from .libraries.float8.request import DelayedScaling as DelayedScaling
    from .libraries.float8.request import DequantizeRequest as DequantizeRequest
    from .libraries.float8.request import QuantizeRequest as QuantizeRequest
    from .libraries.float8.request import QuantizeResult as QuantizeResult
    from .libraries.fused.actor import Fused as Fused
    from .libraries.fused.norms import NormGradient as NormGradient
    from .libraries.fused.norms import NormGradientRequest as NormGradientRequest
    from .libraries.fused.norms import NormRequest as NormRequest
    from .libraries.fused.norms import NormResult as NormResult
    from .libraries.fused.optimizer_lists import AdamWListRequest as AdamWListRequest
    from .libraries.fused.optimizer_lists import SgdListRequest as SgdListRequest
    from .libraries.fused.optimizers import AdamWRequest as AdamWRequest
    from .libraries.fused.optimizers import SgdRequest as SgdRequest
    from .libraries.fused.positions import DropoutRequest as DropoutRequest
    from .libraries.fused.positions import RopeRequest as RopeRequest
    from .libraries.fused.request import ActivationGradientRequest as ActivationGradientRequest
    from .libraries.fused.request import ActivationRequest as ActivationRequest
    from .libraries.fused.request import GatedGradient as GatedGradient
    from .libraries.kernel.actor import Kernel as Kernel
    from .libraries.kernel.cuda_kernel import CudaKernel as CudaKernel
    from .libraries.kernel.cuda_kernel import device_function as device_function
    from .libraries.kernel.numba_kernel import NumbaKernel as NumbaKernel
    from .libraries.kernel.spec import Records as Records
    from .libraries.kernel.tensor_map import TensorMap as TensorMap
    from .libraries.random.actor import Random as Random
    from .libraries.random.choices import ChoiceRequest as ChoiceRequest
    from .libraries.random.engines import CurandEngine as CurandEngine
    from .libraries.random.generator import Generator as Generator
    from .libraries.random.generator import RandomRange as RandomRange
    from .libraries.random.permutations import PermutationRequest as PermutationRequest
    from .libraries.random.permutations import ShuffleRequest as ShuffleRequest
    from .libraries.random.request import RandomRequest as RandomRequest
    from .libraries.solver.actor import Solver as Solver
    from .libraries.solver.decomposition import DecompositionRequest as DecompositionRequest
    from .libraries.solver.decomposition import EighResult as EighResult
    from .libraries.solver.decomposition import EigResult as EigResult
    from .libraries.solver.decomposition import QRFactors as QRFactors
    from .libraries.solver.decomposition import QRResult as QRResult
    from .libraries.solver.decomposition import SVDResult as SVDResult
    from .libraries.solver.decomposition import TwoSidedEigResult as TwoSidedEigResult
    from .libraries.solver.eigen_range_request import EigenRangeRequest as EigenRangeRequest
    from .libraries.solver.eigen_range_request import EighRangeResult as EighRangeResult
    from .libraries.solver.functions import PolarResult as PolarResult
    from .libraries.solver.least_squares import LstsqResult as LstsqResult
    from .libraries.solver.refinement import RefinedResult as RefinedResult
    from .libraries.solver.refinement_request import RefinementRequest as RefinementRequest
    from .libraries.solver.request import LDLFactors as LDLFactors
    from .libraries.solver.request import LUFactors as LUFactors
    from .libraries.solver.request import SignLogDet as SignLogDet
    from .libraries.solver.request import SolverRequest as SolverRequest
    from .libraries.sparse.actor import Sparse as Sparse
    from .libraries.sparse.combine import SparsePattern as SparsePattern
    from .libraries.sparse.conversions import PatternFacts as PatternFacts
    from .libraries.sparse.direct.solver import DirectSolver as DirectSolver
    from .libraries.sparse.factors import SparseFactorRequest as SparseFactorRequest
    from .libraries.sparse.iterative import IterativeResult as IterativeResult
    from .libraries.sparse.iterative import IterativeSolver as IterativeSolver
    from .libraries.sparse.matrix import SparseMatrix as SparseMatrix
    from .libraries.sparse.request import SparseProductRequest as SparseProductRequest
    from .libraries.sparse.semiring import SparseSemiringRequest as SparseSemiringRequest
    from .libraries.sparse.structured.matrix import StructuredMatrix as StructuredMatrix
    from .libraries.sparse.structured.request import StructuredCompressRequest as StructuredCompressRequest
    from .libraries.sparse.structured.request import StructuredProductRequest as StructuredProductRequest
    from .libraries.sparse.structured.request import StructuredPruneRequest as StructuredPruneRequest
    from .libraries.sparse.structured.routes import StructuredRoute as StructuredRoute
    from .libraries.sparse.triangular import SparseSolveRequest as SparseSolveRequest
    from .libraries.tensor.actor import Tensor as Tensor
    from .libraries.tensor.block_request import BlockContractionRequest as BlockContractionRequest
    from .libraries.tensor.blocks import BlockTensor as BlockTensor
    from .libraries.tensor.elementwise import TensorElementwiseRequest as TensorElementwiseRequest
    from .libraries.tensor.explain import EinsumPath as EinsumPath
    from .libraries.tensor.explain import EinsumStep as EinsumStep
    from .libraries.tensor.reduction import TensorReduceRequest as TensorReduceRequest
    from .libraries.tensor.request import EinsumRequest as EinsumRequest
    from .memory.groups import DurableGroup as DurableGroup
    from .memory.saved_groups import SavedGroup as SavedGroup
    from .plans.actor import Lane as Lane
    from .plans.plan import Plan as Plan
    from .plans.reply import Reply as Reply
    from .plans.reply import gather as gather
    from .plans.spec import PlanSpec as PlanSpec
    from .recording.control import RecordedBlock as RecordedBlock
    from .recording.control import RecordedCases as RecordedCases
    from .recording.graph import GraphFunction as GraphFunction
    from .recording.graph import Recording as Recording
    from .recording.plan import RecordedPlan as RecordedPlan
    from .recording.plan import RecordedStep as RecordedStep
    from .recording.plan import Replays as Replays
    from .runtime.dead_letters import DeadLetter as DeadLetter
    from .runtime.listing import DeviceListing as DeviceListing
    from .runtime.statistics import DeviceFacts as DeviceFacts
    from .runtime.statistics import DeviceStats as DeviceStats
    from .runtime.statistics import MemoryStats as MemoryStats
    from .runtime.statistics import SystemStats as SystemStats
    from .system import System as System

__version__ = "0.1.0"

#: Public names and their modules.  They are loaded on use, so importing the package is cheap.  Names of libraries are
#: in their descriptors.
_FACE = {
    "Actor": "actors.actor",
    "ActorRef": "actors.ref",
    "AllForOne": "actors.supervision",
    "Answer": "actors.answer",
    "CollectivePlan": "communicators.plan",
    "CollectiveReply": "communicators.reply",
    "CollectiveRequest": "communicators.request",
    "Communicator": "communicators.communicator",
    "CommunicatorGroup": "communicators.durable",
    "SharedArray": "interop.shared",
    "CommunicatorStats": "communicators.communicator",
    "CommunicatorProgram": "communicators.recording",
    "CommunicatorRecording": "communicators.recording",
    "Context": "actors.context",
    "DeadLetter": "runtime.dead_letters",
    "Device": "device",
    "DeviceEnded": "actors.messages",
    "DeviceFacts": "runtime.statistics",
    "DeviceListing": "runtime.listing",
    "DeviceRestarted": "actors.messages",
    "DeviceStats": "runtime.statistics",
    "Directive": "actors.supervision",
    "DurableGroup": "memory.groups",
    "GpuRef": "arrays.gpu_ref",
    "GraphFunction": "recording.graph",
    "Lane": "plans.actor",
    "Mailbox": "actors.mailbox",
    "MemoryStats": "runtime.statistics",
    "OneForOne": "actors.supervision",
    "Pipeline": "actors.pipeline",
    "Plan": "plans.plan",
    "PlanSpec": "plans.spec",
    "Pool": "actors.pool",
    "RecordedBlock": "recording.control",
    "RecordedCases": "recording.control",
    "RecordedPlan": "recording.plan",
    "RecordedStep": "recording.plan",
    "Recording": "recording.graph",
    "Replays": "recording.plan",
    "Reply": "plans.reply",
    "ReplyTo": "actors.answer",
    "SavedGroup": "memory.saved_groups",
    "Supervision": "actors.supervision",
    "System": "system",
    "SystemStats": "runtime.statistics",
    "Terminated": "actors.messages",
    "gather": "plans.reply",
    "handler": "actors._handlers",
}
_ERRORS = tuple(name for name in globals() if name[0].isupper() and name not in ("TYPE_CHECKING", "Any"))
_MODULES = {"array_api": "array_api", "epilogues": "libraries.blas_lt.epilogues", "observe": "observe"}


def _exports() -> dict[str, str]:
    from .libraries import EXPORTS

    return EXPORTS


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*_FACE, *_ERRORS, *_MODULES, *_exports(), "__version__"])
    if name in _MODULES:
        globals()[name] = found = importlib.import_module(f".{_MODULES[name]}", __name__)
        return found
    module = _FACE.get(name) or (None if name.startswith("_") else _exports().get(name))
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))
