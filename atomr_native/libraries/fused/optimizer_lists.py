"""Requests of the fused actor: steps of AdamW and of SGD with momentum over many parameters, in one message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from ..._support.checks import check_flag
from ..._support.public import public
from ...arrays.operands import check_disjoint
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, read
from .attributes import AdamWListAttributes, SgdListAttributes
from .optimizers import adamw_scalars, sgd_scalars, state_operands

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["AdamWListRequest", "SgdListRequest"]

#: Operands of a message at most.
_OPERANDS: Final = 240


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWListRequest(Request[list["GpuRef"]]):
    """One step of AdamW for many parameters, in place, by one launch on a GPU; checked when it is made.

    The step of each parameter has the bits of an `AdamWRequest` with the same numbers.  Shapes and dtypes of parameters
    may differ.  Collections are lists or tuples of one length, or dicts with the same keys.  A message holds 240
    arrays: 60 parameters without master weights, or 48 with them.

    Parameters
    ----------
    param, grad, m, v
        Collections of arrays, as `AdamWRequest` takes them.  No array that is written shares memory with another.
    step : int
        Number of this step, from 1 on.
    lr, beta1, beta2, eps, weight_decay : float
    master
        Collection of the float32 weights of bfloat16 parameters.  None in a list, or a key that is missing in a dict,
        stands for a parameter without them.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the parameter, the value and the allowed ones.

    Examples
    --------
    >>> shapes = [(2,), (3, 2)]
    >>> param, grad = ([device.ones(shape, "float32") for shape in shapes] for _ in range(2))
    >>> m, v = ([device.zeros(shape, "float32") for shape in shapes] for _ in range(2))
    >>> request = an.AdamWListRequest(param=param, grad=grad, m=m, v=v, step=1, lr=0.5, weight_decay=0.0)
    >>> [float(made.numpy().max()) for made in device.fused.tell(request)]
    [0.5, 0.5]
    """

    param: Any
    grad: Any
    m: Any
    v: Any
    step: int
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-2
    master: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message.

        Operands are those of the parameters, one after the other: ``grad0, param0, m0, v0, [master0], grad1, ...``.
        """
        operands, masters = _operands(self, ("m", "v"))
        return Lowered(
            op="fused.adamw_list",
            operands=operands,
            collect=partial(_collect, len(masters)),
            attributes=AdamWListAttributes(masters=masters),
            scalars=adamw_scalars(self),
        )


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class SgdListRequest(Request[list["GpuRef"]]):
    """One step of SGD with momentum for many parameters, in place, by one launch on a GPU; checked when it is made.

    The step of each parameter has the bits of an `SgdRequest` with the same numbers.  A message holds 240 arrays: 80
    parameters without master weights, or 60 with them.

    Parameters
    ----------
    param, grad, master
        As for `AdamWListRequest`.
    m
        Collection of the momenta; float32, zeros in the beginning.
    lr, momentum, weight_decay : float
    nesterov : bool
        Whether the step looks ahead.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the parameter, the value and the allowed ones.

    Examples
    --------
    >>> param, grad, m = ({"w": device.ones((2, 2), "float32"), "b": device.ones(2, "float32")} for _ in range(3))
    >>> w, b = device.fused.tell(an.SgdListRequest(param=param, grad=grad, m=m, lr=0.5, momentum=1.0))
    >>> b is param["b"], b.numpy()
    (True, array([0., 0.], dtype=float32))
    """

    param: Any
    grad: Any
    m: Any
    lr: float = 1e-2
    momentum: float = 0.9
    weight_decay: float = 0.0
    nesterov: bool = False
    master: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message, whose operands are ``grad0, param0, m0, [master0], grad1, ...``."""
        check_flag("nesterov", self.nesterov)
        operands, masters = _operands(self, ("m",))
        return Lowered(
            op="fused.sgd_list",
            operands=operands,
            collect=partial(_collect, len(masters)),
            attributes=SgdListAttributes(masters=masters, nesterov=self.nesterov),
            scalars=sgd_scalars(self),
        )


def _collect(count: int, arrays: Mapping[str, Any]) -> list[Any]:
    return [arrays[f"param{i}"] for i in range(count)]


def _operands(request: Any, state: tuple[str, ...]) -> tuple[tuple[Operand, ...], tuple[bool, ...]]:
    """Check the collections; return the operands of all parameters, and which of these have master weights."""
    keys = _keys(request.param)
    lists = {name: _in_order(name, getattr(request, name), request.param, keys) for name in ("param", "grad", *state)}
    masters = _masters(request.master, request.param, keys)
    count = len(keys) * len(lists) + sum(master is not None for master in masters)
    if count > _OPERANDS:
        raise InvalidRequest(
            f"{len(keys)} parameters with their state are {count} arrays; a message holds at most {_OPERANDS}: send "
            f"several messages"
        )
    operands: list[Operand] = []
    for i, key in enumerate(keys):
        one = {name: arrays[i] for name, arrays in lists.items()}
        param, grad = one.pop("param"), one.pop("grad")
        try:
            found = state_operands(param, grad, one, masters[i])[2]
        except InvalidRequest as error:
            raise InvalidRequest(f"parameter {key!r}: {error.message}") from None
        operands += [o._replace(spec=replace(o.spec, name=f"{o.name}{i}")) for o in found]
    read_only = read("grad", lists["grad"][0]).spec.access
    check_disjoint(
        [(o.name, o.given) for o in operands if o.spec.access != read_only],
        [(o.name, o.given) for o in operands if o.spec.access == read_only],
    )
    return tuple(operands), tuple(master is not None for master in masters)


def _keys(param: Any) -> list[Any]:
    """Return the names of parameters: keys of a dict, or numbers."""
    if not isinstance(param, list | tuple | dict):
        raise InvalidRequest(f"param is a {type(param).__name__}; allowed: a list, a tuple or a dict of arrays")
    if not param:
        raise InvalidRequest(f"param={param!r}; allowed: at least one array")
    return list(param) if isinstance(param, dict) else list(range(len(param)))


def _in_order(name: str, given: Any, param: Any, keys: list[Any]) -> list[Any]:
    """Return the arrays of a collection in the order of the parameters."""
    if isinstance(param, dict):
        if not isinstance(given, dict) or given.keys() != param.keys():
            found = f"the keys {list(given)}" if isinstance(given, dict) else f"the type {type(given).__name__}"
            raise InvalidRequest(f"{name} has {found}; allowed: a dict with the keys of param, {keys}")
        return [given[key] for key in keys]
    if not isinstance(given, list | tuple) or len(given) != len(keys):
        found = f"{len(given)} arrays" if isinstance(given, list | tuple) else f"the type {type(given).__name__}"
        raise InvalidRequest(f"{name} has {found}; allowed: a list or a tuple of as many as param, {len(keys)}")
    return list(given)


def _masters(given: Any, param: Any, keys: list[Any]) -> list[Any]:
    """Return the master weights of each parameter, or None."""
    if given is None:
        return [None] * len(keys)
    if isinstance(param, dict) and isinstance(given, dict):
        if surplus := [key for key in given if key not in param]:
            raise InvalidRequest(f"master has the keys {surplus}; allowed: those of param, {keys}")
        return [given.get(key) for key in keys]
    return _in_order("master", given, param, keys)
