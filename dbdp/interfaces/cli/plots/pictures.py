"""The plots of `dbdp plot`, by matplotlib: each function draws the numbers of `series` and returns the figure."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from dbdp.controller.baselines import Descent
from dbdp.interfaces.cli.plots.series import ACCURACY, ERROR, IN_UPDATES, ONCE, NoiseSeries, Spending, Utility
from dbdp.interfaces.plain import plain
from dbdp.optional import needing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
_SIZE, _DOTS = (6.4, 4.2), 160  # inches, and dots per inch of a PNG
_BELOW: Any = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.16), "borderaxespad": 0.0, "ncols": 2}  # of the axes
# Okabe & Ito's colours, which the colour-blind can distinguish, and marks for prints in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#555555"
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
    True: ("all roles", "odometer: includes charges without a record"),
    False: ("the charges that you may see", "all charges"),
}
_NEAR = 1e-9  # relative difference of float sums that count as equal


def check(path: Path) -> None:
    """Raise an error if a plot could not be written, before anything is spent."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"picture {str(path)!r} must end in {' or '.join(SUFFIXES)}")
    if not path.resolve().parent.is_dir():
        raise FileNotFoundError(f"{path.resolve().parent} is not a folder; create it first")
    with needing("a picture"):
        import matplotlib  # noqa: F401
    is_new = not path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise OSError(f"picture {str(path)!r} cannot be written ({error.strerror}); name another file") from None
    if is_new:
        path.unlink()


Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


def styled(draw: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function to draw in the style of dbdp, without changing matplotlib's own."""

    @wraps(draw)
    def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        from matplotlib import rc_context

        with rc_context(_STYLE):
            return draw(*arguments, **options)

    return call


@styled
def save(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of its path's suffix."""
    figure.savefig(path, dpi=_DOTS)


def text(name: str) -> str:
    """Return a user's name escaped for matplotlib: `$` begins no formula, and a leading `_` hides no legend entry."""
    shown = plain(name).replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{shown}" if shown.startswith("_") else shown


def _axes(count: int = 1) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_SIZE[0] * (1 + 0.6 * (count - 1)), _SIZE[1]), layout="constrained")
    return figure, [figure.add_subplot(1, count, place + 1) for place in range(count)]


