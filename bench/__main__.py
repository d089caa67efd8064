"""Command line: ``python -m bench [names...]`` measures, ``python -m bench render`` writes the tables.

Measuring waits until every round is done and can take many minutes; the result is written after each case.  The exit
status is 0 when every contender ran or was skipped with a reason, 1 when one failed, 2 for a wrong command, a device
that is not there, or a loaded machine.  Missed bars do not change it.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.harness import (
    Case,
    CaseResult,
    Effort,
    Unavailable,
    describe,
    documents,
    list_contenders,
    machine,
    report,
    run_case,
)
from bench.harness.discovery import all_bars, all_cases

__all__ = ["main"]

MIN_ROUNDS = 50


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("names", nargs="*", help="cases to run (default: all of the device); --list shows them")
    parser.add_argument("--device", default="host", metavar="NAME", help="host (default), cuda:0 and so on")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where the result goes (default: bench/results, for a full run of all cases)",
    )
    parser.add_argument(
        "--merge",
        type=Path,
        metavar="FILE",
        help="put the cases into this result of the same kind of machine, in the place of its own of that name",
    )
    parser.add_argument("--quick", action="store_true", help="few rounds and operations")
    parser.add_argument("--list", action="store_true", help="show cases and contenders, run nothing")
    parser.add_argument("--force", action="store_true", help="measure on a loaded machine, and say so in the result")
    parser.add_argument("--rounds", type=int, help=f"rounds a case (at least {MIN_ROUNDS} without --quick)")
    parser.add_argument(
        "--budget", type=float, default=math.inf, metavar="SECONDS", help="begin no further round when this is used up"
    )
    parser.add_argument("--commit", help="what is measured, where there is no repository to ask")
    parser.add_argument("--seed", type=int, default=0, help="of the order within rounds (default 0)")
    return parser


def _render_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench render", allow_abbrev=False)
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        help="results to print (default: all in bench/results, into the pages in docs)",
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page, at its markers")
    return parser


def render(arguments: Sequence[str]) -> int:
    """Make the pages of the documentation, or print results as Markdown, or put them into a page."""
    options = _render_parser().parse_args(arguments)
    try:
        values = [documents.load(path) for path in options.files] or documents.load_all()
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.write is None and not options.files:
        return _render_pages(values)
    tables = report.markdown(values, all_bars())
    if options.write is None:
        print(tables, end="")
    else:
        page = options.write.read_text() if options.write.exists() else "# Performance\n"
        options.write.write_text(report.replace_tables(page, tables))
    return 0


def _render_pages(values: Sequence[documents.Document]) -> int:
    page = report.DOCS / report.PAGE
    try:
        found = report.pages(values, all_bars(), page.read_text())
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for path, text in found.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"written: {path.relative_to(report.DOCS.parent)}")
    return 0


def _say(result: CaseResult) -> None:
    """One line a case, so that somebody who waits sees how far it is."""
    states = [series.status for series in result.series]
    rounds = max((len(series.samples) for series in result.series), default=0)
    print(f"\r{result.case.name}: {rounds} rounds, {result.seconds:.1f} s, {states.count('ok')} series", flush=True)
    for series in result.series:
        if series.status != "ok":
            print(f"  {series.status}: {series.name}: {series.reason}", flush=True)


def _run(
    chosen: Sequence[Case],
    options: argparse.Namespace,
    effort: Effort,
    keep: Callable[[Sequence[CaseResult]], None],
) -> list[CaseResult]:
    """Run the cases; `keep` gets what there is after each of them."""
    rng = random.Random(options.seed)
    end = time.monotonic() + options.budget
    results: list[CaseResult] = []
    terminal = sys.stdout.isatty()
    for index, case in enumerate(chosen):
        share = case.share / sum(other.share for other in chosen[index:])

        def progress(done: int, rounds: int, name: str = case.name) -> None:
            if terminal:
                print(f"\r{name}: {done} of {rounds}", end="", flush=True)

        results.append(
            run_case(
                case,
                effort,
                rng,
                device=options.device,
                rounds=options.rounds,
                seconds=max(0.0, end - time.monotonic()) * share,
                progress=progress,
            )
        )
        _say(results[-1])
        keep(results)
    return results


def _choose(options: argparse.Namespace, kind: str) -> list[Case]:
    """The cases that a command line asks for.

    Raises
    ------
    ValueError
        It names one that does not exist, or not for this device.
    """
    cases = all_cases()
    known = {name: case for name, case in cases.items() if kind in case.devices}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        raise ValueError(f"no case {', '.join(unknown)} on {options.device}; there are {', '.join(known)}")
    if options.names:
        return [known[name] for name in options.names]
    return [case for case in known.values() if case.devices[0] == kind]


def _check(options: argparse.Namespace) -> str:
    """Kind of the device.

    Raises
    ------
    ValueError
        An option makes no sense.
    """
    if not re.fullmatch(r"host|cuda:\d{1,3}", options.device):
        raise ValueError(f"--device {options.device}: host, cuda:0, cuda:1 and so on")
    least = 1 if options.quick else MIN_ROUNDS
    if options.rounds is not None and options.rounds < least:
        raise ValueError(f"--rounds {options.rounds}: at least {MIN_ROUNDS}, or 1 with --quick")
    if not options.budget > 0:
        raise ValueError(f"--budget {options.budget:g}: more than 0 seconds")
    return str(options.device.partition(":")[0])


def _facts(name: str) -> dict[str, Any]:
    """Open a device, and return what it says of itself.

    Raises
    ------
    Unavailable
        It is not there, or does not work.
    """
    from bench.harness.common import opened

    try:
        with opened(name, "process", {}) as (_, dev):
            return dict(dev.facts)
    except Exception as error:
        raise Unavailable(f"{name} does not work: {describe(error)}") from error


def _warm_up(device: str) -> None:
    """Let torch, if it is there, be the first to use CUDA in this process, as in a program that imports it first."""
    from bench.harness.gpu_peers import torch

    began = time.monotonic()
    try:
        torch(int(device.partition(":")[2])).cuda.init()
    except Exception as error:
        print(str(error) if isinstance(error, Unavailable) else describe(error), flush=True)
    else:
        print(f"torch is ready: {time.monotonic() - began:.1f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["render"]:
        return render(words[1:])
    options = _parser().parse_args(words)
    try:
        kind = _check(options)
        chosen = _choose(options, kind)
        merged = None
        if options.merge is not None and options.merge.exists():
            merged = documents.load(options.merge, samples=True)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.list:
        for case in chosen:
            print(f"{case.name}: {case.title}")
            print(*(f"  {name}" for name in list_contenders(case)), sep="\n")
        return 0
    described = machine.describe(options.commit)
    facts: dict[str, Any] = {}
    try:
        if kind != "host":
            facts = _facts(options.device)
            described["device"] = machine.describe_gpu(options.device, facts)
        if merged is not None:
            documents.check_same(merged["machine"], described)
    except (Unavailable, ValueError) as reason:
        print(reason, file=sys.stderr)
        return 2
    load = machine.measure_load(gpu=facts.get("uuid"))
    refused = machine.refusal(load)
    if refused and not options.force:
        print(f"not measuring: {refused}; --force measures all the same and records it", file=sys.stderr)
        return 2
    effort = Effort.QUICK if options.quick else Effort.FULL
    partial = options.quick or bool(options.names)
    path = options.merge or options.json or (None if partial else documents.default_path(described))

    def value_of(results: Sequence[CaseResult]) -> dict[str, Any]:
        value = documents.document(results, described, load, effort, seed=options.seed, forced=options.force)
        return documents.merge(merged, value) if merged is not None else value

    def keep(results: Sequence[CaseResult]) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            documents.write(path, value_of(results))

    if kind == "cuda":
        _warm_up(options.device)
    results = _run(chosen, options, effort, keep)
    report.show(value_of(results), all_bars())
    if path is not None:
        print(f"written: {path}")
    failed = any(series.status == "failed" for result in results for series in result.series)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
