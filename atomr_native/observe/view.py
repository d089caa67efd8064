"""A snapshot as tables for a terminal; with the previous one, also rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["render"]

_STATE_STYLES = {
    "open": "green", "running": "green", "starting": "yellow", "restarting": "yellow", "waiting": "yellow",
    "failed": "red", "lost": "red bold", "stopping": "dim", "stopped": "dim", "closed": "dim",
}  # fmt: skip
_HEAD = 2  # lines of a table above its rows
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def render(now: Mapping[str, Any], before: Mapping[str, Any] | None, *, rows: int | None = None) -> RenderableType:
    """Return the view as a renderable object.

    Parameters
    ----------
    now, before : Snapshot
        Snapshots of one System; without `before` there are no rates.
    rows : int, optional
        Available lines; the view shows the busiest lanes and actors, and the number of others.
    """
    stats = now["stats"]
    old = before["stats"] if before is not None else None
    seconds = (now["time_ns"] - before["time_ns"]) / 1e9 if before is not None else 0.0
    lanes = _lanes(stats, old, seconds)
    actors = _actors(stats, old, seconds)
    restarts = sum(d["restarts"] for d in stats["devices"].values()) + sum(
        a["restarts"] for a in stats["actors"].values()
    )
    title = Text.assemble(
        (_text(now["program"]), "bold"),
        f"  pid {now['pid']}  System {_text(now['system'])}  restarts {restarts}  dead letters ",
        (str(stats["dead_letters"]), "red" if stats["dead_letters"] else ""),
        no_wrap=True, overflow="ellipsis",
    )  # fmt: skip
    parts: list[RenderableType] = [title]
    if stats["devices"]:
        parts.append(_devices(stats["devices"]))
    left = None if rows is None else rows - 1 - (len(stats["devices"]) + _HEAD if stats["devices"] else 0)
    if lanes:
        room = None if left is None else left - _HEAD
        if room is not None and actors:  # lanes get half, or the rest that actors leave
            room = max(room // 2 - 1, room - _HEAD - len(actors))
        room = None if room is None else max(1, room)
        parts.append(_busiest("lanes", _LANE_COLUMNS, lanes, room))
        left = None if left is None or room is None else left - _HEAD - min(room, len(lanes))
    if actors:
        parts.append(_busiest("actors", _ACTOR_COLUMNS, actors, None if left is None else max(1, left - _HEAD)))
    if not stats["devices"] and not actors:
        parts.append(Text("no device and no actor yet", style="dim"))
    return Group(*parts)


_DEVICE_COLUMNS = ("device", "state", "generation", "restarts", "worker", "in use", "reserved", "limit", "free",
                   "hardware")  # fmt: skip
_LANE_COLUMNS = ("lane", "queued", "cells", "messages/s", "busy", "sent", "failed", "parks", "workspace")
_ACTOR_COLUMNS = ("actor", "state", "mailbox", "messages/s", "handled", "failed", "restarts", "stashed")
#: Columns omitted on a narrow terminal, in this order.
_LESS_WANTED = ("hardware", "workspace", "parks", "stashed", "generation", "cells", "reserved", "handled", "sent",
                "worker", "limit", "failed", "free")  # fmt: skip
_SHORTEST = 24  # minimum width of a name before a column is omitted


def _devices(devices: Mapping[str, Any]) -> RenderableType:
    rows = []
    for name, device in devices.items():
        memory = device["memory"]
        rows.append((
            _plain(name), _state(device["state"]), str(device["generation"]), _bad(device["restarts"]),
            str(device["worker_pid"] or "-"), _size(memory["in_use"]), _size(memory["reserved"]),
            _size(memory["limit"]), _size(memory["device_free"]), _plain(device["hardware"]["name"]),
        ))  # fmt: skip
    return _Fitted("devices", _DEVICE_COLUMNS, rows)


_Row = tuple[tuple[float, float], tuple[Any, ...]]  # busy fraction, and cells


def _lanes(stats: Mapping[str, Any], old: Mapping[str, Any] | None, seconds: float) -> list[_Row]:
    rows: list[_Row] = []
    for device_name, device in stats["devices"].items():
        was = {} if old is None else old["devices"].get(device_name, {}).get("actors", {})
        for name, lane in device["actors"].items():
            rate = _rate(lane, was.get(name), "completed", seconds)
            busy = _rate(lane, was.get(name), "busy_ns", seconds)
            rows.append((
                (rate or 0.0, lane["sent"]),
                (_plain(f"{device_name}/{name}"), str(lane["queued"]), str(lane["cells_in_use"]), _number(rate),
                 "-" if busy is None else f"{min(busy / 1e7, 100):.0f} %", str(lane["sent"]), _bad(lane["failed"]),
                 str(lane["parks"]), _size(lane["workspace"])),
            ))  # fmt: skip
    return rows


def _actors(stats: Mapping[str, Any], old: Mapping[str, Any] | None, seconds: float) -> list[_Row]:
    rows: list[_Row] = []
    for path, actor in stats["actors"].items():
        rate = _rate(actor, None if old is None else old["actors"].get(path), "processed", seconds)
        bound = "" if actor["capacity"] is None else f"/{actor['capacity']}"
        full = actor["capacity"] is not None and actor["mailbox"] >= actor["capacity"]
        rows.append((
            (rate or 0.0, actor["mailbox"]),
            (_plain(path), _state(actor["state"]), Text(f"{actor['mailbox']}{bound}", style="red" if full else ""),
             _number(rate), str(actor["processed"]), _bad(actor["failed"]), _bad(actor["restarts"]),
             str(actor["stashed"])),
        ))  # fmt: skip
    return rows


def _busiest(title: str, columns: tuple[str, ...], rows: list[_Row], most: int | None) -> RenderableType:
    shown = sorted(rows, key=lambda row: row[0], reverse=True)[:most]
    more = len(rows) - len(shown)
    return _Fitted(f"{title}, and {more} more" if more else title, columns, [cells for _, cells in shown])


class _Fitted:
    """A table that omits columns on a narrow terminal, instead of shrinking each column."""

    def __init__(self, title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        self._title, self._columns, self._rows = title, columns, rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        columns, rows = self._columns, self._rows
        widths = {
            column: max(cell_len(text) for text in (column, *(_shown(row[at]) for row in rows)))
            for at, column in enumerate(columns)
        }
        first = columns[0]
        left = [column for column in _LESS_WANTED if column in widths]

        def need(gap: int) -> int:
            return sum(widths.values()) - widths[first] + gap * (len(widths) - 1)

        while left and need(1) + min(_SHORTEST, widths[first]) > options.max_width:
            del widths[left.pop(0)]
        gap = 2 if need(2) + widths[first] <= options.max_width else 1
        widths[first] = max(1, min(widths[first], options.max_width - need(gap)))
        table = Table(
            title=self._title, title_justify="left", box=None, pad_edge=False, padding=(0, gap, 0, 0),
            title_style="bold cyan", header_style="dim",
        )  # fmt: skip
        for column, width in widths.items():
            table.add_column(
                column, justify="left" if column == first or column in ("state", "hardware") else "right", no_wrap=True,
                overflow="ellipsis", width=width,
            )  # fmt: skip
        kept = [at for at, column in enumerate(columns) if column in widths]
        for row in rows:
            table.add_row(*(row[at] for at in kept))
        yield table


def _shown(cell: Text | str) -> str:
    return cell.plain if isinstance(cell, Text) else cell


def _rate(now: Mapping[str, Any], before: Mapping[str, Any] | None, key: str, seconds: float) -> float | None:
    """Return the growth of a counter per second; None if unknown, for example after a reset."""
    if before is None or seconds <= 0 or now[key] < before[key]:
        return None
    return float(now[key] - before[key]) / seconds


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _size(value: int | None) -> str:
    if value is None:
        return "-"
    amount, unit = float(value), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 or amount >= 100 else f"{amount:.1f} {_UNITS[unit]}"


def _state(state: str) -> Text:
    return Text(_text(state), style=_STATE_STYLES.get(state, ""))


def _bad(count: int) -> Text:
    return Text(str(count), style="red" if count else "")


def _plain(text: object) -> Text:
    """Return a name without markup and control characters."""
    return Text(_text(text))


def _text(text: object) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))
