"""The report as a picture: bars of documents per second."""

from __future__ import annotations

from pathlib import Path

from tokenmill.benchmark.report import Report
from tokenmill.errors import BenchmarkError

OURS, THEIRS = "#1f77b4", "#b0b7bf"
LOG_FROM = 20  # times between the fastest and the slowest


def draw(report: Report, path: Path) -> None:
    """Write the chart; the suffix of the path says how."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, NullFormatter
    except ImportError as error:
        raise BenchmarkError("--plot needs matplotlib: pip install 'tokenmill[plot]'") from error
    mpl.rcParams["svg.hashsalt"] = "tokenmill"  # the same picture for the same figures
    bars = _bars(report)
    figure = Figure(figsize=(9, 0.5 * len(bars) + 1.9), layout="constrained")
    axes = figure.add_subplot()
    rates = [rate for _, rate, _ in bars]
    positions = range(len(bars))
    axes.barh(positions, rates, color=[OURS if ours else THEIRS for _, _, ours in bars], height=0.72)
    axes.set_yticks(positions, [name for name, _, _ in bars])
    if max(rates) > LOG_FROM * min(rates):
        axes.set_xscale("log")
        axes.set_xlim(min(rates) / 3, max(rates) * 4)
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, max(rates) * 1.18)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for position, rate in zip(positions, rates, strict=True):
        axes.annotate(f"{rate:,.0f}", (rate, position), (5, 0), textcoords="offset points", va="center", fontsize=10)
    scale = ", logarithmic scale" if axes.get_xscale() == "log" else ""
    axes.set_xlabel(f"documents per second{scale}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_title(_title(report), loc="left", fontsize=12, fontweight="bold", pad=22)
    axes.text(0, 1.02, _subtitle(report), transform=axes.transAxes, fontsize=9, color="#555555")
    metadata = {"Date": None} if path.suffix == ".svg" else None
    try:
        figure.savefig(path, dpi=160, metadata=metadata)
    except (OSError, ValueError) as error:
        raise BenchmarkError(f"cannot write the chart {path}: {error}") from error


def _bars(report: Report) -> list[tuple[str, float, bool]]:
    """Name, documents per second, and whether it is ours; the fastest last, which is drawn on top."""
    if report.engines:
        runs = [(c, True) for c in report.engines] + [(c, False) for c in report.peers if c.seconds]
        found = [(_label(c.name, c.workers, ours), c.documents / c.best, ours) for c, ours in runs]
    else:
        found = [(m.name, m.documents / m.median, "fastokens" in m.name) for m in report.methods]
    return sorted(found, key=lambda bar: bar[1])


def _label(name: str, workers: int, ours: bool) -> str:
    kind = "worker" if workers == 1 else "workers"
    return f"tokenmill {name}, {workers} {kind}" if ours else f"{name}, {workers} {kind}"


def _title(report: Report) -> str:
    return "From shards to packed tokens on disk" if report.engines else "Encoding alone"


def _subtitle(report: Report) -> str:
    one = report.engines[0] if report.engines else report.methods[0]
    text = (
        f"{one.text_bytes / 1e6:,.0f} MB of {'generated ' if report.generated else ''}text, {one.documents:,} documents"
    )
    return f"{text}, {report.cores} cores" + (", start-up included" if report.engines else "")
