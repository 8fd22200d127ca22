"""The scale benchmark: its tables, its figures, and one small run of all of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from servers import is_here

from benchmarks.scale import figures
from benchmarks.scale.cells import Cell, Result, planned


def test_no_table_has_too_many_numbers_or_is_measured_twice():
    cells = planned([10, 100, 1000, 10_000], [1, 50], 5000)
    assert cells == [
        *(Cell(rows, 1) for rows in (10, 100, 1000, 5000)),
        *(Cell(rows, 50) for rows in (10, 100)),
    ]


def test_figures_show_the_median_of_each_method_by_rows():
    runs = [
        Result("dbdp", rows, 3, seconds, 0.0, 0.0) for rows, seconds in ((20, 5.0), (10, 1.0), (10, 2.0), (10, 9.0))
    ]
    others = [Result("other", 10, 3, 7.0, 0.0, 0.0), Result("dbdp", 10, 4, 8.0, 0.0, 0.0)]
    assert figures.lines(runs + others, 3, "seconds") == {"dbdp": [(10, 2.0), (20, 5.0)], "other": [(10, 7.0)]}


def test_a_small_run_measures_every_method_and_draws(server_url, tmp_path):
    if not is_here(server_url):
        pytest.skip("memory is measured on the server's machine")
    command = ["-m", "benchmarks.scale", "--rows", "15000", "--features", "3", "--numbers", "33000"]
    environment = os.environ | {"DBDP_URL": server_url}
    folder = ["--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *command, *folder], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "scale.json").read_text())["results"]
    assert {(each["method"], each["rows"]) for each in results} >= {
        (method, 11_000) for method in ("dbdp", "scikit-learn")
    }
    assert all(each["peak_mb"] > 0 and each["seconds"] > 0 for each in results)
    assert all(Path(tmp_path / f"scale.{ending}").stat().st_size > 1000 for ending in ("svg", "png"))
