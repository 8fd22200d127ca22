"""The pages of released statistics and summaries, and the form of a describe."""

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

import httpx
import pytest
from servers import drop_datasets
from site_of_tests import ODD, People, visiting, words
from test_web_forms import ended, fields_of, releases

from dbdp.interfaces.web.views import figure_charts
from dbdp.interfaces.web.views.rendering import _ENVIRONMENT, number

KINDS = ("describe", "table", "quantiles", "summary")
EXACT = "1e4, 1e-3"  # hardly any noise
CALLS = {
    "describe": f"select statistic from dbdp.dp_describe(%s, {EXACT}) limit 1",
    "table": f"""
select statistic from dbdp.dp_table(%s, '{{ward,"of <b>"}}', {EXACT}, '{{count,mean age}}', margins => true) limit 1
""",
    "quantiles": f"select statistic from dbdp.dp_quantiles(%s, 'age', '{{.5}}', {EXACT}) limit 1",
    "summary": f"select summary from dbdp.dp_summarize(%s, {EXACT}, bins => '{{\"age\": 4}}')",
}


@dataclass(frozen=True)
class Released:
    """A dataset of the owner, and one statistic of each kind."""

    dataset: str
    ids: dict[str, int]


@pytest.fixture(scope="module")
def released(people: People) -> Iterator[Released]:
    name, table = f"stats_{secrets.token_hex(3)}", f"{people.schema}.stats_of_page"
    with people.login("owner") as session:
        session.execute(f"""create table {table} as
select 20 + i % 61 as age, case when i % 3 = 0 then '{ODD.replace("'", "''")}' else 'b' end as ward,
  case when i % 5 > 0 then 'yes' end as "of <b>", case when i % 2 = 0 then 'sick' else 'well' end as ill
from generate_series(0, 2999) as i""")
        features = json.dumps({"age": [20, 80], "ward": [ODD, "b"], "of <b>": ["yes", "no"]})
        session.execute(
            "select dbdp.register_dataset(%s, %s::regclass, 'ill', 'sick', %s, 1e6, .5, negative => 'well')",
            (name, table, features),
        )
        ids = {kind: session.execute(call, (name,)).fetchone()[0] for kind, call in CALLS.items()}
    yield Released(name, ids)
    with people.admin() as admin:
        drop_datasets(admin, "name = %s", [name])


def shown(client: httpx.Client, number: int, **asked: str) -> str:
    answer = client.get("/statistic", params={"id": number, **asked})
    assert answer.status_code == 200, words(answer.text)
    return answer.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_statistic_has_charts_and_its_figures_for_free(owner, people, released, kind):
    """Each kind is drawn, with markup as text, and looking at it charges nothing."""
    with people.login("owner") as session:
        before = releases(session, released.dataset)
        page = shown(owner, released.ids[kind])
        assert releases(session, released.dataset) == before
    assert 'role="img"' in page and "<polygon" in page + "<polygon" * (kind in ("table", "summary"))
    assert ("<rect" in page) == (kind != "quantiles")
    assert "<script" not in page and "<b>" not in page and " style=" not in page
    if kind != "quantiles":
        assert "&lt;script&gt;" in page


def test_a_pages_figures_are_those_of_sql(owner, people, released):
    with people.login("owner") as session:
        sql = "select count, mean from dbdp.statistic_describe(%s) where column_name = 'age'"
        count, mean = session.execute(sql, (released.ids["describe"],)).fetchone()
        sql = "select value, plus_minus from dbdp.statistic_table(%s) where figure = 'count' and groups = '{b,yes}'"
        cell = session.execute(sql, (released.ids["table"],)).fetchone()
    text = words(shown(owner, released.ids["describe"]))
    assert f"age {number(count)}" in text and f"{number(mean)} ± " in text
    assert f"b, yes count {number(cell[0])} ± {number(cell[1])}" in words(shown(owner, released.ids["table"]))


def test_quantiles_and_tables_are_chosen_on_the_page(owner, released):
    text = words(shown(owner, released.ids["quantiles"], at="0.11 0.91"))
    assert re.search(r"0\.11 26 \d+ \d+ 0\.91 75", text)
    assert "0.11 26" in words(shown(owner, released.ids["describe"], by="age", at="0.11"))
    page = shown(owner, released.ids["summary"], by="ward", other="ill")
    assert "Noisy values of count" in page
    means = words(shown(owner, released.ids["summary"], by="ward", mean="of <b>"))
    assert "dbdp refused this" in means and "Its columns" in means


@pytest.mark.parametrize(("at", "why"), [("half", "Not a number"), ("2", "between 0 and 1"), ("", "between 0 and 1")])
def test_wrong_quantiles_are_refused_beside_the_figures(owner, released, at, why):
    text = words(unescape(shown(owner, released.ids["quantiles"], at=at)))
    assert why in text and "Its distribution" in text


def test_statistics_are_listed_by_dataset_and_linked_from_it(owner, people, released):
    listing = owner.get("/statistics", params={"dataset": released.dataset}).text
    for kind, identity in released.ids.items():
        assert f"/statistic?id={identity}" in listing and kind in listing
    assert "/statistic?id=" not in owner.get("/statistics", params={"dataset": people.odd}).text
    assert owner.get("/statistics", params={"search": "quantiles"}).text.count("/statistic?id=") == 1
    links = owner.get("/dataset", params={"name": released.dataset}).text
    assert f"/statistics?dataset={released.dataset}" in links and f"/describe?dataset={released.dataset}" in links


