"""Results as a JSON document, as tables in the terminal, and as Markdown for the documentation."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.bars import Verdict, judge
from bench.harness import CaseResult, Effort, Interval
from bench.machine import MAX_OTHER_CPU, Load, host_kind, refusal

__all__ = [
    "SCHEMA",
    "check",
    "check_same",
    "default_path",
    "document",
    "dumps",
    "load",
    "load_all",
    "markdown",
    "merge",
    "replace_tables",
    "show",
]

SCHEMA = 1
RESULTS = Path(__file__).parent / "results"
#: What two runs must have in common to stand in one document.
SAME = ("cpu", "architecture", "cores", "virtual", "device name", "device gpu", "device driver")
BEGIN = "<!-- bench:begin -->"
END = "<!-- bench:end -->"
Document = Mapping[str, Any]


# ---------------------------------------------------------------------------------------------- document


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {key: _short(value) for key, value in asdict(interval).items()}


def _short(value: float | None) -> float | None:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _case(result: CaseResult, measured: Mapping[str, Any]) -> dict[str, Any]:
    case = result.case
    return {
        "name": case.name,
        "title": case.title,
        "unit": case.unit,
        "about": " ".join((case.build.__doc__ or "").split()),
        "other_cpu": round(result.other_cpu, 3),
        "seconds": round(result.seconds, 1),
        "measured": dict(measured),
        "contenders": [
            {
                "name": series.name,
                "kind": series.kind,
                "status": series.status,
                "reason": series.reason,
                "remark": series.remark,
                "flops": series.flops,
                "summary": _interval(series.summary()),
                "samples": [_short(value) for value in series.samples],
            }
            for series in result.series
        ],
        "ratios": [
            {"over": over, "under": under, "summary": _interval(interval)} for over, under, interval in result.ratios
        ],
    }


def document(
    results: Sequence[CaseResult],
    machine: Mapping[str, Any],
    load: Load,
    effort: Effort,
    *,
    seed: int,
    forced: bool,
) -> dict[str, Any]:
    """The JSON document of one run; each case says when it was measured, and how, so that runs can be merged."""
    run = {"effort": effort.name.lower(), "seed": seed, "forced": forced, "overloaded": refusal(load)}
    measured = _measured(machine, run)
    cases = [_case(result, measured) for result in results]
    return {
        "schema": SCHEMA,
        "machine": dict(machine),
        "load": asdict(load),
        "run": run,
        "cases": cases,
        "bars": [_verdict(verdict) for verdict in judge(cases)],
    }


def _measured(machine: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "date": machine["date"],
        "commit": machine.get("commit"),
        "dirty": machine.get("dirty"),
        "gpu": (machine.get("device") or {}).get("uuid"),
        "effort": run["effort"],
        "overloaded": run["overloaded"],
    }


def _with_measured(value: Document) -> list[dict[str, Any]]:
    return [{"measured": _measured(value["machine"], value["run"]), **case} for case in value["cases"]]


def check_same(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Check that two machines may share a document.

    Raises
    ------
    ValueError
        They differ; the message says in what.
    """
    kinds = [
        {**machine, **{f"device {key}": text for key, text in (machine.get("device") or {}).items()}}
        for machine in (old, new)
    ]
    for key in SAME:
        ours, theirs = (kind.get(key) for kind in kinds)
        if ours != theirs:
            raise ValueError(f"not the same kind of machine: {key} is {ours!r} in the one and {theirs!r} in the other")


def merge(old: Document, new: Document) -> dict[str, Any]:
    """Return the newer document with the cases of the older one that it lacks.

    Raises
    ------
    ValueError
        As `check_same`.
    """
    check_same(old["machine"], new["machine"])
    newer = {case["name"]: case for case in _with_measured(new)}
    cases = [newer.pop(case["name"], case) for case in _with_measured(old)] + list(newer.values())
    return {**new, "cases": cases, "bars": [_verdict(verdict) for verdict in judge(cases)]}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    bar = verdict.bar
    return {
        "work": bar.work,
        "limit": bar.limit,
        "unit": bar.unit,
        "state": verdict.state,
        "median": verdict.median,
        "low": verdict.low,
        "high": verdict.high,
        "sure": verdict.sure,
    }


_SHAPE: dict[str, dict[str, type | tuple[type, ...]]] = {
    "document": {"schema": int, "machine": dict, "load": dict, "run": dict, "cases": list, "bars": list},
    "case": {"name": str, "title": str, "unit": str, "about": str, "contenders": list, "ratios": list},
    "contender": {"name": str, "kind": str, "status": str, "reason": str, "samples": list},
    "ratio": {"over": str, "under": str},
    "bar": {"work": str, "limit": (int, float), "unit": str, "state": str, "sure": bool},
    "machine": {
        "date": str,
        "devices": list,
        "cpu": str,
        "cores": int,
        "kernel": str,
        "python": str,
        "libraries": dict,
    },
}


