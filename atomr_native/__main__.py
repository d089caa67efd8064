"""Command line: ``python -m atomr_native doctor``, ``demo`` and ``top``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

__all__ = ["main"]

_COMMANDS = {
    "doctor": "say what works on this machine",
    "demo": "train a network by messages, kill its worker half-way, go on from the last commit",
    "top": "show devices, actors, rates and memory of running programs",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    argv
        Command and its options; those of the process by default.

    Returns
    -------
    int
        What the command says; 2 for a usage error (as `SystemExit`).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] == "doctor":
        from .doctor import main as doctor

        return doctor(arguments[1:])
    if arguments and arguments[0] == "demo":
        from .demo.cli import main as demo

        return demo(arguments[1:])
    if arguments and arguments[0] == "top":
        from .observe.top import main as top

        return top(arguments[1:])
    width = max(map(len, _COMMANDS))
    parser = argparse.ArgumentParser(
        prog="python -m atomr_native",
        description="Array work as messages to supervised actors.",
        epilog="commands:\n" + "\n".join(f"  {name:<{width}}  {what}" for name, what in _COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=_COMMANDS, metavar="command", help="doctor, demo or top; each has a --help")
    parser.parse_args(arguments)  # leaves by SystemExit: no command, an unknown one, or --help
    return 2


if __name__ == "__main__":
    sys.exit(main())
