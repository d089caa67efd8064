"""The runtime's own operations, without which a device is of no use."""

from .._contract import FREE, Aliasing, Library, Operation

LIBRARY = Library(
    name="core",
    summary="Operations of the runtime itself.",
    actor="",
    mailbox=False,
    operations=(
        # Any attributes: they only tell plans apart.
        Operation(
            "noop", Aliasing.UNCHECKED, "builders:build_noop", "builders:build_noop", essential=True, attributes=FREE
        ),
        Operation(
            "quarantined",
            Aliasing.UNCHECKED,
            "builders:build_quarantined",
            "builders:build_quarantined",
            essential=True,
            attributes="builders:QuarantinedAttributes",
        ),
        Operation(
            "test.*",
            Aliasing.UNCHECKED,
            missing="workers build them themselves, where allow_crash is set",
            attributes=FREE,
        ),
    ),
)
