"""The plot of shapes has the values of `dbdp.shapes`, in one scale, and says which columns may be noise."""

import json
from pathlib import Path

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner

from dbdp.interfaces.cli.main import app
from dbdp.interfaces.cli.plots import panels, pictures
from dbdp.interfaces.python.client.database import Database

TABLE = """
create table t as select (i % 40) + 20 as age, (i % 7) * 900.0 as money, (array['u', 'v', '_$w'])[i % 3 + 1] as ward,
(i % 40 between 10 and 20)::int as y from generate_series(1, 4000) as i"""
FEATURES = {"age": [20, 60], "money": [0, 10000], "ward": ["u", "v", "_$w"]}


def row(name: str, x: float | None, category: str | None, value: float, half: float | None) -> dict:
    ends = {"lower": None, "upper": None} if half is None else {"lower": value - half, "upper": value + half}
    return {"class": None, "column_name": name, "x": x, "category": category, "contribution": value} | ends


def panel(*rows: dict) -> tuple[dict, list[dict]]:
    return {"column_name": rows[0]["column_name"]}, list(rows)


@pytest.fixture
def model(connection: psycopg.Connection, schema: str, register) -> str:
    connection.execute(TABLE)
    name = register("t", features=FEATURES, epsilon=100)
    connection.execute(
        "select dbdp.dp_train(%s, 20, 1e-6, algorithm => 'private_splines', name => %s)", (name, f"shapes.{name}")
    )
    return f"shapes.{name}"


def test_the_curves_and_bars_drawn_are_the_shapes(model, database: Database):
    figure = panels.drawn(panels.shapes(database, model, None))
    rows = database.shapes(model)
    drawn = {axes.get_title(loc="left").split()[0]: axes for axes in figure.axes}
    age = [(each["x"], each["contribution"]) for each in rows if each["column_name"] == "age"]
    assert drawn["age"].get_lines()[0].get_xydata().tolist() == pytest.approx(np.array(age))
    money = [(each["x"], each["contribution"]) for each in rows if each["column_name"] == "money"]
    line, ticks = drawn["money"].get_lines()[0], drawn["money"].get_xticklabels()
    assert line.get_ydata().tolist() == pytest.approx([value for _, value in money])
    assert line.get_xdata().tolist() == list(range(8))  # even on the column's scale, with its own numbers as labels
    assert [ticks[0].get_text(), ticks[-1].get_text()] == ["0", "1e+04"]
    ward = [each["contribution"] for each in rows if each["column_name"] == "ward" and each["category"]]
    assert [bar.get_height() for bar in drawn["ward"].patches] == pytest.approx(ward)
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert figure.axes[0].get_title(loc="left") == "age"  # which decides the label
    assert figure.axes[0].get_ylabel() == "adds to the log-odds"


def test_a_shape_within_the_noise_is_grey_and_comes_last():
    clear = panel(row("b", 0.0, None, -3.0, 1.0), row("b", 1.0, None, 3.0, 1.0))
    hidden = panel(row("a", None, "u", -1.1, 1.0), row("a", None, "v", 1.1, 1.0))  # 2.16 deviations: 2.24 are usual
    unknown = panel(row("c", None, "u", -9.0, None))
    assert [panels._may_be_noise(values) for _, values in (clear, hidden, unknown)] == [False, True, False]
    figure = panels.drawn(panels.Shapes("model 1", "adds to the score", [clear, hidden]))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["b", "a (within noise)"]
    colours = [figure.axes[0].get_lines()[0].get_color(), figure.axes[1].patches[0].get_facecolor()[:3]]
    assert colours[0] == pictures.COLOURS[0]
    assert len(set(colours[1])) == 1


def test_the_noise_of_a_shape_is_within_it_in_95_of_100():
    """The control of `_may_be_noise`: normal noise of seven values, in so many draws that 1e-9 is six deviations."""
    noise = np.random.default_rng().normal(size=(20000, 7)) / 1.96
    inside = np.mean([panels._may_be_noise([row("a", None, "u", each, 1.0) for each in draw]) for draw in noise])
    assert 0.95 - 0.0095 < inside < 0.95 + 0.0125


