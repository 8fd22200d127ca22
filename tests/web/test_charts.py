"""Charts: positions, and what a reader without the picture gets."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from dbdp.interfaces.web.views import charts, shape_charts
from dbdp.interfaces.web.views.rendering import _ENVIRONMENT

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def points(chart):
    return [tuple(map(float, pair.split(","))) for pair in chart.curve.split()]


def test_spending_rises_at_each_charge_and_ends_at_its_sum():
    rows = [{"charged_at": BEGIN + timedelta(days=day), "charge": 1} for day in (1, 2, 8)]
    chart = charts.spending(rows, 4.0, BEGIN, BEGIN + timedelta(days=10))
    xs, ys = zip(*points(chart), strict=True)
    assert list(xs) == sorted(xs) and list(ys) == sorted(ys, reverse=True)  # an SVG's y grows downwards
    zero, full = chart.y_ticks[0].at, chart.y_ticks[-1].at
    assert ys[-1] == round(zero + 0.75 * (full - zero), 2)
    assert "3 charges, 75 % in total" in chart.title
    assert chart.x_ticks[0].label == "2026-01-01"
    assert charts.spending([], 4.0, BEGIN, BEGIN) is None


def test_noise_is_drawn_for_plans_that_all_have_it():
    plans = [{"epsilon": epsilon, "noise_scale": 1 / epsilon} for epsilon in (0.1, 1.0, 10.0)]
    chart = charts.noise(plans, 1.0)
    (x1, y1), (x2, y2), (x3, y3) = points(chart)
    assert abs((x2 - x1) - (x3 - x2)) < 0.1 and abs((y2 - y1) - (y3 - y2)) < 0.1  # straight on logarithmic axes
    assert chart.dots == [(x2, y2)]
    assert charts.noise([*plans, {"epsilon": 20.0}], 1.0) is None
    assert charts.noise(plans[:1], 0.1) is None


def test_a_coefficient_is_shown_by_its_noise_in_any_unit():
    chart = charts.coefficients([("a", 2e6, 1e6), ("b" * 50, -1e-6, 1e-6), ("without", 1.0, None), ("exact", 1.0, 0.0)])
    (zero, _, _, _), ((first, _), (second, _)) = chart.guide, chart.dots
    assert abs((first - zero) - 2 * (zero - second)) < 0.1
    (left, right, y), _ = chart.bars
    assert abs((right - left) / (first - zero) - 1.96) < 0.01 and y == chart.y_ticks[0].at
    assert len(chart.y_ticks) == 2 and len(chart.y_ticks[1].label) == 20
    assert "1 of 2 intervals do not contain 0" in chart.title
    assert charts.coefficients([("a", 2.0, None)]) is None


def test_a_roc_begins_and_ends_in_its_corners():
    rates = [
        {"false_positive_rate": 0.2, "true_positive_rate": 0.7},
        {"false_positive_rate": None, "true_positive_rate": 1},
    ]
    chart = charts.roc({"roc": rates, "auc": 0.8, "auc_noise": 0.01})
    first, middle, last = points(chart)
    assert (first, last) == (chart.guide[:2], chart.guide[2:])
    assert first[0] < middle[0] < last[0] and last[1] < middle[1] < first[1]
    assert charts.roc({"accuracy": 0.9}) is None


def test_a_chart_has_a_text_alternative_and_escapes_names():
    chart = charts.coefficients([("<script>&", 1.0, 0.1)])
    module = _ENVIRONMENT.get_template("chart.html").module
    drawn = str(module.drawn(chart))
    assert re.search(r'role="img" aria-labelledby="chart-coefficients"', drawn)
    assert '<title id="chart-coefficients">' in drawn and "&lt;script&gt;&amp;" in drawn
    assert "style=" not in drawn and "<script" not in drawn
    assert str(module.drawn(None)).strip() == ""


def test_the_power_of_attacks_is_drawn_above_guessing():
    chart = charts.attacks({"attack_power": {"0.001": 0.0024, "0.1": 0.16, "0.5": 0.61}})
    assert len(chart.dots) == 3
    left, low, right, high = chart.guide
    assert all(y < low + (high - low) * (x - left) / (right - left) for x, y in chart.dots), "a larger y is lower"
    assert chart.curve.endswith(f"{right:g},{high:g}"), "at 100 % of false alarms every attack succeeds"
    assert "16 % at 10 %" in chart.title
    assert charts.attacks({"epsilon": 1}) is None


def test_a_calibration_curve_has_the_receipts_points():
    points = [{"predicted": 0.1, "observed": 0.2}, {"predicted": 0.9, "observed": 0.8}]
    chart = charts.calibration({"evaluation": {"calibration": points}})
    assert len(chart.dots) == 2
    assert "20 % at 10 %, 80 % at 90 %" in chart.title
    assert charts.calibration({"evaluation": {"calibration": points[:1]}}) is None


@pytest.mark.parametrize("forged", [7, [7], {"calibration": 7}, {"calibration": [{"predicted": "x"}] * 3}])
def test_a_forged_evaluation_has_no_curve(forged):
    assert charts.calibration({"evaluation": forged}) is None


def shaped(name: str, x: float | None, category: str | None, value: float, half: float | None = 1.0) -> dict:
    ends = {"lower": None, "upper": None} if half is None else {"lower": value - half, "upper": value + half}
    return {"class": None, "column_name": name, "x": x, "category": category, "contribution": value} | ends


def test_shapes_are_drawn_on_one_scale_the_most_important_first():
    curve = [shaped("age", x, None, value) for x, value in ((20, -3.0), (40, 0.0), (60, 2.0))]
    bars = [shaped("ward", None, name, value) for name, value in (("<u>", -1.0), ("v", 1.0))]
    rows = [*bars, shaped("ward", None, None, 9.0, None), *curve, shaped("(intercept)", None, None, 9.0)]
    first, second = shape_charts.shapes(rows, [{"column_name": "age"}, {"column_name": "ward"}])
    assert (first.x_label, second.x_label) == ("age", "ward: adds to the score")
    heights = [y for _, y in points(first)]
    assert heights[0] - heights[1] == pytest.approx(1.5 * (heights[1] - heights[2]), abs=0.2)
    assert [tick.label.replace("−", "-") for tick in first.y_ticks] == ["-2", "0", "2"]  # of -4 to 3
    corners = [tuple(map(float, pair.split(","))) for pair in first.band.split()]
    assert [y for _, y in corners[:3]] == pytest.approx([y - (heights[1] - heights[2]) / 2 for y in heights], abs=0.2)
    assert len(corners) == 6 and "from -3 at 20 to 2 at 60" in first.title.replace("−", "-")
    zero, (low, high) = second.guide[0], [x for x, _ in second.dots]
    assert zero - low == pytest.approx(high - zero)
    left, right, _ = second.bars[0]
    assert (left + right) / 2 == pytest.approx(low) and right == pytest.approx(zero)
    drawn = str(_ENVIRONMENT.get_template("chart.html").module.drawn(second))
    assert "&lt;u&gt;" in drawn and "<u>" not in drawn


def test_knots_of_another_scale_are_evenly_placed():
    rows = [shaped("money", x, None, x / 100, None) for x in (0.0, 1.0, 10.0, 100.0)]
    (chart,) = shape_charts.shapes(rows, [{"column_name": "money"}])
    places = [x for x, _ in points(chart)]
    first, *_, last = [tuple(map(float, pair.split(","))) for pair in chart.band.split()]
    assert first == last == points(chart)[0]  # the noise is not known
    assert places[1] - places[0] == pytest.approx(places[3] - places[2], abs=0.2)
    assert {tick.label for tick in chart.x_ticks} == {"0", "1", "10", "100"}
    many = [shaped("ward", None, str(place), float(place)) for place in range(20)]
    (chart,) = shape_charts.shapes(many, [{"column_name": "ward"}])
    assert [tick.label for tick in chart.y_ticks] == [str(place) for place in range(8, 20)]
