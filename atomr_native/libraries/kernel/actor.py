"""Users' kernels as messages: the base class of `NumbaKernel` and `CudaKernel`.

``kernel[grid, block](x, y, 2.0)`` sends one launch.  A kernel is compiled where it is made, for the architecture of the
device, to machine code that the worker loads; the worker of a GPU needs no compiler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, cast

import numpy as np

from ..._lib.sender import comparable
from ..._support.checks import as_flag, as_strings, is_integer
from ..._support.options import named_methods
from ..._support.recorded import is_recorded, plain
from ...arrays.gpu_ref import GpuRef
from ...errors import InvalidRequest
from ...plans.actor import PlanActor
from ...plans.signature import Signature
from ...plans.spec import READ
from . import spec as _kernel_spec
from .attributes import CompiledKernel, PickledKernel
from .spec import Configuration
from .tensor_map import TensorMap

if TYPE_CHECKING:
    from ...device import Device
    from ...plans.plan import Plan
    from ...plans.reply import Reply
    from ...plans.spec import PlanSpec

__all__ = ["Kernel", "KernelActor", "Launch"]

_ARRAYS = frozenset({"array", "pointer", "records", "record", "tensor_map"})
#: Types of numbers that need no conversion: each has one meaning for a kernel, and takes one word of a message.
_NUMBERS: Final = frozenset(
    {float, int, bool, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
     np.uint64}
)  # fmt: skip
#: The fields of a tensor map, without its array.
_modes_of: Final = attrgetter(*(field.name for field in fields(TensorMap) if field.name != "ref"))
_INT64: Final = (-(2**63), 2**63 - 1)
_LAUNCHES = 4096  # structures of launches that an actor remembers
_CONFIGURATIONS = 1024  # grids and blocks that a kernel remembers


class KernelActor(PlanActor):
    """A mailbox for users' kernels; kernels of one actor run in order, those of several may overlap."""

    def __init__(self, device: Device, name: str) -> None:
        super().__init__(device, name)
        self.launches: dict[tuple[Any, ...], _Call] = {}

    def plan_of(self, spec: PlanSpec, signature: Signature, *, any_layout: frozenset[str]) -> Plan:
        """Return the plan of a specification, for this actor's mailbox."""
        return self._plan(spec, signature, any_layout=any_layout)

    def keep(self, key: tuple[Any, ...], call: _Call) -> None:
        """Remember a launch."""
        with self._plans_lock:
            if len(self.launches) >= _LAUNCHES:
                del self.launches[next(iter(self.launches))]
            self.launches[key] = call

    def _drop(self, plan: Plan) -> None:
        super()._drop(plan)
        for key in [key for key, call in self.launches.items() if call.plan is plan]:
            del self.launches[key]


class _Call(NamedTuple):
    """A prepared launch: its grid, its block and the types of its arguments are known."""

    plan: Plan
    numbers: tuple[int, ...]  # which arguments are numbers
    limits: tuple[tuple[int, int, int], ...]  # position, lowest and highest value of those with a range


