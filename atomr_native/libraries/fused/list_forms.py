"""How the methods of the fused actor give lists of parameters, and how these become requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Final

from ...plans.calls import CallForm
from .optimizer_lists import AdamWListRequest, SgdListRequest

__all__ = ["ADAMW_LIST", "COLLECTIONS", "SGD_LIST", "list_values"]

#: Types of collections of parameters.
COLLECTIONS: Final = (list, tuple, dict)


def list_values(
    request: Callable[..., Any], lists: dict[str, Any], master: Any, options: dict[str, Any]
) -> tuple[Any, ...]:
    """Return the values of a call: names and master weights, options, and the arrays, one collection after the other.

    Collections that do not fit each other are refused by the request, which is made for that.
    """
    param = lists["param"]
    arrays: list[Any] = []
    if isinstance(param, dict):
        names: tuple[Any, ...] | None = tuple(param)
        for given in lists.values():
            if not isinstance(given, dict) or given.keys() != param.keys():
                request(**lists, master=master, **options)
            arrays += param.values() if given is param else [given[name] for name in param]
        masters = None
        if master is not None:
            if not isinstance(master, dict) or not master.keys() <= param.keys():
                request(**lists, master=master, **options)
            masters = [master.get(name) for name in param]
    else:
        names = None
        for given in lists.values():
            if not isinstance(given, list | tuple) or len(given) != len(param):
                request(**lists, master=master, **options)
            arrays += given
        masters = master
        if master is not None and (not isinstance(master, list | tuple) or len(master) != len(param)):
            request(**lists, master=master, **options)
    which = None
    if masters is not None:
        which = tuple(one is not None for one in masters)
        arrays += [one for one in masters if one is not None]
    return ((len(param), names, which), *options.values(), *arrays)


def _form(request: Any, lists: tuple[str, ...], options: str, kinds: bytes) -> CallForm:
    """Return the form of a request class: its collections, options and numbers."""
    names = tuple(options.split())
    defaults = {f.name: None if f.default is MISSING else f.default for f in fields(request)}

    def unpack(values: tuple[Any, ...]) -> Any:
        (count, keys, which), given = values[0], values[1 : len(names) + 1]
        arrays = values[len(names) + 1 :]
        found: dict[str, Any] = {name: arrays[i * count : (i + 1) * count] for i, name in enumerate(lists)}
        if which is not None:
            rest = iter(arrays[len(lists) * count :])
            found["master"] = tuple(next(rest) if there else None for there in which)
        if keys is not None:
            found = {name: dict(zip(keys, arrays, strict=True)) for name, arrays in found.items()}
        return request(**found, **dict(zip(names, given, strict=True)))

    def pack(made: Any) -> tuple[Any, ...]:
        given = {name: getattr(made, name) for name in lists}
        return list_values(request, given, made.master, {name: getattr(made, name) for name in names})

    return CallForm(unpack, pack, ("lists", *names), b"o" + kinds, (None, *(defaults[name] for name in names)), b"a")


ADAMW_LIST: Final = _form(
    AdamWListRequest, ("param", "grad", "m", "v"), "lr beta1 beta2 eps weight_decay step", b"nnnnnn"
)
SGD_LIST: Final = _form(SgdListRequest, ("param", "grad", "m"), "nesterov lr momentum weight_decay", b"onnn")