@styled
def panels(down: int, across: int) -> tuple["Figure", list["Axes"]]:
    """Return a figure with a grid of small axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.9 * across + 0.4, 2.5 * down + 0.5), layout="constrained")
    return figure, [figure.add_subplot(down, across, place + 1) for place in range(down * across)]


def _looks() -> Iterator[dict[str, Any]]:
    """Yield a colour and a mark for each line; after every seven lines the dashes change."""
    for dashes in ("-", "--", ":"):
        for colour, mark in zip(COLOURS, _MARKS, strict=True):
            yield {"color": colour, "marker": mark, "markerfacecolor": "none", "linestyle": dashes}


@styled
def utility(curve: Utility) -> "Figure":
    """Draw scores against ε: the mean of the repeats, in a band from the least to the greatest."""
    figure, (axes,) = _axes()
    for (name, scores), look in zip(curve.scores.items(), _looks(), strict=False):
        axes.plot(curve.epsilons, scores.mean(axis=1), label=name, **look)
        least, most = scores.min(axis=1), scores.max(axis=1)
        axes.fill_between(curve.epsilons, least, most, color=look["color"], alpha=0.18, linewidth=0)
    if curve.baseline is not None:
        warning = "" if curve.is_public else ": do not publish"
        axes.axhline(curve.baseline, color=GREY, linestyle="--", label=f"without privacy (L-BFGS){warning}")
    constant = "majority class" if curve.measure == ACCURACY else "mean label"
    axes.axhline(curve.constant, color=GREY, linestyle=":", label=constant)
    _logarithmic(axes, curve.epsilons)
    repeats = next(iter(curve.scores.values())).shape[1]
    title, scored = f"{text(curve.subject)}: {curve.measure}", f"on {curve.judged:,}"
    if curve.table is None:
        axes.set_title(f"{title} {scored} held-out rows")
    else:
        axes.set_title(f"{title}\n{scored} rows of {text(curve.table)}: as secret as these rows")
    axes.set_xlabel(f"privacy loss ε (log scale; δ = {curve.delta:g})")
    scale = ""
    if curve.measure == ERROR:  # it has no upper bound
        axes.set_yscale("log")
        scale = " (log scale)"
    axes.set_ylabel(f"{curve.measure}{scale}" + (f"\nmean and range of {repeats}" if repeats > 1 else ""))
    axes.legend(**_BELOW)
    return figure


@styled
def noise(curve: NoiseSeries) -> "Figure":
    """Draw the noise scale against ε, both logarithmic; a panel for each place where noise is added."""
    panels = [each for each in _PLACES if set(each[1]) & set(curve.scales)]
    figure, all_axes = _axes(len(panels))
    looks = dict(zip(curve.scales, _looks(), strict=False))
    for axes, (title, names) in zip(all_axes, panels, strict=True):
        for name in (name for name in curve.scales if name in names):
            epsilons, scales = zip(*curve.scales[name], strict=True)
            axes.plot(epsilons, scales, label=f"{name} ({curve.mechanisms[name].replace('_', ' ')})", **looks[name])
        axes.set_yscale("log")
        _logarithmic(axes, sorted({epsilon for steps in curve.scales.values() for epsilon, _ in steps}))
        axes.set_title(title)
        axes.set_xlabel(f"privacy loss ε (log scale; δ = {curve.delta:g})")
        axes.set_ylabel("noise scale per coordinate (log scale)")
        axes.legend(**_BELOW)
    figure.suptitle(f"{text(curve.subject)}: noise", x=0.01, ha="left", fontsize=12)
    return figure


def _logarithmic(axes: "Axes", values: list[float]) -> None:
    """Make the axis of ε logarithmic, labelled at the given values where there is room for them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values) if len(values) <= 8 else LogLocator(subs=(1.0, 3.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


@styled
def budget(curve: Spending) -> "Figure":
    """Draw the sum of charges up to each time, in total and by role, in percent of the limit."""
    figure, (axes,) = _axes()
    now = datetime.now(UTC)
    if len(curve.by_role) > 1:
        for (role, charges), look in zip(curve.by_role.items(), _looks(), strict=False):
            _steps(axes, curve, charges, now, label=text(role), color=look["color"], linestyle="-")
    sees_all = curve.recorded <= curve.seen * (1 + _NEAR)
    total, odometer = _SEEN[sees_all]
    _steps(axes, curve, curve.total, now, label=total, color=COLOURS[-1], linestyle="-")
    if curve.charged is not None and curve.charged > curve.seen * (1 + _NEAR):
        axes.axhline(100 * curve.charged / curve.limit, color=GREY, linestyle=":", label=odometer)
    axes.axhline(100, color=GREY, linestyle="--", label="limit")
    axes.set_ylim(0, 108)
    axes.set_title(f"{text(curve.dataset)}: budget spent since it was registered")
    axes.set_ylabel("spent (% of the budget)")
    _dates(axes)
    axes.legend(**_BELOW)
    return figure


def _steps(axes: "Axes", curve: Spending, charges: list[tuple[datetime, float]], now: datetime, **look: Any) -> None:
    """Draw a step function of the charges, from the registration to now."""
    times, sums = [curve.since, *(at for at, _ in charges)], [0.0, *(100 * spent / curve.limit for _, spent in charges)]
    axes.plot([*times, max(now, times[-1])], [*sums, sums[-1]], drawstyle="steps-post", **look)  # type: ignore[arg-type]


def _dates(axes: "Axes") -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=11)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("time (UTC)")


@styled
def loss(curve: Descent) -> "Figure":
    """Draw the objective after each epoch, and its minimum."""
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = _axes()
    axes.plot(range(1, len(curve.objective) + 1), curve.objective, label="after the epoch", **next(_looks()))
    if curve.minimum is not None:
        axes.axhline(curve.minimum, color=GREY, linestyle="--", label="least possible")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(f"{text(curve.dataset)}: loss of the exact model. NOT PRIVATE: do not publish")
    axes.set_xlabel("epoch")
    axes.set_ylabel("mean loss + λ/2 ‖model‖²")
    axes.legend(**_BELOW)
    return figure