def test_a_statistic_of_another_role_looks_as_if_there_were_none(people, released):
    with visiting(people, "analyst") as analyst:
        hidden = analyst.get("/statistic", params={"id": released.ids["describe"]})
        none = analyst.get("/statistic", params={"id": 987654321})
        assert hidden.status_code == none.status_code == 404
        identity = str(released.ids["describe"])
        assert words(hidden.text).replace(identity, "") == words(none.text).replace("987654321", "")
        assert "/statistic?id=" not in analyst.get("/statistics").text


def test_a_describe_is_planned_and_released_once(owner, people, released):
    """The form begins with a guarantee that fits, shows noise and price, and a button pressed twice charges once."""
    empty = owner.get("/describe", params={"dataset": released.dataset}).text
    begun = {name: re.search(rf'name="{name}" value="([^"]*)"', empty)[1] for name in ("epsilon", "delta")}
    assert float(begun["epsilon"]) == 1 and 0 < float(begun["delta"]) <= 1 / 30000
    with people.login("owner") as session:
        before = releases(session, released.dataset)
        page = owner.get("/describe", params={"dataset": released.dataset} | begun).text
        assert "noise of a count" in page and f"/statistic?id={released.ids['describe']}" in page
        assert releases(session, released.dataset) == before
        form = fields_of(page, "/describe")
        answers = [owner.post("/describe", data=form) for _ in range(2)]
        onward = ended(owner, answers[0])
        assert onward.status_code == 303 and onward.headers["location"].startswith("/statistic?id=")
        assert "released this statistic" in owner.get(onward.headers["location"]).text
        assert releases(session, released.dataset) == before + 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"epsilon": "x", "delta": "1e-6"}, "Not a number"),
        ({"epsilon": "1", "delta": "0"}, "delta"),
        ({"epsilon": "1", "delta": "1e-6", "dataset": "none_such"}, "is not registered"),
    ],
)
def test_a_describe_that_cannot_be_planned_says_why(owner, released, given, why):
    page = owner.get("/describe", params={"dataset": released.dataset} | given).text
    assert why in words(page) and 'action="/describe" class="confirm"' not in page


def row(value: str | None, count: float, noise: float = 10.0) -> dict:
    return {"column_name": "ward", "value": value, "count": count, "count_noise": noise}


def test_a_bar_begins_at_0_and_its_line_holds_the_noise():
    (chart,) = figure_charts.columns([row(None, 500.0), row("<u>", 100.0), row("v", -20.0)])
    (left, _, width, _), (begin, _, less, _) = chart.fills
    (low, high, y), (lowest, _, _) = chart.bars
    assert begin + less == pytest.approx(left, abs=0.02) and width == pytest.approx(5 * less, abs=0.1)
    assert (low + high) / 2 == pytest.approx(left + width, abs=0.02)
    assert high - low == pytest.approx(width / 5, abs=0.1) and lowest == chart.left
    assert y == chart.y_ticks[0].at and "from -20 ± 10 at v to 100 ± 10 at <u>" in chart.title
    drawn = str(_ENVIRONMENT.get_template("chart.html").module.drawn(chart))
    assert drawn.count("<rect") == 2 and "&lt;u&gt;" in drawn


def test_hidden_and_many_figures_leave_the_largest():
    assert figure_charts.columns([row("a", None), row("b", None)]) == []
    (chart,) = figure_charts.columns([row(f"w{place}", float(place)) for place in range(50)])
    assert [tick.label for tick in chart.y_ticks] == [f"w{place}" for place in range(10, 50)]
    assert chart.x_label == "ward, the largest 40 of 50"


def test_means_are_drawn_on_their_range_without_totals():
    cells = [("a", 50.0), ("b", 52.0), ("(all)", 51.0)]
    rows = [{"groups": [name], "figure": "mean age", "value": value, "plus_minus": 1.0} for name, value in cells]
    (chart,) = figure_charts.groups(rows)
    assert not chart.fills and len(chart.dots) == 2
    assert chart.bars[0][0] == chart.left and chart.bars[1][1] == chart.right
    (whole,) = figure_charts.groups(rows[2:])
    assert len(whole.dots) == 1


def test_a_distribution_rises_within_its_band():
    rows = [
        {"quantile": q, "value": 100 * q, "lower": 100 * q - 5, "upper": 100 * q + 5} for q in (0.1, 0.3, 0.5, 0.7, 0.9)
    ]
    chart = figure_charts.distribution("n", "age", rows)
    line = [tuple(map(float, pair.split(","))) for pair in chart.curve.split()]
    band = [tuple(map(float, pair.split(","))) for pair in chart.band.split()]
    assert line == sorted(line) and [y for _, y in line] == sorted((y for _, y in line), reverse=True)
    assert all(low < x < high for (low, _), (x, _), (high, _) in zip(band[1:4], line[1:4], band[8:5:-1], strict=True))
    assert band[0] == line[0] and band[5] == line[-1]  # the ends' intervals do not widen the axis
    assert "50 % of the rows are at or below 50, by the noise between 45 and 55" in chart.title
    assert figure_charts.distribution("n", "age", rows[:1]) is None


def test_a_listing_joins_figures_with_their_noise():
    rows = [row("a", 5.0, 2.0) | {"sd": None, "sd_noise": None}, row("b", 1234.0, 0.0) | {"sd": None, "sd_noise": None}]
    table = figure_charts.listed("Counts", rows)
    assert table.headings == ["column name", "value", "count"]
    texts = [[cell for cell, _ in line] for line in table.lines]
    assert texts == [["ward", "a", "5 ± 2"], ["ward", "b", "1,234"]]
    assert [is_number for _, is_number in table.lines[0]] == [False, False, True]
    assert figure_charts.listed("Counts", rows * 400).left_out == 300
