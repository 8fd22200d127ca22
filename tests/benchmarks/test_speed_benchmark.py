"""The speed benchmark: every side of ours runs on a small table, and leaves nothing."""

import pytest

from benchmarks import command_line, ours, small_table, suite, tables


@pytest.fixture
def table(connection):
    tables.create_bench54(connection, 2000)
    yield tables.BENCH54
    tables.drop(connection, tables.BENCH54)


def test_every_side_of_ours_runs_and_leaves_no_dataset(connection, table):
    with ours.registered(connection, table):
        with ours.packed(connection, table):
            epochs = [suite.epoch_sides(connection, table, size)["ours"] for size in suite.BATCH_SIZES]
            assert min(side() for side in (*epochs, *suite.class_sides(connection, table).values())) > 0
        of_shuffling, of_runs = suite.prepare_sides(connection, table), suite.whole_run_sides(connection, table)
        of_prediction = suite.prediction_sides(connection, table)
        own = [name for name in of_runs if name not in ("c", "numpy")]
        assert len(own) == 4
        assert min(of_runs[name]() for name in own) > 0
        assert min(of_shuffling[name]() for name in ("ours", "ours from the array")) > 0
        assert min(side() for side in of_prediction.values()) > 0
        models = connection.execute("select count(*) from dbdp.models_details where dataset = 'benchmark of bench54'")
        assert models.fetchone() == (4,)  # of the three whole runs, and of the prediction
    left = connection.execute("select count(*) from dbdp.datasets_details where name like 'benchmark of%'")
    assert left.fetchone() == (0,)


def test_categories_are_timed_against_as_many_numbers(connection, table):
    """In 141 and in 15 coordinates; the tables and the datasets are dropped again."""
    samples = suite.categorical(connection, table, 2)
    found = suite.ratios({"categorical": samples})
    assert set(found) == {"categorical_ratio"}
    assert found["categorical_ratio"].median > 0
    trained = (
        "select dataset, receipt ->> 'features' from dbdp.models_details where dataset like 'benchmark of bench54_%'"
    )
    assert set(connection.execute(trained)) == {
        ("benchmark of bench54_14_0", "15"),
        ("benchmark of bench54_7_7", "141"),
    }
    tables_left = "select count(*) from pg_class where relname like 'bench54!_%' escape '!' and relkind = 'r'"
    assert connection.execute(tables_left).fetchone() == (0,)
    left = connection.execute("select count(*) from dbdp.datasets_details where name like 'benchmark of%'")
    assert left.fetchone() == (0,)


def test_a_wide_table_is_measured_and_leaves_nothing(connection):
    table = tables.Table(name="bench_wide", raw="bench_wide", array="bench_wide", features=300)
    samples = suite.wide(connection, 2, table, 600)
    assert samples.ratio(*suite.WIDE_SIDES).lower > 0
    left = "select count(*) from pg_class where relname like 'bench_wide%'"
    assert connection.execute(left).fetchone() == (0,)


def test_two_threads_are_timed_against_one(connection, table):
    with ours.registered(connection, table):
        assert suite.ratios({"threads": suite.threads(connection, table, 2)})["threads_ratio"].lower > 0
    assert connection.execute("select current_setting('dbdp.threads', true)").fetchone()[0] in (None, "")


def test_every_command_is_measured_and_one_that_fails_is_not(connection, server_url, table):
    with ours.registered(connection, table):
        samples = command_line.measure(server_url, ours.dataset_of(table), 2)
        assert set(command_line.ratios(samples)) == {"--help", "datasets", "budget", "explain"}
        assert min(min(seconds) for seconds in samples.seconds.values()) > 0
    with pytest.raises(RuntimeError, match="exit code 1"):
        command_line.sides(server_url, ours.dataset_of(table))["budget"]()


def test_a_small_table_is_measured_and_leaves_nothing(connection):
    groups = small_table.measure(connection, 2, rows=500, times=2)
    figures = small_table.figures(groups, rows=1000)
    assert set(figures) == {*small_table.SECONDS, *small_table.PER_SECOND, "small_ratio"}
    assert min(spread.lower for spread in figures.values()) > 0
    seconds = groups["prediction"].seconds["arrays, one process"]
    assert figures["predicted_arrays_per_second"].median == pytest.approx(sum(1000 / each for each in seconds) / 2)
    left = "select count(*) from pg_class where relname like 'bench_small%'"
    assert connection.execute(left).fetchone() == (0,)
    left = "select count(*) from dbdp.datasets_details where name like 'benchmark of%'"
    assert connection.execute(left).fetchone() == (0,)