def _shaped(kind: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{kind}: expected an object, got {value!r:.80}")
    for key, types in _SHAPE[kind].items():
        if not isinstance(value.get(key), types):
            raise ValueError(f"{kind}.{key}: expected {types}, got {value.get(key)!r:.80}")


def check(value: Document) -> Document:
    """Return `value` if it is a result document of this schema.

    Raises
    ------
    ValueError
        It is not; the message names the first thing wrong.
    """
    _shaped("document", value)
    if value["schema"] != SCHEMA:
        raise ValueError(f"schema {value['schema']}: this program reads {SCHEMA}")
    _shaped("machine", value["machine"])
    for case in value["cases"]:
        _shaped("case", case)
        for contender in case["contenders"]:
            _shaped("contender", contender)
            if contender["status"] not in ("ok", "skipped", "failed"):
                raise ValueError(f"contender.status: {contender['status']!r}")
        for ratio in case["ratios"]:
            _shaped("ratio", ratio)
    for bar in value["bars"]:
        _shaped("bar", bar)
    return value


def dumps(value: Document) -> str:
    """The text of a result file, with the samples of a series on one line."""
    text = json.dumps(value, indent=1)
    return re.sub(r"\[\n[^\[\]{}\"]*\]", lambda found: " ".join(found.group().split()), text) + "\n"


def default_path(machine: Mapping[str, Any]) -> Path:
    """``bench/results/<date>-<kind of host>-<commit>.json``."""
    commit = str(machine.get("commit") or "nocommit")[:10] + ("-dirty" if machine.get("dirty") else "")
    return RESULTS / f"{str(machine['date'])[:10]}-{host_kind(dict(machine))}-{commit}.json"


def load(path: Path) -> Document:
    """Read a result.

    Raises
    ------
    OSError, ValueError
        It cannot be read, or is none.
    """
    try:
        return check(json.loads(path.read_text()))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def load_all(folder: Path = RESULTS) -> list[Document]:
    """The results in a folder, those of the host first, then by name.

    Raises
    ------
    FileNotFoundError
        There is none.
    """
    found = [load(path) for path in sorted(folder.glob("*.json"))]
    if not found:
        raise FileNotFoundError("no results yet: run python -m bench on an idle machine first")
    return sorted(found, key=lambda value: "device" in value["machine"])


# ---------------------------------------------------------------------------------------------- tables


def _number(value: float) -> str:
    """Three significant digits, never in exponent form."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".") if abs(value) >= 0.001 else f"{value:.6f}"


def _row(name: str, figure: Mapping[str, Any] | None, note: str) -> tuple[str, str, str, str]:
    if figure is None:
        return name, "", "", note
    spread = f"{_number(figure['low'])} to {_number(figure['high'])}"
    return name, _number(figure["median"]), spread, str(figure["count"])


def _rows(case: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for series in case["contenders"]:
        note = f"{series['status']}: {series['reason']}"
        name, middle, spread, rounds = _row(series["name"], series["summary"], note)
        remark = series.get("remark") if series["summary"] else ""
        rows.append((name, middle, spread, *_rate(case, series), f"{rounds}; {remark}" if remark else rounds))
    for ratio in case["ratios"]:
        if ratio["summary"] is not None:
            *cells, rounds = _row(f"{ratio['over']} / {ratio['under']}", ratio["summary"], "")
            rows.append((*cells, *_rate(case, {}), rounds))
    return rows


def _has_rates(case: Mapping[str, Any]) -> bool:
    return any(series.get("flops") for series in case["contenders"])


def _rate(case: Mapping[str, Any], series: Mapping[str, Any]) -> tuple[str, ...]:
    """The cell with the rate of a series, where the table has such cells: TFLOP/s at the median."""
    if not _has_rates(case):
        return ()
    figure = series.get("summary")
    if not figure or not series.get("flops"):
        return ("",)
    seconds = figure["median"] * {"us": 1e-6, "ms": 1e-3}[case["unit"]]
    return (_number(series["flops"] / seconds / 1e12),)


def _head(case: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "contender",
        case["unit"],
        "95 % interval",
        *(("TFLOP/s",) if _has_rates(case) else ()),
        "rounds, or why not",
    )


def _bar_rows(bars: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    rows = []
    for bar in bars:
        measured = ""
        if bar["median"] is not None:
            measured = f"{_number(bar['median'])} ({_number(bar['low'])} to {_number(bar['high'])})"
        state = bar["state"]
        if state != "not measured" and not bar["sure"]:
            state += ", within the spread"
        rows.append((bar["work"], f"at most {bar['limit']:g} {bar['unit']}", measured, state))
    return rows


def _slower_rows(cases: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Ratios that are above 1 with their whole interval."""
    return [
        (
            case["title"],
            f"{ratio['over']} / {ratio['under']}",
            f"{_number(figure['median'])} ({_number(figure['low'])} to {_number(figure['high'])})",
        )
        for case in cases
        for ratio in case["ratios"]
        if (figure := ratio["summary"]) is not None and figure["low"] > 1.0
    ]


def _warnings(value: Document) -> list[str]:
    cases = _with_measured(value)
    found = {
        "Quick runs, whose figures prove nothing": [c for c in cases if c["measured"]["effort"] != "full"],
        "Measured on a loaded machine": [c for c in cases if c["measured"]["overloaded"]],
        "Measured in a checkout with uncommitted changes": [c for c in cases if c["measured"]["dirty"]],
        "Disturbed by other processes": [c for c in cases if c.get("other_cpu", 0) > MAX_OTHER_CPU],
    }
    return [
        f"{what}: {'all' if len(these) == len(cases) else ', '.join(case['name'] for case in these)}."
        for what, these in found.items()
        if these
    ]


def _versions(libraries: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in libraries.items())


def _gpu(device: Mapping[str, Any]) -> str:
    parts = [
        f"{device['gpu']} ({device['uuid']}), {device['memory_gib']} GiB, {device['multiprocessors']} multiprocessors",
        f"compute capability {device['compute_capability']}",
        f"driver {device['driver']} (CUDA {device['cuda']})" if device.get("driver") else f"CUDA {device['cuda']}",
    ]
    if device.get("max_clock_mhz"):
        parts.append(f"{device['max_clock_mhz']} MHz at most")
    if device.get("power_limit_w"):
        parts.append(f"{device['power_limit_w']} W at most")
    return ", ".join(parts)


def _where(machine: Mapping[str, Any]) -> str:
    device = machine.get("device")
    parts = [
        _gpu(device) if device else "",
        f"{machine['cpu']}, {machine['cores']} cores" + (", virtual machine" if machine.get("virtual") else ""),
        f"governor {machine.get('governor') or 'not readable'}",
        "" if device else f"devices: {', '.join(machine['devices'])}",
        f"Linux {machine['kernel']}, Python {machine['python']}, {machine.get('compiler') or 'no C compiler'}",
        _versions(machine["libraries"]),
        f"commit {str(machine.get('commit') or 'none')[:10]}, {machine['date']}",
    ]
    return "; ".join(part for part in parts if part)


def _title(machine: Mapping[str, Any]) -> str:
    device = machine.get("device")
    if device:
        return f"{device['name']}: {device['gpu']}"
    return f"host: {machine['cpu']}, {machine['cores']} cores"


def _when(case: Mapping[str, Any], value: Document) -> str:
    """Date and commit of a case that is of another run than its document; else nothing."""
    measured, machine = case.get("measured"), value["machine"]
    if measured is None or measured["date"] == machine["date"]:
        return ""
    gpu = f", GPU {measured['gpu']}" if measured["gpu"] else ""
    return f" Measured {measured['date']}, commit {str(measured['commit'] or 'none')[:10]}{gpu}."


def show(value: Document) -> None:
    """Print a document as tables in the terminal; as Markdown where `rich` is not installed."""
    try:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table
    except ImportError:
        print(markdown([value]))
        return
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(escape(_where(value["machine"])))
    for case in value["cases"]:
        table = Table(title=escape(case["title"]), title_justify="left")
        head = _head(case)
        for index, title in enumerate(head):
            table.add_column(title, justify="right" if 0 < index < len(head) - 1 else "left")
        for row in _rows(case):
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)
    if value["bars"]:
        table = Table("work", "bar", "measured", "verdict", title="Bars", title_justify="left")
        for row in _bar_rows(value["bars"]):
            style = {"met": "green", "missed": "red"}.get(row[3].split(",")[0], "dim")
            table.add_row(*(escape(cell) for cell in row), style=style)
        console.print(table)
    for note in _warnings(value):
        console.print(escape(note), style="yellow")


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [*lines, ""]


