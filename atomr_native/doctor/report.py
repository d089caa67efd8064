"""The doctor's report as tables."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .model import Library, Report

__all__ = ["show"]

_COLOURS = {"ok": "green", "failed": "red", "skipped": "yellow", "info": "blue", "missing": "yellow"}


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", expand=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _coloured(status: str) -> str:
    return f"[{_COLOURS[status]}]{status}[/]"


def _library_row(library: Library) -> tuple[str, str, str, str, str]:
    if library.found:
        cuda = "?" if library.cuda_major is None else str(library.cuda_major)
        place = library.error or library.file or "?"
        return library.name, _coloured("failed" if library.error else "ok"), library.version or "?", cuda, escape(place)
    packages = " or ".join(dict.fromkeys(library.packages.values()))
    note = f"{library.error or 'not installed'}; pip install {packages}"
    return library.name, _coloured("missing"), "", "", escape(note)


def show(report: Report, console: Console) -> None:
    """Print the report: its tables and the verdict."""
    about = _table("This machine", "what", "value")
    for name, value in report.versions.items():
        about.add_row(name, escape(value))
    driver = report.driver
    about.add_row("CUDA driver", escape(f"serves CUDA {driver.version}, {driver.file}" if driver.version else "none"))
    if driver.error:
        about.add_row("", escape(driver.error))
    for device in driver.devices:
        memory = f"{device.memory / (1 << 30):.0f} GiB"
        about.add_row(
            f"cuda:{device.index}", escape(f"{device.name}, {device.compute_capability}, {memory}, {device.uuid}")
        )
    console.print(about)

    libraries = _table("NVIDIA libraries", "library", "", "version", "CUDA", "file, or pip package for CUDA 12 or 13")
    for library in report.libraries:
        libraries.add_row(*_library_row(library))
    console.print(libraries)

    purposes = _table("What is installed, by use", "use", "", "extra, or the missing packages")
    for use in report.purposes:
        if use.install is None:
            purposes.add_row(escape(use.title), _coloured("ok"), escape(f"[{use.extra}]"))
        else:
            note = f"{', '.join(use.missing)}; {use.install}"
            purposes.add_row(escape(use.title), _coloured("missing"), escape(note))
    console.print(purposes)

    checks = _table("Checks of this machine", "check", "", "result")
    for check in report.checks:
        checks.add_row(escape(check.title), _coloured(check.status), escape(check.detail))
    console.print(checks)
    colour = "green" if report.verdict.ok else "red"
    console.print(f"[bold {colour}]{escape(report.verdict.reason)}[/]", soft_wrap=True)
