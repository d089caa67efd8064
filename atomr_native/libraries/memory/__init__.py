"""Copies and fills, commits and restores of durable groups: the mailbox of ``device.put`` and its like."""

from .._contract import Aliasing, Library, Operation

LIBRARY = Library(
    name="memory",
    summary="Copies and fills, commits and restores of durable groups.",
    actor="",
    operations=(
        Operation(
            "memory.copy",
            Aliasing.UNCHECKED,
            "host.copies:build_copy",
            "cuda.copies:build_copy",
            essential=True,
            attributes="attributes:CopyAttributes",
        ),
        Operation(
            "memory.fill",
            Aliasing.UNCHECKED,
            "host.copies:build_fill",
            "cuda.copies:build_fill",
            essential=True,
        ),
        Operation(
            "memory.workspace",
            Aliasing.UNCHECKED,
            "workspace:build_workspace",
            "workspace:build_workspace",
            essential=True,
        ),
        Operation(
            "group.commit",
            Aliasing.UNCHECKED,
            "host.groups:build_commit",
            "cuda.groups:build_commit",
            essential=True,
            attributes="attributes:GroupAttributes",
        ),
        Operation(
            "group.restore",
            Aliasing.UNCHECKED,
            "host.groups:build_restore",
            "cuda.groups:build_restore",
            essential=True,
            attributes="attributes:GroupAttributes",
        ),
    ),
)
