"""Describes and tables of a summary: true figures at a huge ε, coverage of every ±, rights, refusals."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import psycopg
import pytest
from click.testing import CliRunner
from scipy.stats import binom

from dbdp.algorithms import Request
from dbdp.algorithms.families.preconditioned.preconditioning import matrix_of
from dbdp.controller.statistics.summary_views import listings, noisy_figures
from dbdp.controller.statistics.summary_views.viewed_columns import NULL, OTHER
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.database import Database
from dbdp.registry.declarations import Declaration, declare
from dbdp.registry.results import stored_summaries
from dbdp.registry.results.stored_summaries import StoredSummary

EXACT = {"epsilon": 9e5, "delta": 1e-3}  # hardly any noise
FEATURES: dict[str, Any] = {
    "age": {"bounds": [20, 80], "bins": 3},
    "height": {"bounds": [100, 200], "missing": "indicator"},
    "years": {"bounds": [0, 10], "bins": 2, "missing": "indicator"},
    "dose": {"bounds": [-5, 2000], "scale": "asinh"},
    "ward": ["a", "b"],
    "sex": {"categories": ["f", "m"], "missing": "category"},
}
LABELS: dict[str, dict[str, Any]] = {
    "real": {"label": "cost", "label_bounds": [-50, 400]},
    "binary": {"label": "ill", "positive": "yes", "negative": "no"},
    "open": {"label": "ill", "positive": "yes"},
    "classes": {"label": "kind", "classes": ["x", "y", "z"]},
}
ROWS = 3000


def people() -> pd.DataFrame:
    """Rows with NULLs in every feature."""
    random = np.random.default_rng()
    frame = pd.DataFrame(
        {
            "age": random.uniform(20, 80, ROWS),
            "height": random.uniform(120, 180, ROWS),
            "years": random.uniform(0, 10, ROWS),
            "dose": random.uniform(-5, 50, ROWS),
            "ward": random.choice(list("abc"), ROWS),
            "sex": random.choice(list("fmx"), ROWS),
        }
    )
    frame.loc[frame.age < 50, "height"] += 10
    for column, rate in (("height", 0.1), ("years", 0.2), ("age", 0.05), ("ward", 0.1), ("sex", 0.1)):
        frame.loc[random.random(ROWS) < rate, column] = None
    frame["cost"] = np.clip(frame.age.fillna(50) * 3 + random.normal(0, 20, ROWS), -50, 400)
    frame["ill"] = np.where(frame.cost > 120, "yes", "no")
    frame["kind"] = np.select([frame.cost < 120, frame.cost < 180], ["x", "y"], "z")
    return frame


@pytest.fixture
def table(connection: psycopg.Connection, schema: str) -> pd.DataFrame:
    frame = people()
    columns = (
        "age float8, height float8, years float8, dose float8, ward text, sex text, cost float8, ill text, kind text"
    )
    connection.execute(f"create table t ({columns})")
    with connection.cursor().copy("copy t from stdin") as copy:
        for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False):
            copy.write_row(row)
    return frame


@pytest.fixture
def summarized(database: Database, register: Callable[..., str], table: pd.DataFrame) -> Callable[..., int]:
    """Register the table with a kind of label, and release a summary with hardly any noise."""

    def make(kind: str, **given: Any) -> int:
        options = {"features": FEATURES, "epsilon": 1e6, "delta": 0.5, "positive": None} | LABELS[kind]
        return database.summarize(register("t", **options | given), **EXACT).id

    return make


def levels_of(frame: pd.DataFrame, kind: str = "real") -> pd.DataFrame:
    """The level of each row in each column that has levels, as a view names it."""
    ages, years = frame.age.fillna(50), frame.years.fillna(5)
    other = frame.ward.where(frame.ward.isin(["a", "b"]), OTHER)
    levels = {
        "age": np.select([ages < 40, ages < 60], ["[20,40)", "[40,60)"], "[60,80]"),
        "years": np.where(frame.years.isna(), NULL, np.where(years < 5, "[0,5)", "[5,10]")),
        "ward": other,
        "sex": frame.sex.fillna(NULL).replace({"x": OTHER}),
    }
    if kind != "real":
        own = frame[LABELS[kind]["label"]]
        levels[LABELS[kind]["label"]] = own.replace({"no": OTHER}) if kind == "open" else own
    return pd.DataFrame(levels)


def moments_of(frame: pd.DataFrame, column: str) -> list[float]:
    return [frame[column].count(), frame[column].mean(), frame[column].std(ddof=0)]


# --- true figures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LABELS)
def test_a_describe_has_the_true_figures_without_noise(connection, summarized, table, kind):
    rows = connection.execute("select * from dbdp.summary_describe(%s)", (summarized(kind),)).fetchall()
    assert rows[0][:4] == ("(all)", None, ROWS, 0)
    assert rows[0][8].startswith("rows with a value of ")
    counts = {(column, value): count for column, value, count, *_ in rows if value is not None}
    levels = levels_of(table, kind)
    exact = {(name, value): count for name in levels for value, count in levels[name].value_counts().items()}
    assert counts == exact
    for column in ("height", *(["cost"] if kind == "real" else [])):
        (row,) = (row for row in rows if row[0] == column)
        assert [row[2], row[4], row[6]] == pytest.approx(moments_of(table, column), rel=1e-3)
    (dose,) = (row for row in rows if row[0] == "dose")
    assert (dose[2], *dose[4:8]) == (ROWS, None, None, None, None)
    assert "bins" in dose[8]
    assert max(row[3] for row in rows) == 0


@pytest.mark.parametrize("kind", LABELS)
def test_a_table_has_the_true_counts_without_noise(connection, summarized, table, kind):
    summary, levels = summarized(kind), levels_of(table, kind)
    pairs = [["ward"], ["age", "sex"], ["years", "ward"], ["years", "age"], [levels.columns[-1], "sex"]]
    for by in [pair for pair in pairs if len(set(pair)) == len(pair)]:
        rows = connection.execute("select * from dbdp.summary_table(%s, by => %s)", (summary, by)).fetchall()
        exact = levels.value_counts(by).to_dict()
        found = {tuple(groups): value for groups, figure, value, _ in rows if figure == "count"}
        assert {groups: value for groups, value in found.items() if value} == {
            key if isinstance(key, tuple) else (key,): value for key, value in exact.items()
        }


@pytest.mark.parametrize("by", ["age", "years", "ward", "sex"])
def test_means_by_group_are_the_true_ones_without_noise(connection, summarized, table, by):
    summary, groups = summarized("real"), levels_of(table)[by]
    for column in ("height", "cost"):
        query = "select groups[1], value from dbdp.summary_table(%s, by => %s, mean => %s)"
        found = dict(connection.execute(query, (summary, [by], column)).fetchall())
        assert found == pytest.approx(table.groupby(groups)[column].mean().to_dict(), rel=1e-4)


def test_an_array_is_described_by_its_elements(connection, database, register, make_table):
    features = np.random.default_rng().uniform(-1, 1, (500, 3))
    make_table("arrays", features, np.where(features[:, 0] > 0, 1, -1))
    name = register("arrays", features={"x": {"length": 3, "norm": 2}}, epsilon=1e6, delta=0.5)
    summary = database.summarize(name, **EXACT).id
    query = "select mean, sd from dbdp.summary_describe(%s) where column_name = %s"
    for place in range(3):
        (found,) = connection.execute(query, (summary, f"x[{place + 1}]")).fetchall()
        assert found == pytest.approx((features[:, place].mean(), features[:, place].std()), abs=1e-4)
    (group, other) = connection.execute(
        "select value from dbdp.summary_table(%s, by => '{y}', mean => 'x[1]')", (summary,)
    ).fetchall()
    assert group[0] > 0 > other[0]


# --- the noise -----------------------------------------------------------------------------------------------

RUNS = 1000
ALPHA = 1e-9


def exact_summary(frame: pd.DataFrame, declaration: Declaration, scale: float) -> StoredSummary:
    """A summary of rows without NULL in numbers of one coordinate, without noise, from its definition."""
    parts = []
    for part in declaration.numeric:
        values = frame[part.column]
        if part.bins:
            places = np.searchsorted(part.edges, values.fillna(part.missing), side="right")
            parts.append(np.eye(part.bins)[places])
        else:
            origin, length = part.affine("centred")
            parts.append(((values.fillna(part.missing) - origin) / length).to_numpy()[:, None])
        if part.indicator:
            parts.append(values.isna().to_numpy()[:, None] * 1.0)
    for each in declaration.categorical:
        named = frame[each.column].fillna("missing")
        parts.append(np.column_stack([named == value for value in each.values]) * 1.0)
    parts.append(np.ones((len(frame), 1)))
    if declaration.classes:
        parts.append(np.column_stack([frame.kind == value for value in declaration.classes]) * 1.0)
    elif declaration.label_bounds:
        lower, upper = declaration.label_bounds
        parts.append(((frame.cost - lower) / (upper - lower) * 2 - 1).to_numpy()[:, None])
    else:
        parts.append(np.where(frame.ill == "yes", 1.0, -1.0)[:, None])
    rows = np.hstack(parts)
    return StoredSummary(1, 1, "d", declaration, rows.T @ rows / len(rows), scale, len(rows))


def noisy(exact: StoredSummary, random: np.random.Generator) -> StoredSummary:
    size = len(exact.mean)
    moved = matrix_of(random.normal(0, exact.scale, size * (size + 1) // 2), size)
    return StoredSummary(1, 1, "d", exact.declaration, exact.mean + moved, exact.scale, exact.slots)


def shown(summary: StoredSummary, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[Any, ...], tuple[Any, Any]]:
    """Every figure of every view, with its ±."""
    monkeypatch.setattr(stored_summaries, "load", lambda *_: summary)
    found: dict[tuple[Any, ...], tuple[Any, Any]] = {}
    for row in listings.describe(None, 1):  # type: ignore[arg-type]
        for name in ("count", "mean", "sd"):
            found[row["column_name"], row["value"], name] = row[name], row[f"{name}_noise"]
    label = summary.declaration.label
    for by, mean in (
        (["age", "ward"], None),
        (["years", "sex"], None),
        (["ward"], "height"),
        (["age"], "height"),
        (["age", label] if label != "cost" else ["age", "sex"], None),
        (["sex"], "cost" if label == "cost" else "height"),
    ):
        for row in listings.table(None, 1, by, mean):  # type: ignore[arg-type]
            found[(*row["groups"], row["figure"], *by)] = row["value"], row["plus_minus"]
    return found


def coverage(kind: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[Any, ...], list[bool]]:
    declaration, random, frame = declare(features=FEATURES, **LABELS[kind]), np.random.default_rng(), people()
    exact = exact_summary(frame, declaration, scale / ROWS)
    truth = shown(StoredSummary(1, 1, "d", declaration, exact.mean, 0.0, ROWS), monkeypatch)
    held: dict[tuple[Any, ...], list[bool]] = {name: [] for name in truth}
    for _ in range(RUNS):
        for name, (value, width) in shown(noisy(exact, random), monkeypatch).items():
            if value is not None and truth[name][0] is not None:
                held[name].append(abs(value - truth[name][0]) <= width)
    return {name: each for name, each in held.items() if each}


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["real", "binary", "classes"])
def test_every_interval_covers_95_of_100_releases(monkeypatch, kind):
    """Means and counts exactly so; intervals of deviations map those of variances, of first order."""
    found = coverage(kind, 12.0, monkeypatch)
    assert len(found) > 40
    limit = ALPHA / len(found)
    for name, held in found.items():
        rate = 0.945 if name[2] == "sd" else 0.95
        assert binom.cdf(sum(held), len(held), rate) > limit, name
        assert binom.sf(sum(held) - 1, len(held), 0.97) > limit, name


@pytest.mark.statistical
def test_narrower_intervals_are_noticed(monkeypatch):
    monkeypatch.setattr(noisy_figures, "_QUANTILE", 1.5)
    found = coverage("real", 12.0, monkeypatch)
    low = [name for name, held in found.items() if binom.cdf(sum(held), len(held), 0.95) < ALPHA / len(found)]
    assert len(low) > len(found) / 2


def test_counts_have_less_noise_than_one_entry(monkeypatch):
    declaration = declare(features=FEATURES, **LABELS["classes"])
    summary = exact_summary(people(), declaration, 10 / ROWS)
    view = noisy_figures.SummaryFigures(summary)
    column = view.columns["ward"].levels[0].vector
    single = view.cell(column, view.everything).plus_minus
    assert view.count(column).plus_minus < 0.75 * single
    assert view.count(view.everything).plus_minus < 0.6 * view.cell(view.everything, view.everything).plus_minus


# --- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "by => '{height}'",
            r"column 'height' has no categories or bins in summary \d+; .*bins => '\{\"height\": 8\}'",
        ),
        ("by => '{dose}'", "choose among age, years, ward, sex"),
        ("by => '{}'", r"by = \[\] has 0 columns"),
        ("by => '{age,ward,sex}'", "has 3 columns; summary .* has counts by one or two different columns"),
        ("by => '{age,age}'", "one or two different columns"),
        ("by => '{age,ward}', mean => 'height'", "means by one column"),
        ("by => '{length}'", "has no column 'length'; choose among age, height, years, dose, ward, sex, cost"),
        ("by => '{null}'", "has no column None"),
        ("by => '{age}', mean => 'ward'", "mean = 'ward' is no number .* choose among height, cost"),
        ("by => null", "by is required, e.g. by => '{ward}'"),
    ],
)
def test_a_missing_figure_is_refused_with_a_remedy(connection, summarized, arguments, message):
    with pytest.raises(psycopg.Error, match=message):
        connection.execute(f"select dbdp.summary_table({summarized('real')}, {arguments})")


def test_without_an_intercept_there_is_no_view(connection, summarized):
    summary = summarized("real", intercept=False)
    for call in ("summary_describe(%s)", "summary_table(%s, '{ward}')"):
        with pytest.raises(psycopg.Error, match=r"has no means.*register the table with intercept => true"):
            connection.execute(f"select dbdp.{call}", (summary,))


def test_a_category_with_the_name_of_others_is_refused(connection, summarized):
    summary = summarized("real", features=FEATURES | {"ward": ["a", "(other)"]})
    with pytest.raises(psycopg.Error, match=r"column 'ward' has a category '\(other\)'.*redeclare"):
        connection.execute("select dbdp.summary_describe(%s)", (summary,))


def test_views_are_free(connection, database, summarized, spent):
    summary = summarized("real")
    name = database.query("select dataset from dbdp.summaries where id = $1", summary)[0]["dataset"]
    before, ledger = spent(name), len(database.history(name))
    for _ in range(3):
        connection.execute("select dbdp.summary_describe(%s), dbdp.summary_table(%s, '{ward}')", (summary, summary))
    assert (spent(name), len(database.history(name))) == (before, ledger)


# --- bins ----------------------------------------------------------------------------------------------------


@pytest.fixture
def divided(database: Database, register: Callable[..., str], table: pd.DataFrame) -> Callable[..., tuple[str, int]]:
    """Register the table with a label that is a number, and release a summary with bins and hardly any noise."""

    def make(bins: Any, **given: Any) -> tuple[str, int]:
        options = {"features": FEATURES, "epsilon": 1e6, "delta": 0.5, "positive": None} | LABELS["real"]
        name = register("t", **options | given)
        return name, database.summarize(name, **EXACT, bins=bins).id

    return make


def counts_of(connection: psycopg.Connection, summary: int, *by: str) -> dict[Any, int]:
    query = "select groups, value from dbdp.summary_table(%s, by => %s) where value <> 0"
    found = {tuple(groups): value for groups, value in connection.execute(query, (summary, list(by)))}
    return found if len(by) > 1 else {group: value for (group,), value in found.items()}


def in_bins(values: pd.Series, lower: float, upper: float, bins: int) -> pd.Series:
    places = np.clip(np.floor((values - lower) / (upper - lower) * bins), 0, bins - 1)
    return places.astype(int)


def test_numbers_and_the_label_are_counted_in_bins(connection, divided, table):
    _, summary = divided({"height": 4, "cost": 5})
    costs = in_bins(table.cost, -50, 400, 5)
    names = [f"[{-50 + 90 * place},{40 + 90 * place}{')' if place < 4 else ']'}" for place in range(5)]
    assert counts_of(connection, summary, "cost") == {names[k]: n for k, n in costs.value_counts().items()}
    heights = in_bins(table.height.fillna(0), 100, 200, 4).where(table.height.notna(), 4)
    levels = ["[100,125)", "[125,150)", "[150,175)", "[175,200]", NULL]
    exact = pd.crosstab(heights, costs).stack()
    expected = {(levels[one], names[other]): count for (one, other), count in exact.items() if count}
    assert counts_of(connection, summary, "height", "cost") == expected


def test_one_number_divides_all_numbers_without_bins(connection, divided):
    _, summary = divided(16)
    query = "select column_name, count(*) from dbdp.summary_describe(%s) group by 1"
    found = dict(connection.execute(query, (summary,)).fetchall())
    assert found == {"(all)": 1, "age": 3, "height": 17, "years": 3, "dose": 16, "ward": 3, "sex": 4, "cost": 16}


def test_few_whole_numbers_have_a_bin_each(connection, database, register, schema):
    connection.execute(
        "create table w as select i % 5 as a, i % 2 = 0 as b, i % 3 as y from generate_series(1, 300) as i"
    )
    declared = {"features": {"a": [0, 4], "b": [0, 1]}, "label_bounds": [0, 2], "positive": None}
    name = register("w", label="y", **declared, epsilon=1e6, delta=0.5)
    summary = database.summarize(name, **EXACT, bins=16).id
    assert list(counts_of(connection, summary, "a").values()) == [60] * 5
    assert list(counts_of(connection, summary, "b").values()) == [150] * 2
    assert list(counts_of(connection, summary, "y").values()) == [100] * 3


def test_bins_do_not_change_the_noise(database, register, table):
    options = {"features": FEATURES, "epsilon": 100, "delta": 1e-3, "positive": None} | LABELS["real"]
    name = register("t", **options)
    plain, binned = (database.summarize(name, epsilon=1, delta=1e-6, bins=bins).receipt for bins in (None, 10))
    assert plain["noise_scale"] == pytest.approx(binned["noise_scale"], rel=1e-6)
    assert plain["coordinates"] < binned["coordinates"]


def test_a_summary_with_other_bins_does_not_train(database, divided, spent):
    name, summary = divided({"height": 4})
    before = spent(name)
    with pytest.raises(ValueError, match=f"summary {summary} has other bins.*dp_summarize"):
        database.train(name, Request(1.0, 1e-6, algorithm="preconditioned_gd", summary=summary))
    assert spent(name) == before


def test_a_summary_with_bins_of_the_label_trains(database, divided):
    name, summary = divided({"cost": 4})
    query = (
        "select model from dbdp.dp_train($1, 1, 1e-6, 'preconditioned_gd', loss => 'huber_regression', summary => $2)"
    )
    assert database.query(query, name, summary)[0]["model"] > summary


@pytest.mark.parametrize(
    ("bins", "message"),
    [
        (1, "bins = 1 must be a whole number between 2 and 1000"),
        ({"height": 1001}, "bins of 'height' = 1001 must be a whole number between 2 and 1000"),
        (
            {"ward": 4},
            "bins name 'ward', which is no number of the dataset; choose among age, height, years, dose, cost",
        ),
        ({"width": 4}, "bins name 'width', which is no column of the dataset"),
        ({"height": None}, "bins of 'height' = None"),
    ],
)
def test_wrong_bins_are_refused_before_the_charge(database, register, spent, table, bins, message):
    options = {"features": FEATURES, "epsilon": 1e6, "delta": 0.5, "positive": None} | LABELS["real"]
    name = register("t", **options)
    with pytest.raises(ValueError, match=message):
        database.summarize(name, epsilon=1, delta=1e-6, bins=bins)
    assert spent(name) == (0, 0)


@pytest.mark.parametrize("bins", ["[8]", '"8"', "true", "8.5"])
def test_bins_of_no_kind_are_refused(connection, register, table, bins):
    options = {"features": FEATURES, "epsilon": 1e6, "delta": 0.5, "positive": None} | LABELS["real"]
    with pytest.raises(psycopg.Error, match=r"bins = .* is no whole number and no object"):
        connection.execute("select dbdp.dp_summarize(%s, 1, 1e-6, bins => %s)", (register("t", **options), bins))


# --- Python and the command line -----------------------------------------------------------------------------


def test_a_data_frame_of_a_summary_is_that_of_sql(connection, database, summarized):
    summary = database.summary(summarized("real"))
    described = pd.DataFrame(summary.describe())
    cursor = connection.execute("select * from dbdp.summary_describe(%s)", (summary.id,))
    assert list(described) == [column.name for column in cursor.description or ()]
    assert described["count"].tolist() == [row[2] for row in cursor.fetchall()]
    table = pd.DataFrame(summary.table("ward", mean="height"))
    assert list(table) == ["ward", "mean height", "plus_minus"]
    assert list(pd.DataFrame(summary.table(["ward", "sex"]))) == ["ward", "sex", "count", "plus_minus"]
    assert "<td>(other)</td>" in summary.table("ward")._repr_html_()


def test_the_command_shows_a_summary_and_its_tables(database, summarized, server_url):
    summary = database.summary(summarized("real"))
    command = ["summary", str(summary.id), "--url", server_url]
    for options, rows in (
        ([], summary.describe()),
        (["--by", "ward,sex"], summary.table(["ward", "sex"])),
        (["--by", "ward", "--mean", "height"], summary.table("ward", mean="height")),
    ):
        assert json.loads(CliRunner().invoke(app, [*command, *options, "--json"]).stdout) == rows
        assert "ward" in CliRunner().invoke(app, [*command, *options]).stdout
    refused = CliRunner().invoke(app, [*command, "--mean", "height"])
    assert "--mean height has no groups; add --by COLUMN" in str(refused.exception)


def test_the_command_divides_numbers_into_bins(database, register, table, server_url):
    options = {"features": FEATURES, "epsilon": 100, "delta": 1e-3, "positive": None} | LABELS["real"]
    command = [
        "summarize",
        register("t", **options),
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--url",
        server_url,
        "--json",
    ]
    found = json.loads(CliRunner().invoke(app, [*command, "--bins", '{"height": 4}']).stdout)
    assert len(database.summary(found["summary"]).table("height")) == 5
    refused = CliRunner().invoke(app, [*command, "--bins", "eight"])
    assert "--bins eight is no whole number and no JSON object" in str(refused.exception)
