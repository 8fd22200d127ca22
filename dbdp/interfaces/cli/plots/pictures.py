"""The pictures of `dbdp plot`, by matplotlib: each function draws numbers of `curves`, and returns the figure."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from dbdp.controller.baselines import Descent
from dbdp.interfaces.cli.plots.curves import ACCURACY, ERROR, IN_UPDATES, ONCE, Noise, Spending, Utility
from dbdp.interfaces.plain import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
_SIZE, _DOTS = (6.4, 4.2), 160  # inches, and their dots in a PNG
_BELOW: Any = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.16), "borderaxespad": 0.0, "ncols": 2}  # of the axes
# Okabe & Ito's colours, which the colour-blind can tell apart, and marks for those who print in grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKS = ("o", "s", "^", "D", "v", "P", "X")
_GREY = "#555555"
_STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "svg.fonttype": "none",
}
_PLACES = (
    ("added once, to the model", ONCE),
    ("added in every update, to the sum of gradients", IN_UPDATES),
)
_SEEN = {  # labels of the charges and of the odometer, by whether all charges are to be seen
    True: ("all roles", "odometer: charges without a record too"),
    False: ("the charges that you may see", "all that was charged"),
}
_NEAR = 1e-9  # of sums of floats that are the same
_UNITS = {"renyi": "Rényi divergence", "zcdp": "ρ", "basic": "ε", "gaussian": "µ²"}  # of a charge, by mode


def check(path: Path) -> None:
    """Raise if a picture could not be written there: better before anything is spent.

    Raises
    ------
    ValueError
        If the suffix is not one of SUFFIXES.
    OSError
        If the folder does not exist, or the file cannot be written.
    RuntimeError
        If matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"picture {str(path)!r} must end in {' or '.join(SUFFIXES)}")
    if not path.resolve().parent.is_dir():
        raise FileNotFoundError(f"{path.resolve().parent} is not a folder; make it first")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise RuntimeError("matplotlib is not installed: run `pip install 'dbdp[plot]'`") from None
    is_new = not path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise OSError(f"picture {str(path)!r} cannot be written ({error.strerror}); name another file") from None
    if is_new:
        path.unlink()


Made = TypeVar("Made")
Given = ParamSpec("Given")


def _styled(draw: Callable[Given, Made]) -> Callable[Given, Made]:
    """Have a function draw in our style, and leave matplotlib's own as it was."""

    @wraps(draw)
    def call(*arguments: Given.args, **options: Given.kwargs) -> Made:
        from matplotlib import rc_context

        with rc_context(_STYLE):
            return draw(*arguments, **options)

    return call


@_styled
def save(figure: "Figure", path: Path) -> None:
    """Write a figure, as its path's suffix says."""
    figure.savefig(path, dpi=_DOTS)


def _text(written: str) -> str:
    """Return a user's text as matplotlib draws it: without mathematics, and in a legend whatever it begins with."""
    shown = plain(written).replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{shown}" if shown.startswith("_") else shown


def _axes(count: int = 1) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_SIZE[0] * (1 + 0.6 * (count - 1)), _SIZE[1]), layout="constrained")
    return figure, [figure.add_subplot(1, count, place + 1) for place in range(count)]


def _looks() -> Iterator[dict[str, Any]]:
    """Give a colour and a mark for each line; after seven of them the lines are dashed."""
    for dashes in ("-", "--", ":"):
        for colour, mark in zip(_COLOURS, _MARKS, strict=True):
            yield {"color": colour, "marker": mark, "markerfacecolor": "none", "linestyle": dashes}


@_styled
def utility(found: Utility) -> "Figure":
    """Draw the measure against ε: the mean of the repeats in a band from their least to their greatest."""
    figure, (axes,) = _axes()
    for (name, scores), look in zip(found.scores.items(), _looks(), strict=False):
        axes.plot(found.epsilons, scores.mean(axis=1), label=name, **look)
        least, most = scores.min(axis=1), scores.max(axis=1)
        axes.fill_between(found.epsilons, least, most, color=look["color"], alpha=0.18, linewidth=0)
    if found.baseline is not None:
        warning = "" if found.is_public else ": do not publish"
        axes.axhline(found.baseline, color=_GREY, linestyle="--", label=f"without privacy (L-BFGS){warning}")
    constant = "largest class" if found.measure == ACCURACY else "mean label"
    axes.axhline(found.constant, color=_GREY, linestyle=":", label=constant)
    _logarithmic(axes, found.epsilons)
    repeats = next(iter(found.scores.values())).shape[1]
    title, judges = f"{_text(found.subject)}: {found.measure}", f"on {found.judged:,}"
    if found.table is None:
        axes.set_title(f"{title} {judges} held-out rows")
    else:
        axes.set_title(f"{title}\n{judges} rows of {_text(found.table)}: as secret as they are")
    axes.set_xlabel(f"privacy loss ε (log scale; δ = {found.delta:g})")
    scale = ""
    if found.measure == ERROR:  # it has no upper bound
        axes.set_yscale("log")
        scale = " (log scale)"
    axes.set_ylabel(f"{found.measure}{scale}" + (f"\nmean and range of {repeats}" if repeats > 1 else ""))
    axes.legend(**_BELOW)
    return figure


