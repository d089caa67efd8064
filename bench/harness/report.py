"""Results as tables in the terminal, and as Markdown for the documentation.

The pages of the documentation are a page for people, in which only the tables of bars are generated, and a generated
page for each kind of machine.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.harness.bars import Bar, Verdict, judge
from bench.harness.documents import Document, with_measured
from bench.harness.harness import CONFIDENCE
from bench.harness.machine import MAX_OTHER_CPU, ROOT, host_kind

__all__ = ["BEGIN", "DOCS", "END", "PAGE", "markdown", "number", "pages", "replace_tables", "short_bar_rows", "show"]

DOCS = ROOT / "docs"
PAGE = "performance.md"

BEGIN = "<!-- bench:begin -->"
END = "<!-- bench:end -->"


def number(value: float) -> str:
    """Three significant digits, never in exponent form."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".") if abs(value) >= 0.001 else f"{value:.6f}"


def _spread(figure: Mapping[str, Any]) -> str:
    """The interval of a figure, with what it covers where that is less than the column says."""
    coverage = "" if figure["coverage"] >= CONFIDENCE else f", {100 * figure['coverage']:.0f} %"
    return f"{number(figure['low'])} to {number(figure['high'])}{coverage}"


def _row(name: str, figure: Mapping[str, Any] | None, note: str) -> tuple[str, str, str, str]:
    if figure is None:
        return name, "", "", note
    return name, number(figure["median"]), _spread(figure), str(figure["count"])


