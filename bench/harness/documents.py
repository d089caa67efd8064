"""Results: what a run found as a document, and the two files that keep it.

A result is a summary, which people read and git shows: one line of JSON for each series and each ratio.  Its raw
samples are beside it, in ``raw/<name>.json.gz``, for whoever wants to summarise them in another way.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness.harness import CaseResult, Effort, Interval, Series
from bench.harness.machine import ROOT, Load, host_kind, refusal

__all__ = [
    "RESULTS",
    "SCHEMA",
    "Document",
    "check",
    "check_same",
    "default_path",
    "document",
    "dumps",
    "load",
    "load_all",
    "merge",
    "raw_path",
    "with_measured",
    "write",
]

SCHEMA = 2
RESULTS = ROOT / "bench" / "results"
#: What two runs must have in common to stand in one document.
SAME = ("cpu", "architecture", "cores", "virtual", "device name", "device gpu", "device driver")
#: Objects that are one line each in a file.
LINES = ("contenders", "ratios")
Document = Mapping[str, Any]


# ---------------------------------------------------------------------------------------------- documents


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {key: _short(value) for key, value in asdict(interval).items()}


def _short(value: float | None) -> float | None:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _contender(series: Series) -> dict[str, Any]:
    found: dict[str, Any] = {"name": series.name, "kind": series.kind, "status": series.status}
    found["summary"] = _interval(series.summary())
    said = {"reason": series.reason, "remark": series.remark, "members": list(series.members), "flops": series.flops}
    found |= {key: value for key, value in said.items() if value}
    return {**found, "samples": [_short(value) for value in series.samples]}


def _case(result: CaseResult, measured: Mapping[str, Any]) -> dict[str, Any]:
    case = result.case
    build = case.build.func if isinstance(case.build, partial) else case.build
    return {
        "name": case.name,
        "title": case.title,
        "unit": case.unit,
        "about": " ".join((build.__doc__ or "").split()),
        "other_cpu": round(result.other_cpu, 3),
        "seconds": round(result.seconds, 1),
        "measured": dict(measured),
        "contenders": [_contender(series) for series in result.series],
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
    """The document of one run, with its samples; each case says when it was measured, so that runs can be merged."""
    run = {"effort": effort.name.lower(), "seed": seed, "forced": forced, "overloaded": refusal(load)}
    measured = _measured(machine, run)
    return {
        "schema": SCHEMA,
        "machine": dict(machine),
        "load": asdict(load),
        "run": run,
        "cases": [_case(result, measured) for result in results],
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


def with_measured(value: Document) -> list[dict[str, Any]]:
    """The cases of a document; each says when, and under which load, it was measured."""
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
    newer = {case["name"]: case for case in with_measured(new)}
    cases = [newer.pop(case["name"], case) for case in with_measured(old)] + list(newer.values())
    return {**new, "cases": cases}


_SHAPE: dict[str, dict[str, type | tuple[type, ...]]] = {
    "document": {"schema": int, "machine": dict, "load": dict, "run": dict, "cases": list},
    "case": {"name": str, "title": str, "unit": str, "about": str, "contenders": list, "ratios": list},
    "contender": {"name": str, "kind": str, "status": str, "summary": (dict, type(None))},
    "ratio": {"over": str, "under": str, "summary": (dict, type(None))},
    "summary": {"median": (int, float), "low": (int, float), "high": (int, float), "coverage": float, "count": int},
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
        if key not in value or not isinstance(value[key], types):
            raise ValueError(f"{kind}.{key}: expected {types}, got {value.get(key)!r:.80}")


def check(value: Document) -> Document:
    """Return `value` if it is a result document of this schema.

    Raises
    ------
    ValueError
        It is not; the message names the first thing wrong.
    """
    if isinstance(value, Mapping) and value.get("schema", SCHEMA) != SCHEMA:
        raise ValueError(f"schema {value['schema']}: this program reads {SCHEMA}")
    _shaped("document", value)
    _shaped("machine", value["machine"])
    for case in value["cases"]:
        _shaped("case", case)
        for kind, key in (("contender", "contenders"), ("ratio", "ratios")):
            for line in case[key]:
                _shaped(kind, line)
                if line["summary"] is not None:
                    _shaped("summary", line["summary"])
        for contender in case["contenders"]:
            if contender["status"] not in ("ok", "skipped", "failed"):
                raise ValueError(f"contender.status: {contender['status']!r}")
    return value


# ---------------------------------------------------------------------------------------------- files


def default_path(machine: Mapping[str, Any]) -> Path:
    """``bench/results/<date>-<kind of host>-<commit>.json``."""
    commit = str(machine.get("commit") or "nocommit")[:10] + ("-dirty" if machine.get("dirty") else "")
    return RESULTS / f"{str(machine['date'])[:10]}-{host_kind(dict(machine))}-{commit}.json"


def raw_path(path: Path) -> Path:
    """Where the raw samples of the result at `path` are."""
    return path.parent / "raw" / f"{path.stem}.json.gz"


def dumps(value: Document) -> str:
    """The text of a summary: no samples, and a line for each series and each ratio."""
    lines: list[str] = []

    def line(found: object) -> str:
        lines.append(json.dumps(found))
        return f"\0{len(lines) - 1}"

    def flat(case: Mapping[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {"measured": line(case["measured"])} if "measured" in case else {}
        for key in LINES:
            kept[key] = [line({k: v for k, v in each.items() if k != "samples"}) for each in case[key]]
        return {**case, **kept}

    shape = {**value, "cases": [flat(case) for case in value["cases"]]}
    text = json.dumps(shape, indent=1)
    return re.sub(r'"\\u0000(\d+)"', lambda token: lines[int(token[1])], text) + "\n"


def _dump_raw(value: Document) -> bytes:
    """The raw samples, compressed; the same samples give the same bytes."""
    samples = {
        case["name"]: {series["name"]: series["samples"] for series in case["contenders"]} for case in value["cases"]
    }
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
        file.write(json.dumps({"schema": SCHEMA, "samples": samples}).encode())
    return packed.getvalue()


def write(path: Path, value: Document) -> None:
    """Write a document with its samples: the summary to `path`, the samples to `raw_path`.

    Raises
    ------
    ValueError
        As `check`.
    """
    summary, raw = dumps(check(value)), _dump_raw(value)
    raw_path(path).parent.mkdir(parents=True, exist_ok=True)
    raw_path(path).write_bytes(raw)
    path.write_text(summary)


def load(path: Path, *, samples: bool = False) -> Document:
    """Read a result; with `samples`, the raw ones, too.

    Raises
    ------
    OSError, ValueError
        It cannot be read, or is none.
    """
    try:
        value = check(json.loads(path.read_text()))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if samples:
        _add_samples(value, raw_path(path))
    return value


def _add_samples(value: Document, path: Path) -> None:
    try:
        raw = json.loads(gzip.decompress(path.read_bytes()))["samples"]
        for case in value["cases"]:
            for series in case["contenders"]:
                series["samples"] = raw[case["name"]][series["name"]]
    except (ValueError, KeyError, TypeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} has not the samples of {path.name.removesuffix('.gz')}: {error}") from None


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
