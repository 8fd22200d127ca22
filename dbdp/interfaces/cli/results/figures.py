"""Commands that release statistics of a dataset's columns, or show stored ones."""

from collections.abc import Sequence
from typing import Annotated

from dbdp.interfaces.cli.click_adapter import Commands, option
from dbdp.interfaces.cli.printing import AsJson, Epsilon, Url, opened, print_line, show
from dbdp.sessions.session import Row

app = Commands()

GaussianDelta = Annotated[float, option(help="δ of this release, above 0.")]


@app.command()
def describe(dataset: str, epsilon: Epsilon, delta: GaussianDelta, as_json: AsJson = False, url: Url = None) -> None:
    """Describe all declared columns for one charge: NULLs, mean, deviation, quartiles, counts of categories."""
    with opened(url) as database:
        figures = database.describe(dataset, epsilon=epsilon, delta=delta)
    if as_json:
        show(figures, True, dataset)
        return
    numbers = [row for row in figures if row["outside"] is not None]
    counts = ("column_name", "value", "count", "count_noise", "share", "share_noise")
    show(_columns([row for row in figures if row["outside"] is None], counts), False, f"{dataset}: rows and categories")
    if numbers:
        hidden = {*counts[4:], "value", "outside_noise"}
        show(_columns(numbers, [name for name in numbers[0] if name not in hidden]), False, f"{dataset}: numbers")
    print_line(f"statistic {figures.statistic}: dbdp.statistic_describe({figures.statistic}) shows it again, for free")


def _columns(rows: list[Row], names: Sequence[str]) -> list[Row]:
    """Return rows with some of their columns only."""
    return [{name: row[name] for name in names} for row in rows]
