"""A check of this machine: ``python -m atomr_native doctor``.

Each requirement is tested in a separate process, so neither a broken driver nor two CUDA majors affect the other
checks.  `collect` does the work; `Report.to_json` documents the JSON form.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from .._support.console import console, reader_may_leave
from ..errors import InvalidRequest
from ..runtime.addresses import address_of
from .clusters import ray_check
from .driver import cuda_checks, find_driver
from .libraries import find_libraries
from .machine import machine_checks, versions
from .model import Check, Device, Driver, Library, Purpose, Report, Verdict
from .processes import kernel_checks
from .purposes import find_purposes
from .verdict import judge, round_trip

__all__ = ["Check", "Device", "Driver", "Library", "Purpose", "Report", "Verdict", "collect", "main"]


def collect(device: str = "host", isolation: str = "process") -> Report:
    """Examine the machine; takes a few seconds.

    Parameters
    ----------
    device
        ``"host"``, ``"host:N"`` or ``"cuda:N"``: the device of the verdict.
    isolation
        ``"process"`` or ``"thread"``: the isolation of the verdict.
    """
    driver = find_driver()
    address = address_of(device)
    ordinal = address.number if address.kind == "cuda" else 0
    checks = [*kernel_checks(), *cuda_checks(driver, ordinal), *machine_checks(), ray_check()]
    trip = round_trip(device, isolation, driver, checks)
    libraries = find_libraries()
    return Report(
        device=device,
        isolation=isolation,
        versions=versions(),
        driver=driver,
        libraries=libraries,
        purposes=find_purposes(driver, libraries),
        checks=(*checks, trip),
        verdict=judge(device, isolation, trip),
    )


def _device(text: str) -> str:
    try:
        return address_of(text).name
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Examine the machine and print the report.

    Returns
    -------
    int
        0 if the chosen device and isolation can run here, 1 if not; a usage error raises `SystemExit` with 2.
    """
    parser = argparse.ArgumentParser(
        prog="python -m atomr_native doctor",
        description="Check this machine. Exit status: 0 if the chosen device and isolation can run here, "
        "1 if not, 2 for a usage error.",
    )
    parser.add_argument("--device", type=_device, default="host", metavar="host[:N]|cuda:N", help="default: host")
    parser.add_argument("--isolation", choices=("process", "thread"), default="process", help="default: process")
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of tables")
    options = parser.parse_args(argv)
    report = collect(options.device, options.isolation)
    with reader_may_leave():
        if options.json:
            sys.stdout.write(json.dumps(report.to_json(), indent=2) + "\n")
        else:
            from .report import show

            show(report, console(140))  # wide enough for file names
    return 0 if report.verdict.ok else 1