@_styled
def noise(found: Noise) -> "Figure":
    """Draw the noise scale against ε, both logarithmic; a panel for each place where noise is added."""
    panels = [each for each in _PLACES if set(each[1]) & set(found.scales)]
    figure, all_axes = _axes(len(panels))
    looks = dict(zip(found.scales, _looks(), strict=False))
    for axes, (title, names) in zip(all_axes, panels, strict=True):
        for name in (name for name in found.scales if name in names):
            epsilons, scales = zip(*found.scales[name], strict=True)
            axes.plot(epsilons, scales, label=f"{name} ({found.mechanisms[name].replace('_', ' ')})", **looks[name])
        axes.set_yscale("log")
        _logarithmic(axes, sorted({epsilon for steps in found.scales.values() for epsilon, _ in steps}))
        axes.set_title(title)
        axes.set_xlabel(f"privacy loss ε (log scale; δ = {found.delta:g})")
        axes.set_ylabel("noise scale per coordinate (log scale)")
        axes.legend(**_BELOW)
    figure.suptitle(f"{_text(found.subject)}: noise", x=0.01, ha="left", fontsize=12)
    return figure


def _logarithmic(axes: "Axes", values: list[float]) -> None:
    """Make the axis of ε logarithmic, with plain numbers at the values asked for, where there is room for them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values) if len(values) <= 8 else LogLocator(subs=(1.0, 3.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


@_styled
def budget(found: Spending) -> "Figure":
    """Draw what was charged up to each time, in all and by role, and the limit."""
    figure, (axes,) = _axes()
    now = datetime.now(UTC)
    if len(found.by_role) > 1:
        for (role, charges), look in zip(found.by_role.items(), _looks(), strict=False):
            _steps(axes, found, charges, now, label=_text(role), color=look["color"], linestyle="-")
    sees_all = found.recorded <= found.seen * (1 + _NEAR)
    whole, odometer = _SEEN[sees_all]
    _steps(axes, found, found.total, now, label=whole, color=_COLOURS[-1], linestyle="-")
    if found.charged is not None and found.charged > found.seen * (1 + _NEAR):
        axes.axhline(found.charged, color=_GREY, linestyle=":", label=odometer)
    axes.axhline(found.limit, color=_GREY, linestyle="--", label="limit")
    axes.set_ylim(0, 1.08 * found.limit)
    axes.set_title(f"{_text(found.dataset)}: budget spent since it was registered")
    axes.set_ylabel(f"charge ({_UNITS[found.mode]})")
    _dates(axes)
    axes.legend(**_BELOW)
    return figure


def _steps(axes: "Axes", found: Spending, charges: list[tuple[datetime, float]], now: datetime, **look: Any) -> None:
    """Draw a staircase from the registration, where nothing was charged, to now."""
    times, sums = [found.since, *(at for at, _ in charges)], [0.0, *(spent for _, spent in charges)]
    axes.plot([*times, max(now, times[-1])], [*sums, sums[-1]], drawstyle="steps-post", **look)  # type: ignore[arg-type]


def _dates(axes: "Axes") -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=11)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("time (UTC)")


@_styled
def loss(found: Descent) -> "Figure":
    """Draw the objective after each epoch, and the least possible."""
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = _axes()
    axes.plot(range(1, len(found.objective) + 1), found.objective, label="after the epoch", **next(_looks()))
    if found.minimum is not None:
        axes.axhline(found.minimum, color=_GREY, linestyle="--", label="least possible")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(f"{_text(found.dataset)}: loss of the exact model. NOT PRIVATE: do not publish")
    axes.set_xlabel("epoch")
    axes.set_ylabel("mean loss + λ/2 ‖model‖²")
    axes.legend(**_BELOW)
    return figure
