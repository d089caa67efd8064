"""Recorded programs: plans whose one message runs recorded messages in order."""

from .._contract import Aliasing, Library, Operation

LIBRARY = Library(
    name="program",
    summary="Recorded programs.",
    actor="",
    operations=(
        Operation(
            "program.replay",
            Aliasing.DISJOINT,
            "build:build_program",
            "build:build_program",
            attributes="attributes:ProgramAttributes",
        ),
    ),
)
