"""Command line: ``python -m atomr_native doctor``, ``demo``, ``top`` and ``cutlass``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from . import __version__

__all__ = ["main"]

_COMMANDS = {
    "doctor": "check this machine",
    "demo": "train a network by messages, kill its worker half-way, continue from the last commit",
    "top": "show devices, actors, rates and memory of running programs",
    "cutlass": "compile kernels of CUTLASS ahead of time",
}
_MODULES = {"doctor": "doctor", "demo": "demo.cli", "top": "observe.top", "cutlass": "libraries.cutlass.precompile"}
_NO_OUTPUT = 74  # EX_IOERR of sysexits.h


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    argv
        Command and its options; by default the arguments of the process.

    Returns
    -------
    int
        The command's exit status; 2 for a usage error (as `SystemExit`), 74 if the output cannot be written.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in _MODULES:
        return _run(arguments[0], arguments[1:])
    width = max(map(len, _COMMANDS))
    parser = argparse.ArgumentParser(
        prog="python -m atomr_native",
        description="Array work as messages to supervised actors.",
        epilog="commands:\n" + "\n".join(f"  {name:<{width}}  {what}" for name, what in _COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"atomr_native {__version__}")
    parser.add_argument(
        "command", choices=_COMMANDS, metavar="command", help="doctor, demo, top or cutlass; each has a --help"
    )
    parser.parse_args(arguments)  # raises SystemExit: no command, an unknown one, --help or --version
    return 2


def _run(command: str, arguments: list[str]) -> int:
    """Run a command whose output may be closed (``>&-``) or end before it does (a full disk)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for the rest of the process
    run = importlib.import_module(f".{_MODULES[command]}", __package__).main
    try:
        status: int = run(arguments)
        sys.stdout.flush()
        return status
    except OSError as error:
        if error.filename is not None or sys.stdout is not sys.__stdout__:  # an error of the command, not of its output
            raise
        # Otherwise the interpreter tries again at its end, and prints its own message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stderr.write(f"cannot write the output: {error.strerror}\n")
        return _NO_OUTPUT


if __name__ == "__main__":
    sys.exit(main())