def markdown(values: Sequence[Document]) -> str:
    """The tables of documents as Markdown, bars first, between the markers that `replace_tables` looks for."""
    lines = [
        BEGIN,
        "Medians with their 95 % order-statistics interval; ratios are taken within a round and then summarised.",
        "",
    ]
    for value in values:
        lines += [f"## {_title(value['machine'])}", "", f"Measured on: {_where(value['machine'])}.", ""]
        lines += [line for note in _warnings(value) for line in (f"**{note}**", "")]
        if value["bars"]:
            head = ("work", "bar", "measured", "verdict")
            lines += ["### Bars", "", *_markdown_table(head, _bar_rows(value["bars"]))]
        slower = _slower_rows(value["cases"])
        if slower:
            lines += ["### What is slower, or needs more, than what it is compared with", ""]
            lines += _markdown_table(("table", "ratio", "median and 95 % interval"), slower)
        for case in value["cases"]:
            lines += [f"### {case['title']}", "", case["about"] + _when(case, value), ""]
            lines += _markdown_table(_head(case), _rows(case))
    return "\n".join([*lines, END, ""])


def replace_tables(page: str, tables: str) -> str:
    """Put `tables` in the place of what stands between the markers of `page`; at its end when it has none."""
    if BEGIN in page and END in page:
        head, _, rest = page.partition(BEGIN)
        return head + tables.rstrip("\n") + rest.partition(END)[2]
    return page.rstrip("\n") + "\n\n" + tables