def test_a_line_has_no_band_in_its_middle():
    line = panel(row("a", 0.0, None, -3.0, 1.0), row("a", 10.0, None, 3.0, 1.0))
    (band,) = panels.drawn(panels.Shapes("model 1", "adds to the score", [line])).axes[0].collections
    corners = {tuple(each) for each in band.get_paths()[0].vertices.tolist()}
    assert corners == {(0, -4), (0, -2), (5, 0), (10, 2), (10, 4)}


def test_the_longest_bars_and_names_that_fit_are_drawn(tmp_path):
    values = [*range(-10, 11), 100.0]
    many = panel(*(row("c", None, f"category number {place}", value, None) for place, value in enumerate(values)))
    bins = panel(row("d", None, "[1234.5,99999]", 1.0, None), row("d", None, "[1.2.3,4]", 2.0, None))
    figure = panels.drawn(panels.Shapes("model $1", "adds to the score", [many, bins]))
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert sorted(map(abs, heights)) == [5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 100]
    assert figure.axes[0].get_xlabel() == "the longest 12 of 22"
    assert figure.axes[0].get_xticklabels()[0].get_text() == "category number…"
    assert [each.get_text() for each in figure.axes[1].get_xticklabels()] == ["1,230–100,000", "[1.2.3,4]"]
    pictures.save(figure, tmp_path / "shapes.svg")
    assert "model $1: noise not known" in (tmp_path / "shapes.svg").read_text()


def test_null_is_beside_its_curve_and_few_panels_are_drawn():
    curve = panel(row("a", 0.0, None, 0.0, 1.0), row("a", 8.0, None, 1.0, 1.0), row("a", None, "missing", 5.0, 1.0))
    figure = panels.drawn(panels.Shapes("model 1", "adds to the score", [curve] * 30))
    (bar,) = figure.axes[0].patches
    assert (bar.get_height(), bar.get_x() > 8) == (5, True)
    assert figure.axes[0].get_xticklabels()[-1].get_text() == "missing"
    assert len(figure.axes) == panels.MOST_PANELS
    assert "the first 24 of 30 columns" in figure.get_suptitle()


def test_the_command_draws_and_lists(model, server_url, database, tmp_path: Path):
    picture = tmp_path / "shapes.png"
    done = CliRunner().invoke(app, ["plot", "shapes", model, str(picture), "--url", server_url, "--json"])
    assert done.exit_code == 0, done.output
    assert picture.stat().st_size > 10000
    told = json.loads(done.stdout)
    assert told["panels"][0][0]["column_name"] == "age"
    for options, expected in (([], database.shapes(model)), (["--importance"], database.importance(model))):
        done = CliRunner().invoke(app, ["shapes", model, "--url", server_url, "--json", *options])
        assert json.loads(done.stdout) == expected
    shown = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["shapes", model, "--url", server_url]).stdout
    assert "contribution" in shown
    assert "class" not in shown


def test_among_several_classes_one_is_drawn(connection, schema, register, database):
    connection.execute(TABLE)
    name = register("t", features={"ward": ["u", "v"]}, positive=None, classes=["0", "1"])
    sql = "select dbdp_internal.store_release(%s, '{{1, 2}, {5, 9}}', '{3, 4}', '{}') ->> 'id'"
    model = connection.execute(sql, (name,)).fetchone()[0]
    shown = panels.shapes(database, model, "1")
    assert [each["contribution"] for _, values in shown.panels for each in values] == [-2, 2, -7]
    for label, told in ((None, "the label has several classes"), ("2", "--class '2' is none of the model's classes")):
        with pytest.raises(ValueError, match=f"{told}; choose one by --class: 0, 1"):
            panels.shapes(database, model, label)