@named_methods
class Kernel(ABC):
    """A kernel of one device.

    ``kernel[grid, block](*arguments)`` or ``kernel[grid, block, shared_bytes](*arguments)`` sends one launch.

    Parameters
    ----------
    actor : KernelActor
        Its mailbox takes the launches.
    name : str
        Its name in errors and statistics.
    parameters : tuple of str
        The names of its parameters.
    cluster, cooperative
        See `Device.cuda_kernel`.
    """

    #: Whether indices are checked, so that each launch is waited for.
    checks = False

    def __init__(
        self,
        actor: KernelActor,
        name: str,
        parameters: tuple[str, ...],
        *,
        cluster: object = None,
        cooperative: bool = False,
    ) -> None:
        self.actor = actor
        self.name = name
        self.parameters = parameters
        self._cluster = None if cluster is None else _kernel_spec.cluster(cluster)
        self._cooperative = as_flag("cooperative", cooperative)
        #: By the subscript, and by extents: the keys of remembered launches, which keep no reference to the kernel.
        self._configurations: dict[Any, tuple[Configuration, object]] = {}
        self._identities: dict[tuple[Any, ...], object] = {}

    def __getitem__(self, given: object) -> Launch:
        """Return the kernel with a grid, a block and, if wanted, bytes of dynamic shared memory."""
        key = comparable(given)
        try:
            found = None if key is None else self._configurations.get(key)
        except TypeError:  # a list, which cannot be hashed
            key = found = None
        if found is None:
            made = _kernel_spec.configuration(given, self._cluster, self._cooperative)
            if max(len(self._configurations), len(self._identities)) >= _CONFIGURATIONS:
                self._configurations.clear()
                self._identities.clear()
            found = made, self._identities.setdefault((made.grid, made.block, made.shared), object())
            if key is not None:
                self._configurations[key] = found
        return Launch(self, *found)

    def __call__(self, *arguments: object, **named: object) -> NoReturn:  # noqa: ARG002 - whatever they are
        """Refuse: a launch has a grid and a block."""
        raise InvalidRequest(
            f"kernel {self.name} is called without a grid; allowed: kernel[grid, block](...), kernel.forall(n)(...)"
        )

    def forall(self, n: int, block: int = 256, shared: int = 0) -> Launch:
        """Return the kernel with a one-dimensional grid of at least `n` threads, at least one block.

        `block` is the threads of a block, `shared` its bytes of dynamic shared memory.  The kernel must check its
        thread's number against the size of its arrays.
        """
        if not is_integer(n) or n < 0:
            raise InvalidRequest(f"forall({n!r}); n must be an integer, 0 or more")
        (size, _, _) = _kernel_spec.configuration((1, block, shared)).block
        return self[max(1, -(-n // size)), size, shared]

    def _check_names(self, option: str, names: Iterable[str]) -> frozenset[str]:
        found = frozenset(as_strings(option, names, "parameter names"))
        for name in sorted(found.difference(self.parameters), key=str):
            raise InvalidRequest(f"{option} names {name!r}; parameters of {self.name}: {', '.join(self.parameters)}")
        return found

    @abstractmethod
    def classify(self, name: str, value: object) -> tuple[Any, ...]:
        """Return an argument as (kind, value), see `spec.launch_spec`."""

    def fitted(self, arguments: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the arguments from `classify`, converted where their combination asks for it."""
        return arguments

    @abstractmethod
    def accesses(self, arguments: Sequence[tuple[Any, ...]]) -> dict[str, int]:
        """Return the access to the arrays of each parameter (read, write or both), for these arguments."""

    def limits(self, name: str, kind: type) -> tuple[int, int] | None:  # noqa: ARG002 - of other kernels
        """Return the range of a parameter for numbers of this type; None for no limit."""
        return _INT64 if kind is int or kind is np.uint64 else None

    def configured(self, launch: Configuration, arguments: Sequence[tuple[Any, ...]]) -> Configuration:  # noqa: ARG002
        """Return the configuration of a launch with these arguments."""
        return launch

    @abstractmethod
    def code(self, arguments: Sequence[tuple[Any, ...]]) -> CompiledKernel | PickledKernel:
        """Return the code for these arguments, for a worker.  Compiles and waits the first time."""

    def report(self) -> tuple[GpuRef, ...]:
        """Return the operands of the kernel besides its arguments."""
        return ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}({', '.join(self.parameters)}) on {self.actor.device.name}>"


class Launch:
    """A kernel with its grid and block: call it to send one launch.

    Arguments are `GpuRef` arrays, `Records` (arrays of structs), structs (NumPy scalars with fields), numbers, and
    tuples of all these except structs; kernels in CUDA C++ also take a `TensorMap`.  Python's integers are int64 in a
    Numba kernel and its floats float64; NumPy scalars keep their types.
    """

    def __init__(self, kernel: Kernel, launch: Configuration, identity: object) -> None:
        self.kernel = kernel
        self.configuration = launch
        self._identity = identity

    def __call__(self, *arguments: Any, uses: Sequence[GpuRef] = ()) -> Reply:
        """Send one launch and return its reply.  Enqueues; the first call with new types waits for the compiler.

        Parameters
        ----------
        *arguments
            The kernel's, all of them, by position.
        uses : sequence of GpuRef
            Memory that the kernel reaches without an argument, for example by addresses in an array.

        Raises
        ------
        InvalidRequest, Unsupported, LibraryError, GpuRefStale, MailboxFull, DeviceLost
        """
        return cast("Reply", self._send(arguments, uses, True))

    def tell(self, *arguments: Any, uses: Sequence[GpuRef] = ()) -> None:
        """Send one launch without a reply; a failure goes to the dead letters."""
        self._send(arguments, uses, False)

    def plan(self, *arguments: Any, uses: Sequence[GpuRef] = ()) -> Plan:
        """Return the plan of this launch: ``plan.tell(x, y, factor=2.0)``, arrays by position and numbers by name.

        Arrays lend their layouts; numbers are the defaults of later messages.  Waits for the compiler, not for the
        worker.
        """
        return self._prepare(arguments, uses)[0]

    def _send(self, arguments: tuple[Any, ...], uses: Sequence[GpuRef], reply: bool) -> Reply | None:
        key: list[Any] = [self._identity]
        refs: list[GpuRef] = []
        for value in arguments:
            kind = value.__class__
            if kind is GpuRef:
                key.append(value.layout)
                refs.append(value)
            elif kind in _NUMBERS:
                key.append(kind)
            elif kind is TensorMap:
                key += (kind, value.ref.layout, *_modes_of(value))
                refs.append(value.ref)
            else:
                return self._send_slowly(arguments, uses, reply)
        if uses.__class__ is not tuple or uses:
            if not isinstance(uses, list | tuple) or not all(ref.__class__ is GpuRef for ref in uses):
                return self._send_slowly(arguments, uses, reply)
            key.append(len(uses))
            refs += uses
        if self.kernel.checks:
            return self._send_slowly(arguments, uses, reply)
        actor = self.kernel.actor
        found = tuple(key)
        call = actor.launches.get(found)
        if call is None:
            plan, sent, values = self._prepare(arguments, uses)
            call = self._call(plan, arguments)
            if len(values) != len(call.numbers):  # a number became a complex one, by a signature
                answer: Reply | None = plan.send(sent, values, reply)
                return answer
            actor.keep(found, call)
        for at, low, high in call.limits:
            if not low <= arguments[at] <= high:
                return self._send_slowly(arguments, uses, reply)
        sent_reply: Reply | None = call.plan.send(tuple(refs), tuple([arguments[i] for i in call.numbers]), reply)
        return sent_reply

    def _record(self, arguments: tuple[Any, ...], uses: Sequence[GpuRef], reply: bool) -> Reply | None:
        """Send inside a recording, with recorded numbers perhaps."""
        if self.kernel.checks:
            raise InvalidRequest(
                f"kernel {self.kernel.name} with debug=True inside a recording: the lane would wait for its report; "
                f"allowed: debug=False"
            )
        values = tuple(map(plain, arguments))
        plan, refs, scalars = self._prepare(values, uses)
        recorded = [i for i, value in enumerate(arguments) if is_recorded(value)]
        if recorded:
            numbers = self._call(plan, values).numbers
            if len(numbers) != len(scalars):
                raise InvalidRequest(
                    f"kernel {self.kernel.name} takes {arguments[recorded[0]]!r} beside structs, tuples or complex "
                    f"numbers; allowed with recorded numbers: arrays and real numbers"
                )
            scalars = tuple(
                arguments[i] if i in recorded else scalar for i, scalar in zip(numbers, scalars, strict=True)
            )
        answer: Reply | None = plan.send(refs, scalars, reply)
        return answer

    def _call(self, plan: Plan, arguments: tuple[Any, ...]) -> _Call:
        """Return the prepared launch for later arguments of these types."""
        numbers = tuple(i for i, value in enumerate(arguments) if value.__class__ in _NUMBERS)
        limits = []
        for i in numbers:
            limit = self.kernel.limits(self.kernel.parameters[i], arguments[i].__class__)
            if limit is not None:
                limits.append((i, *limit))
        return _Call(plan, numbers, tuple(limits))

    def _send_slowly(self, arguments: tuple[Any, ...], uses: Sequence[GpuRef], reply: bool) -> Reply | None:
        if self.kernel.actor.owner.core.recorder() is not None:
            return self._record(arguments, uses, reply)
        plan, refs, values = self._prepare(arguments, uses)
        answer: Reply | None = plan.send(refs, values, reply)
        return answer

    def _prepare(
        self, arguments: tuple[Any, ...], uses: Sequence[GpuRef]
    ) -> tuple[Plan, tuple[GpuRef, ...], tuple[int | float, ...]]:
        kernel = self.kernel
        if len(arguments) != len(kernel.parameters):
            raise InvalidRequest(
                f"kernel {kernel.name} takes {len(kernel.parameters)} arguments ({', '.join(kernel.parameters)}), "
                f"got {len(arguments)}"
            )
        if not isinstance(uses, list | tuple):  # a GpuRef has items, too
            raise InvalidRequest(f"uses is {uses!r}; allowed: a list or tuple of GpuRefs")
        for i, ref in enumerate(uses):
            if not isinstance(ref, GpuRef):
                raise InvalidRequest(f"uses[{i}] is a {type(ref).__name__}; allowed: GpuRefs")
        found = kernel.fitted([kernel.classify(n, v) for n, v in zip(kernel.parameters, arguments, strict=True)])
        every = [part for part in _kernel_spec.flattened(kernel.parameters, found) if part[2] in _ARRAYS]
        refs = [_kernel_spec.ref_of(value) for *_, value in every]
        of_parameters = kernel.accesses(found)
        access = {name: READ if kind == "record" else of_parameters[of or name] for name, of, kind, _ in every}
        code = kernel.code(found)
        report = kernel.report()
        spec, numbers = _kernel_spec.launch_spec(
            f"kernel.{kernel.name}",
            kernel.parameters,
            found,
            access,
            uses,
            report,
            kernel.configured(self.configuration, found),
            code,
        )
        operands = tuple(operand.name for operand in spec.operands)
        signature = Signature(operands, operands, (), *numbers)
        plan = kernel.actor.plan_of(spec, signature, any_layout=frozenset(f"uses[{i}]" for i in range(len(uses))))
        return plan, (*refs, *uses, *report), numbers.values

    def __repr__(self) -> str:
        c = self.configuration
        return f"<Launch {self.kernel.name}[{c.grid}, {c.block}{f', {c.shared}' if c.shared else ''}]>"
