"""Write what type checkers need of the registry of libraries: attributes of devices, public names.

``python tests/helpers/typed_names.py`` writes the files, as ``make format`` does; with ``--check`` it names those that
are stale.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import atomr_native
from atomr_native.libraries import EXPORTS, LIBRARIES, Library

PACKAGE = Path(__file__).resolve().parents[2] / "atomr_native"
DEVICE = PACKAGE / "device" / "libraries.py"
INIT = PACKAGE / "__init__.py"
_DEVICE = '''"""The library actors of a device.

Generated from the registry of libraries by ``make format``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
{imports}

__all__ = ["DeviceLibraries"]


class DeviceLibraries:
    """The library actors of `Device`, each made at first use."""

    if TYPE_CHECKING:

        def _library(self, name: str) -> Any: ...
'''

_PROPERTY = '''
    @cached_property
    def {name}(self) -> {kind}:
        """{summary}{when}"""
        actor: {kind} = self._library("{name}")
        return actor
'''


def _kind(library: Library) -> tuple[str, str]:
    module, _, kind = library.actor.partition(":")
    return module, kind


def device_source() -> str:
    """Return the source of ``atomr_native/device/libraries.py``."""
    actors = sorted((library for library in LIBRARIES.values() if library.actor), key=lambda library: library.name)
    imports = [f"    from ..libraries.{a.name}.{_kind(a)[0]} import {_kind(a)[1]}" for a in actors]
    source = _DEVICE.format(imports="\n".join(imports))
    for library in actors:
        when = "  Made at first use." if library.opens == "at first use" else ""
        source += _PROPERTY.format(name=library.name, kind=_kind(library)[1], summary=library.summary, when=when)
    return source


def _in_order(imported: tuple[str, str]) -> tuple[str, bool, str]:
    """Return the key by which ruff sorts imports of one name each: classes first."""
    module, name = imported
    return module, name[0].islower(), name.lower()


def init_source() -> str:
    """Return the source of ``atomr_native/__init__.py`` with every public name for type checkers."""
    names = [(f".{module}", name) for name, module in (atomr_native._FACE | EXPORTS).items()]
    names += [("." + module.rpartition(".")[0], name) for name, module in atomr_native._MODULES.items()]
    lines = [f"    from {module} import {name} as {name}\n" for module, name in sorted(names, key=_in_order)]
    return re.sub(
        r"(?<=if TYPE_CHECKING:\n).*?(?=\n__version__)", lambda _: "".join(lines), INIT.read_text("utf-8"), flags=re.S
    )


def stale() -> list[Path]:
    """Return the files that are not as the registry says."""
    found = {DEVICE: device_source(), INIT: init_source()}
    return [path for path, text in found.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit("\n".join(f"{path} is stale; make format writes it" for path in stale()))
    DEVICE.write_text(device_source(), encoding="utf-8")
    INIT.write_text(init_source(), encoding="utf-8")
