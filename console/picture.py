"""The picture of a group's history: partitions down, generations across, colour = owner.

A move is a change of colour, and a letter says the same to whoever cannot tell colours
apart. Pure: rows in, SVG text out, the same text for the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from string import ascii_uppercase

CELL_WIDTH = 26
CELL_HEIGHT = 20
MOST_COLUMNS = 40
"""Wider pictures cannot be read in a README; the last columns are the ones that matter."""

# Told apart by people with the common colour blindnesses, on white and on black (after Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a900", "#8a6fd1")

_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1b1f24}.t{font-weight:600;font-size:15px}"
    ".l{fill:#000;text-anchor:middle;font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}"
    ".g{stroke:#8b949e;stroke-width:.5}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.l{fill:#000}}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One column of the picture.

    `owners` maps (topic, partition) to the member that owns it, None when nobody
    does; a partition that is absent did not exist. `names` maps a member_id to
    what people call the member.
    """

    label: str
    owners: Mapping[tuple[str, int], str | None]
    names: Mapping[str, str]


def draw_generations(title: str, generations: Sequence[Generation]) -> str:
    """Draw one group's generations as an SVG document.

    Args:
        title: shown above, and read out by screen readers.
        generations: oldest first; only the last `MOST_COLUMNS` are drawn.
    """
    shown = generations[-MOST_COLUMNS:]
    rows = sorted({place for generation in shown for place in generation.owners})
    names = _names(shown)
    place_of_name = {name: i for i, name in enumerate(names)}
    left = 16 + max((7 * len(_row_label(*place)) for place in rows), default=60)
    top = 64
    bottom = top + CELL_HEIGHT * len(rows)
    legend_width = 44 + max((7 * len(name) for name in names), default=0)
    width = max(left + CELL_WIDTH * len(shown) + 16, left + legend_width, 8 * len(title) + 32, 260)
    height = bottom + 36 + 22 * (len(names) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(_description(shown, rows, names))}</desc>',
        f"<style>{_STYLE}</style>",
        '<defs><pattern id="nobody" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="2" height="6" fill="#cf222e"/></pattern></defs>',
        f'<text class="t" x="16" y="24">{escape(title)}</text>',
        f'<text class="e" x="{left - 8}" y="{top - 8}">generation</text>',
    ]
    for column, generation in enumerate(shown):
        x = left + CELL_WIDTH * column + CELL_WIDTH // 2
        parts.append(f'<text class="m" x="{x}" y="{top - 8}">{escape(generation.label)}</text>')
    for row, place in enumerate(rows):
        y = top + CELL_HEIGHT * row
        parts.append(f'<text class="e" x="{left - 8}" y="{y + 14}">{escape(_row_label(*place))}</text>')
        parts.extend(_cells(place, shown, place_of_name, left, y))
    for i, name in enumerate([*names, None]):
        y = bottom + 20 + 22 * i
        letter, fill = ("", "url(#nobody)") if name is None else (_letter(i), _colour(i))
        parts.append(f'<rect class="g" x="{left}" y="{y}" width="{CELL_WIDTH}" height="16" fill="{fill}"/>')
        parts.append(f'<text class="l" x="{left + CELL_WIDTH // 2}" y="{y + 12}">{letter}</text>')
        said = "nobody owns it" if name is None else name
        parts.append(f'<text x="{left + CELL_WIDTH + 8}" y="{y + 12}">{escape(said)}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _cells(
    place: tuple[str, int], shown: Sequence[Generation], place_of_name: Mapping[str, int], left: int, y: int
) -> Iterable[str]:
    """Draw one partition's row: a rectangle a generation, a letter wherever the owner changes."""
    before: str | None = None
    for column, generation in enumerate(shown):
        if place not in generation.owners:
            before = None
            continue
        owner = generation.owners[place]
        name = None if owner is None else generation.names.get(owner, owner)
        x = left + CELL_WIDTH * column
        fill = "url(#nobody)" if name is None else _colour(place_of_name[name])
        yield (f'<rect class="g" x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" fill="{fill}"/>')
        if name is not None and name != before:
            letter = _letter(place_of_name[name])
            yield f'<text class="l" x="{x + CELL_WIDTH // 2}" y="{y + 14}">{letter}</text>'
        before = name


def _names(shown: Sequence[Generation]) -> list[str]:
    """List the owners in the order in which they first own something."""
    seen: dict[str, None] = {}
    for generation in shown:
        for place in sorted(generation.owners):
            owner = generation.owners[place]
            if owner is not None:
                seen.setdefault(generation.names.get(owner, owner))
    return list(seen)


def _description(shown: Sequence[Generation], rows: Sequence[tuple[str, int]], names: Sequence[str]) -> str:
    moves = 0
    last: dict[tuple[str, int], str] = {}
    for generation in shown:
        for place, owner in generation.owners.items():
            # Between the two halves of a cooperative move nobody owns it; that is one move, not two.
            if owner is not None:
                moves += last.setdefault(place, owner) != owner
                last[place] = owner
    return (
        f"{len(rows)} partitions over {len(shown)} generations, owned by {', '.join(names) or 'nobody'}; "
        f"{moves} times a partition came to another owner."
    )


def _row_label(topic: str, partition: int) -> str:
    return topic if partition < 0 else f"{topic} {partition}"


def _letter(i: int) -> str:
    """Name an owner by a letter; beyond 26 owners, by a letter and a number."""
    round_number, place = divmod(i, len(ascii_uppercase))
    return ascii_uppercase[place] + (str(round_number) if round_number else "")


def _colour(i: int) -> str:
    return _COLOURS[i % len(_COLOURS)]
