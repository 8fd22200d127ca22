"""The page of the results: one file without anything from elsewhere."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.reproduce.figures import AUTO
from benchmarks.reproduce.papers import ROWS, Row
from benchmarks.reproduce.pictures import LABELS, unit
from benchmarks.reproduce.summaries import Point

STYLE = """
:root { color-scheme: light dark; --line: #8885; --mark: #d6006c; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1180px; padding: 1rem;
  overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { margin: 2rem 0 .3rem; } img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
.wide, .picture { overflow-x: auto; } table { border-collapse: collapse; font-size: .82rem; min-width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .5rem; text-align: left; vertical-align: top; }
.numbers td + td, .numbers th + th { text-align: right; white-space: nowrap; overflow-wrap: normal; }
.papers td { min-width: 8rem; overflow-wrap: normal; } .ours td { font-weight: 700; color: var(--mark); }
code { font-size: .85em; background: #8882; padding: .1em .3em; border-radius: 3px; } .note { opacity: .8; }
@media (max-width: 760px) {
  .papers tr:first-child { display: none; } .papers tr, .papers td { display: block; }
  .papers tr { border-bottom: 2px solid var(--line); padding: .5rem 0; } .papers td { border: 0; padding: .15rem 0; }
  .papers td:first-child { font-weight: 700; }
  .papers td + td::before { content: attr(data-head) ": "; opacity: .65; }
  .picture img { max-width: none; width: 52rem; }
}
nav ul { columns: 18rem; padding-left: 1.2rem; font-size: .9rem; } summary { cursor: pointer; padding: .3rem 0; }
"""
HEAD = ("", "shows", "the paper says", "measured here", "why they differ")


@dataclass(frozen=True)
class Section:
    """A figure on the page: its pictures, its points, or a table of its own."""

    name: str
    title: str
    says: str
    command: str
    picture: Path | None
    points: Sequence[Point] = ()
    notes: Sequence[str] = field(default_factory=tuple)  # what was measured, where there are no points


def page(sections: Sequence[Section], facts: Iterable[str], failures: Iterable[str]) -> str:
    """Return the page."""
    links = "".join(f'<li><a href="#{each.name}">{text(each.title)}</a></li>' for each in sections)
    known = "".join(f"<li>{text(fact)}</li>" for fact in facts)
    failed = "".join(f"<li>{text(each)}</li>" for each in failures)
    return "\n".join([
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>The papers’ experiments, measured again</title><style>{STYLE}</style></head><body>",
        "<h1>The papers’ experiments, measured again</h1>",
        "<p>Every training of dbdp ran in PostgreSQL, by its SQL functions. The thick line is dbdp’s default: what you "
        "should use. Bars are standard deviations over repeats. Dotted lines claim a privacy that they do not have, "
        "and dashed formulas are unsound. What a legend calls outside is far worse than the rest: its numbers are in "
        "the table.</p>",
        f"<ul>{known}</ul><nav><ul>{links}</ul></nav>",
        "<h2>What the papers say, and what was measured</h2>",
        papers(sections),
        "<h2>Figures</h2>",
        *map(section, sections),
        f"<h2>What failed</h2><ul>{failed or '<li>nothing</li>'}</ul></body></html>",
    ])  # fmt: skip


def text(value: object) -> str:
    """Return a value as text of HTML."""
    return html.escape(str(value))


def papers(sections: Sequence[Section]) -> str:
    """Return the table of every figure and table of the papers."""
    by_name = {each.name: each for each in sections}
    parts = []
    for paper in dict.fromkeys(row.paper for row in ROWS):
        lines = "".join(paper_row(row, by_name) for row in ROWS if row.paper == paper)
        head = f"<tr>{''.join(f'<th>{each}</th>' for each in HEAD)}</tr>"
        parts.append(f'<h3>{text(paper)}</h3><div class="wide"><table class="papers">{head}{lines}</table></div>')
    return "".join(parts)


def paper_row(row: Row, by_name: Mapping[str, Section]) -> str:
    """Return the line of one figure or table of a paper."""
    measured = "; ".join(
        f'<a href="#{name}">{name}</a>: {text(gist(by_name[name]))}' if name in by_name else f"{name}: not in this run"
        for name in row.figures
    )
    cells = (text(row.item), text(row.shows), text(row.says), measured or "–", text(row.differs))
    named = zip(HEAD, cells, strict=True)
    joined = "".join(f'<td data-head="{head}">{cell}</td>' for head, cell in named)
    return f"<tr>{joined}</tr>"


def gist(each: Section) -> str:
    """Return what was measured in a line: of each panel, up to three, dbdp's default and the ends of the rest."""
    if each.notes:
        return each.notes[0]
    panels = list(dict.fromkeys(point.panel.title for point in each.points))
    lines = [of_panel([point for point in each.points if point.panel.title == title]) for title in panels[:3]]
    more = f"; and {len(panels) - 3} more" if len(panels) > 3 else ""
    return "; ".join(lines) + more if lines else "no result yet"


def of_panel(points: Sequence[Point]) -> str:
    """Return what was measured in a panel at the middle of its axis."""
    panel = points[0].panel
    values = sorted({point.value for point in points})
    middle = values[len(values) // 2]
    best = -1 if panel.metric == "accuracy" else 1
    here = sorted((point for point in points if point.value == middle), key=lambda point: best * point.mean)
    ours = [point for point in here if point.series.method == AUTO]
    own = [point for point in here if point.series in [each for each in panel.series if each.method != AUTO][:1]]
    ends = {point.series.label: point for point in (*ours, *own, *here[:2], *here[-1:])}
    shown = ", ".join(f"{label} {number(point.mean)}" for label, point in ends.items())
    return f"{panel.title}, {unit(panel)} = {middle:g}: {shown}"


def number(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.3f}" if 0.1 <= abs(value) < 10 else f"{value:.3g}"


def section(each: Section) -> str:
    """Return a figure with its picture, its numbers and its command."""
    image = ""
    if each.picture is not None:
        data = base64.b64encode(each.picture.read_bytes()).decode()
        image = f'<div class="picture"><img src="data:image/png;base64,{data}" alt="{text(each.title)}"></div>'
    repeats = sorted({point.repeats for point in each.points})
    counted = f"Repeats: {repeats[0]} to {repeats[-1]}. " if len(repeats) > 1 else ""
    counted = counted or (f"Repeats: {repeats[0]}. " if repeats else "")
    notes = "".join(f"<p>{text(note)}</p>" for note in each.notes)
    panels = dict.fromkeys(point.panel.title for point in each.points)
    tables = "".join(table([point for point in each.points if point.panel.title == title]) for title in panels)
    numbers = f"<details><summary>The numbers</summary>{tables}</details>" if tables else ""
    return (
        f'<h3 id="{each.name}">{text(each.title)}</h3><p>{text(each.says)}</p>{image}{notes}{numbers}'
        f'<p class="note">{counted}Made by <code>{text(each.command)}</code>; {each.name}.csv, .svg, .png.</p>'
    )


def table(points: Sequence[Point]) -> str:
    """Return the numbers of a panel: a line for each series."""
    panel, values = points[0].panel, sorted({point.value for point in points})
    head = "".join(f"<th>{value:g}</th>" for value in values)
    lines = []
    for label in dict.fromkeys(point.series.label for point in points):
        of_series = {point.value: point for point in points if point.series.label == label}
        ours = next(iter(of_series.values())).series.method == AUTO
        cells = "".join(f"<td>{shown(of_series.get(value))}</td>" for value in values)
        lines.append(f"<tr{' class=ours' if ours else ''}><td>{text(label)}</td>{cells}</tr>")
    title = f"{panel.title}: {LABELS[panel.metric]} by {unit(panel)}"
    return (
        f'<div class="wide"><p>{text(title)}</p><table class="numbers"><tr><th></th>{head}</tr>{"".join(lines)}'
        "</table></div>"
    )


def markdown(each: Section) -> str:
    """Return the tables of a figure in Markdown."""
    parts = [f"## {each.title}", "", each.says, "", f"`{each.command}`", "", *each.notes, ""]
    for title in dict.fromkeys(point.panel.title for point in each.points):
        points = [point for point in each.points if point.panel.title == title]
        values = sorted({point.value for point in points})
        parts += [
            "| " + " | ".join([title, *(f"{value:g}" for value in values)]) + " |",
            "|---" * (1 + len(values)) + "|",
        ]
        for label in dict.fromkeys(point.series.label for point in points):
            of_series = {point.value: point for point in points if point.series.label == label}
            parts.append("| " + " | ".join([label, *(shown(of_series.get(value)) for value in values)]) + " |")
        parts.append("")
    return "\n".join(parts)


def shown(point: Point | None) -> str:
    """Return a mean with its deviation."""
    if point is None:
        return "–"
    spread = f" ± {number(point.deviation)}" if point.repeats > 1 else ""
    return f"{number(point.mean)}{spread}"