def _rows(case: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for series in case["contenders"]:
        note = f"{series['status']}: {series.get('reason', '')}"
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
    return (number(series["flops"] / seconds / 1e12),)


def _head(case: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "contender",
        case["unit"],
        "interval",
        *(("TFLOP/s",) if _has_rates(case) else ()),
        "rounds, or why not",
    )


def short_bar_rows(verdicts: Sequence[Verdict]) -> list[tuple[str, str, str, str]]:
    """A row for each work: medians from the lowest to the highest, and how many of its bars are met."""
    rows = []
    works = {verdict.bar.work: [each for each in verdicts if each.bar.work == verdict.bar.work] for verdict in verdicts}
    for work, group in works.items():
        limits = list(dict.fromkeys(_limit(verdict.bar) for verdict in group))
        ordered = sorted(
            (verdict for verdict in group if verdict.median is not None), key=lambda each: each.median or 0.0
        )
        figures = list(dict.fromkeys(_figure(verdict) for verdict in ordered[:1] + ordered[-1:]))
        rows.append((f"{work}{_parts(group)}", ", ".join(limits), " to ".join(figures), _group_state(group)))
    return rows


def _parts(group: Sequence[Verdict]) -> str:
    parts = [verdict.bar.part for verdict in group if verdict.bar.part]
    if not parts:
        return ""
    return f" ({', '.join(parts)})" if len(parts) <= 3 else f" ({len(parts)} of them)"


def _limit(bar: Bar) -> str:
    return f"at most {bar.limit:.4g} {bar.unit}"


def _figure(verdict: Verdict) -> str:
    """The median with three digits, or with as many as show on which side of the limit it is."""
    assert verdict.median is not None
    found = number(verdict.median)
    for digits in range(4, 8):
        if (float(found) <= verdict.bar.limit) == (verdict.median <= verdict.bar.limit):
            break
        found = f"{verdict.median:.{digits}g}"
    return found


def _group_state(group: Sequence[Verdict]) -> str:
    """The verdict of all; where they differ, how many are met; and for how many the interval has the limit inside."""
    states = [verdict.state for verdict in group]
    missing, loose = states.count("not measured"), sum(v.state != "not measured" and not v.sure for v in group)
    measured = len(group) - missing
    if len(set(states)) == 1:
        said = str(states[0])
    else:
        said = f"{states.count('met')} of {measured} met" + (f", {missing} not measured" if missing else "")
    if not loose:
        return said
    return f"{said}, within the spread" if loose == measured else f"{said}; {loose} within the spread"


def _bar_rows(verdicts: Sequence[Verdict]) -> list[tuple[str, str, str, str]]:
    rows = []
    for verdict in verdicts:
        bar, measured, state = verdict.bar, "", str(verdict.state)
        if verdict.median is not None and verdict.low is not None and verdict.high is not None:
            measured = f"{_figure(verdict)} ({number(verdict.low)} to {number(verdict.high)})"
            state += "" if verdict.sure else ", within the spread"
        rows.append((bar.name, _limit(bar), measured, state))
    return rows


def _slower_rows(cases: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Ratios that are above 1 with their whole interval."""
    return [
        (
            case["title"],
            f"{ratio['over']} / {ratio['under']}",
            f"{number(figure['median'])} ({_spread(figure)})",
        )
        for case in cases
        for ratio in case["ratios"]
        if (figure := ratio["summary"]) is not None and figure["low"] > 1.0
    ]


def _warnings(value: Document) -> list[str]:
    cases = with_measured(value)
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


def show(value: Document, bars: Sequence[Bar]) -> None:
    """Print a document as tables in the terminal; as Markdown where `rich` is not installed."""
    try:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table
    except ImportError:
        print(markdown([value], bars))
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
    verdicts = judge(value["cases"], bars)
    if verdicts:
        table = Table("work", "bar", "measured", "verdict", title="Bars", title_justify="left")
        for row in _bar_rows(verdicts):
            style = {"met": "green", "missed": "red"}.get(row[3].split(",")[0], "dim")
            table.add_row(*(escape(cell) for cell in row), style=style)
        console.print(table)
    for note in _warnings(value):
        console.print(escape(note), style="yellow")


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [*lines, ""]


def markdown(values: Sequence[Document], bars: Sequence[Bar]) -> str:
    """The tables of documents as Markdown, bars first, between the markers that `replace_tables` looks for."""
    return "\n".join([BEGIN, *_tables(values, bars), END, ""])


def _tables(values: Sequence[Document], bars: Sequence[Bar]) -> list[str]:
    lines = [
        "Medians, each with an interval of order statistics that covers the true one with at least 95 % probability. "
        "Fewer than six rounds cannot say that: there it is their whole range, with what that covers behind it. "
        "Ratios are taken within a round and then summarised.",
        "",
    ]
    for value in values:
        lines += [f"## {_title(value['machine'])}", "", f"Measured on: {_where(value['machine'])}.", ""]
        lines += [line for note in _warnings(value) for line in (f"**{note}**", "")]
        verdicts = judge(value["cases"], bars)
        if verdicts:
            head = ("work", "bar", "measured", "verdict")
            lines += ["### Bars", "", *_markdown_table(head, _bar_rows(verdicts))]
        slower = _slower_rows(value["cases"])
        if slower:
            lines += ["### What is slower, or needs more, than what it is compared with", ""]
            lines += _markdown_table(("table", "ratio", "median and interval"), slower)
        for case in value["cases"]:
            lines += [f"### {case['title']}", "", case["about"] + _when(case, value), ""]
            lines += _markdown_table(_head(case), _rows(case))
    return lines


# ---------------------------------------------------------------------------------------------- pages


def pages(values: Sequence[Document], bars: Sequence[Bar], page: str) -> dict[Path, str]:
    """Every page of the documentation that results are on: its file, and its text; a kind of machine has one page.

    Parameters
    ----------
    page
        The page for people as it is; its tables of bars are made anew, between ``<!-- bars: MACHINE -->`` and
        ``<!-- /bars -->``.

    Raises
    ------
    ValueError
        That page asks for bars of a machine without results.
    """
    kinds: dict[str, list[Document]] = {}
    for value in sorted(values, key=lambda value: str(value["machine"]["date"]), reverse=True):
        kinds.setdefault(host_kind(dict(value["machine"])), []).append(value)
    found = {DOCS / "performance" / f"{kind}.md": _machine_page(these, bars) for kind, these in kinds.items()}
    found[DOCS / PAGE] = _BARS.sub(lambda marked: _bars_between(marked, kinds, bars), page)
    return found


_BARS = re.compile(r"(<!-- bars: (\S+) -->\n)(?:.*?)(<!-- /bars -->)", re.DOTALL)


def _bars_between(marked: re.Match[str], kinds: Mapping[str, Sequence[Document]], bars: Sequence[Bar]) -> str:
    begin, kind, end = marked.groups()
    if kind not in kinds:
        raise ValueError(f"{PAGE} has bars of {kind}: there are results of {', '.join(kinds)}")
    verdicts = [verdict for value in kinds[kind] for verdict in judge(value["cases"], bars)]
    table = _markdown_table(("work", "bar", "measured", "verdict"), short_bar_rows(verdicts))
    return "\n".join([begin, *table, end])


def _machine_page(values: Sequence[Document], bars: Sequence[Bar]) -> str:
    title = _title(values[0]["machine"]).partition(": ")[2]
    lines = [
        "<!-- Generated from bench/results by `python -m bench render`: edit neither this page nor its figures. -->",
        "",
        f"# Performance: {title}",
        "",
        f"What this means, and what stands out, is in [{PAGE}](../{PAGE}).",
        "",
        *_tables(values, bars),
    ]
    return "\n".join(lines)


def replace_tables(page: str, tables: str) -> str:
    """Put `tables` in the place of what stands between the markers of `page`; at its end when it has none."""
    if BEGIN in page and END in page:
        head, _, rest = page.partition(BEGIN)
        return head + tables.rstrip("\n") + rest.partition(END)[2]
    return page.rstrip("\n") + "\n\n" + tables
