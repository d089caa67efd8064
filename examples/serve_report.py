"""What `serve_load.py` shows: percentiles, a table, and a plot."""

import numpy as np

PHASES = ("before", "during", "after")


def summary(latencies):
    """Return count and percentiles, or only the count where there are none."""
    if not latencies:
        return {"count": 0}
    values = np.percentile(latencies, [50, 90, 99, 100])
    return {"count": len(latencies), **dict(zip(("p50", "p90", "p99", "max"), map(float, values), strict=True))}


def show(report):
    """Print a report."""
    requests = report["requests"]
    print(
        f"{requests['sent']} requests sent by {report['clients']} clients in {report['seconds']:.2f} s, "
        f"{requests['answered']} answered: {requests['correct']} correct ({requests['retried_in_the_server']} of them "
        f"after a retry), {requests['refused_with_a_reason']} refused with a reason, {requests['wrong']} wrong, "
        f"{requests['missing']} missing; {report['mean_batch']:.1f} in a batch on average"
    )
    for kill in report["kills"]:
        print(f"worker {kill['pid']} killed at {kill['at']:.2f} s; answers again after {kill['outage_ms']:.0f} ms")
    print(f"{'latency, ms':12}{'requests':>9}{'p50':>9}{'p90':>9}{'p99':>9}{'max':>9}")
    for name, row in report["latency_ms"].items():
        figures = "".join(f"{row[key]:9.1f}" if key in row else f"{'-':>9}" for key in ("p50", "p90", "p99", "max"))
        print(f"{name:12}{row['count']:>9}{figures}")
    for problem in report["problems"]:
        print(f"not as promised: {problem}")


def draw(path, load, report):
    """Draw the latency of each request over time, percentiles by phase, and the rate."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    colors = {"before": "#1f5fa8", "during": "#c0392b", "after": "#2e8b57"}
    style = {
        "axes.grid": True, "axes.axisbelow": True, "axes.spines.right": False, "axes.spines.top": False,
        "axes.titlelocation": "left", "axes.titleweight": "bold", "font.size": 10, "grid.alpha": 0.25,
        "legend.frameon": False,
    }  # fmt: skip
    answered = [record for record in load.records if record.status]
    by_phase = {name: [record for record in answered if load.phase(record) == name] for name in PHASES}

    def in_milliseconds(axis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())

    with rc_context(style):
        figure = Figure(figsize=(10.5, 7.6), layout="constrained", dpi=130)
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(3, 2, height_ratios=(5, 2, 4))
        top = figure.add_subplot(grid[0, :])
        for name, records in by_phase.items():
            top.scatter(
                [record.answered for record in records], [record.milliseconds for record in records],
                s=7, alpha=0.5, linewidths=0, color=colors[name], label=f"{name}: {len(records)}",
            )  # fmt: skip
        requests = report["requests"]
        top.set(
            title=f"{requests['answered']} of {requests['sent']} requests answered, {requests['correct']} correct",
            ylabel="latency, ms", yscale="log", xlim=(0, report["seconds"]),
        )  # fmt: skip
        in_milliseconds(top.yaxis)
        top.tick_params(labelbottom=False)
        top.margins(y=0.3)
        top.legend(loc="lower right", ncols=3, markerscale=2.5, handletextpad=0.1, columnspacing=1)
        rate = figure.add_subplot(grid[1, :], sharex=top)
        width = max(report["seconds"] / 100, 0.02)
        edges = np.arange(0, report["seconds"] + width, width)
        counts, _ = np.histogram([record.answered for record in answered], edges)
        # The last one is not a whole one.
        rate.stairs(counts[:-1] / width, edges[:-1], fill=True, color="#777777", alpha=0.5)
        rate.set(xlabel="seconds", ylabel="answers/s")
        for number, death in enumerate(load.deaths, 1):
            for axes in (top, rate):
                axes.axvspan(death.at, min(death.over, report["seconds"]), color=colors["during"], alpha=0.12, lw=0)
                axes.axvline(death.at, color=colors["during"], linewidth=1)
            late = number > 1 and death.at > 0.75 * report["seconds"]
            top.annotate(
                f"kill {number}: answers\nagain after {1e3 * (death.over - death.at):.0f} ms", (death.at, 1),
                xycoords=("data", "axes fraction"), xytext=(-5 if late else 5, -3), textcoords="offset points",
                color=colors["during"], va="top", ha="right" if late else "left",
            )  # fmt: skip
        bars = figure.add_subplot(grid[2, 0])
        names = ("p50", "p90", "p99", "max")
        for place, phase in enumerate(PHASES):
            row = report["latency_ms"][phase]
            if row["count"]:
                drawn = bars.bar(
                    np.arange(4) + 0.27 * (place - 1), [row[name] for name in names], 0.25, color=colors[phase],
                    label=phase,
                )  # fmt: skip
                labels = [f"{row[name]:.0f}" if row[name] >= 10 else f"{row[name]:.1f}" for name in names]
                bars.bar_label(drawn, labels, fontsize=8, padding=1)
        bars.set(title="Percentiles", ylabel="ms", yscale="log", xticks=np.arange(4), xticklabels=names)
        bars.grid(visible=False, axis="x")
        in_milliseconds(bars.yaxis)
        bars.margins(y=0.12)
        bars.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0, ncols=3, handlelength=1, columnspacing=1)
        draw_outage(figure.add_subplot(grid[2, 1]), load, by_phase, colors)
        figure.savefig(path)


def draw_outage(axes, load, by_phase, colors):
    """Draw the requests around the first kill, each as a line from when it was sent until it was answered."""
    death = load.deaths[0] if load.deaths else None
    middle, half = (death.at, 1.2 * (death.over - death.at)) if death else (0.0, 0.2)
    low, high = middle - half, middle + 2 * half
    for phase, records in by_phase.items():
        shown = [record for record in records if record.answered > low and record.sent < high]
        axes.hlines(
            [record.number for record in shown], [1e3 * (record.sent - middle) for record in shown],
            [1e3 * (record.answered - middle) for record in shown], color=colors[phase], linewidth=1.5, alpha=0.8,
        )  # fmt: skip
    axes.set(
        title="Each request around the first kill" if death else "The first requests", xlabel="ms", ylabel="request",
        xlim=(1e3 * (low - middle), 1e3 * (high - middle)),
    )  # fmt: skip
    if death:
        axes.axvspan(0, 1e3 * (death.over - death.at), color=colors["during"], alpha=0.12, lw=0)
        axes.axvline(0, color=colors["during"], linewidth=1)
