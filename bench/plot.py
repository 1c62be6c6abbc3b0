"""Draw how the optimal assignor and its peers grow: `python -m bench.plot FILE [--to PICTURE]`.

FILE is what `python -m bench --only optimal --json FILE` wrote. The same file gives the same
picture, byte for byte.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import matplotlib as mpl
import typer
from matplotlib.figure import Figure as Picture

from bench import growth_exponent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS = "ours"
GROWING = ("partitions", "members")
"""What grows, as bench.optimal names it in a figure's details; one chart each."""

_INK = "#1b1f24"
_STYLE = (
    f"<style>svg{{color:{_INK}}}@media (prefers-color-scheme:dark){{svg{{color:#e6edf3}}}}"
    "text{font-family:system-ui,sans-serif!important}</style>"
)
# Each at least three times as bright or dark as a white page and as a dark one.
_COLOURS = {OURS: "#d1495b", "franz-go's sticky": "#1f8a99", "Kafka's Java server uniform": "#7a78c8"}
_OTHER_COLOURS = ("#b07a1e", "#5f8f3a", "#8a8f98")
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "counterpoise",
    "svg.fonttype": "none",  # letters, not their outlines: small, and they can be found
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that all machines measure text alike
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}


@dataclass(slots=True)
class Series:
    """One assignor's seconds by size, both ascending; `stopped` is the size at which it took too long."""

    sizes: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    stopped: tuple[float, float] | None = None

    def add(self, size: float, seconds: float) -> None:
        """Take one case along, once: ours stands beside each peer."""
        if size not in self.sizes:
            self.sizes.append(size)
            self.seconds.append(seconds)


def series_of(figures: Sequence[Mapping[str, Any]], growing: str) -> dict[str, Series]:
    """Collect who took how long while this grew, us first: name -> Series."""
    found = {OURS: Series()}
    cases = [f for f in figures if f["comparison"] == "optimal" and growing in f["details"]]
    for figure in sorted(cases, key=lambda figure: figure["details"][growing]):
        size = figure["details"][growing]
        found[OURS].add(size, figure["seconds"])
        name, _, is_stopped = figure["against"].partition(": ")
        theirs = found.setdefault(name, Series())
        if is_stopped:
            theirs.stopped = (size, figure["against_seconds"])
        else:
            theirs.add(size, figure["against_seconds"])
    return found if found[OURS].sizes else {}


def label_of(name: str, series: Series) -> str:
    """Name an assignor and its exponent, where there are two sizes to fit it to."""
    if len(series.sizes) < 2:
        return name
    return f"{name}: n^{growth_exponent(series.sizes, series.seconds):.2f}"


def draw(figures: Sequence[Mapping[str, Any]]) -> str:
    """Draw a chart for each thing that grows, as SVG.

    Args:
        figures: those of a bench's JSON; only `optimal`'s growing groups are looked at.

    Raises:
        ValueError: there are none.
    """
    charts = {growing: found for growing in GROWING if (found := series_of(figures, growing))}
    if not charts:
        raise ValueError(
            "no group that grows is in it; `python -m bench --only optimal --json FILE` writes some"
        )
    names = list(dict.fromkeys(name for found in charts.values() for name in found))
    others = iter([name for name in names if name not in _COLOURS])
    colours = _COLOURS | dict(zip(others, _OTHER_COLOURS, strict=False))
    with mpl.rc_context(_SETTINGS):
        picture = Picture(figsize=(9.4, 4.6), layout="constrained")
        for axes, (growing, found) in zip(_axes(picture, len(charts)), charts.items(), strict=True):
            _chart(axes, growing, found, colours)
        written = io.StringIO()
        picture.savefig(
            written,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": "python -m bench.plot"},
        )
    return written.getvalue().replace(_INK, "currentColor").replace("<defs>", f"{_STYLE}\n <defs>", 1)


def _axes(picture: Picture, many: int) -> Iterator[Axes]:
    yield from picture.subplots(1, many, squeeze=False)[0]


def _chart(axes: Axes, growing: str, found: Mapping[str, Series], colours: Mapping[str, str]) -> None:
    for name, series in found.items():
        colour, width = colours.get(name, _OTHER_COLOURS[-1]), 2.4 if name == OURS else 1.4
        if series.sizes:
            style: dict[str, Any] = {"color": colour, "linewidth": width, "marker": "o", "markersize": 4}
            axes.plot(series.sizes, series.seconds, label=label_of(name, series), **style)
        if series.stopped is not None:
            size, seconds = series.stopped
            label = f"{name}: stopped after {seconds:g} s"
            hollow: dict[str, Any] = {
                "color": colour,
                "linestyle": "none",
                "marker": "^",
                "fillstyle": "none",
            }
            axes.plot([size], [seconds], label=label, **hollow)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(growing)
    axes.set_ylabel("processor time")
    axes.set_title(f"one member joins, by {growing}", fontsize=10)
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:,.0f}")
    axes.yaxis.set_major_formatter(lambda seconds, _: _time(seconds))
    axes.minorticks_off()
    axes.grid(visible=True, color="#8b949e", alpha=0.35, linewidth=0.5)
    axes.legend(fontsize=8, framealpha=0, loc="upper left", bbox_to_anchor=(0, -0.16))


def _time(seconds: float) -> str:
    """Write a power of ten of seconds."""
    for least, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        # A tenth more, as the tick may lie a rounding below it.
        if seconds * 1.1 >= least:
            return f"{seconds / least:,.0f} {unit}"
    return f"{seconds:g} s"


def main(
    file: Annotated[Path, typer.Argument(help="What `python -m bench --only optimal --json FILE` wrote.")],
    *,
    to: Annotated[Path, typer.Option(help="The picture.")] = Path("docs/optimal-bench.svg"),
) -> None:
    """Draw how time grows with partitions and with members."""
    try:
        drawn = draw(json.loads(file.read_text(encoding="utf-8"))["figures"])
    except ValueError as error:
        typer.echo(f"{file}: {error}", err=True)
        raise typer.Exit(2) from error
    to.write_text(drawn, encoding="utf-8")
    typer.echo(f"wrote {to}", err=True)


if __name__ == "__main__":
    typer.run(main)
