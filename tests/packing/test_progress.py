"""The progress reports to a client while a dataset is packed."""

import json

import psycopg
import pytest

from dbdp.algorithms import Request
from dbdp.interfaces.python.client.connecting import connect


def reports(connection: psycopg.Connection, table: str, dataset: str, options: dict[str, object]) -> list[str]:
    """Return the messages that the client receives while a dataset is packed."""
    messages: list[str] = []

    def receive(notice: psycopg.errors.Diagnostic) -> None:
        messages.append(f"{notice.severity} {notice.message_primary}")

    connection.add_notice_handler(receive)
    connection.execute("select dbdp_internal.shuffle(%s, %s, %s)", (dataset, table, json.dumps(options)))
    connection.remove_notice_handler(receive)
    return messages


@pytest.mark.parametrize("memory", ["64MB", "1MB"])
@pytest.mark.parametrize(
    "options",
    [{}, {"key": "ab" * 32, "first": 100, "last": 4900}, {"poisson": {"probability": 0.2, "steps": 12, "size": 1500}}],
)
def test_progress_reports_each_part_once_and_nothing_of_the_rows(connection, schema, register, memory, options):
    """The same words of rows that fill few pages and of rows that fill many, in memory and through buckets.

    Of Poisson steps little memory takes one, as its rows are read.
    """
    if memory == "1MB" and "poisson" in options:
        options = {"poisson": {"probability": 0.2, "steps": 1, "size": 1500}}
    connection.execute(f"set dbdp.pack_memory = '{memory}'")
    connection.execute("create temporary table packed (block_no int8, block bytea)")
    messages = {}
    for name, rows in (("slim", "null::float8[], null"), ("wide", "array_fill(0.01 * (i % 9), array[60]), i % 2")):
        connection.execute(f"create table {name} (x float8[], y int)")
        connection.execute(f"insert into {name} select {rows} from generate_series(1, 5000) as i")
        dataset = register(name, features={"x": {"length": 60, "norm": 10}}, negative="0")
        assert reports(connection, "packed", dataset, options) == []
        messages[name] = reports(connection, "packed", dataset, options | {"progress": True})
    stages = ["shuffle"] if memory == "64MB" or "poisson" in options else ["shuffle", "pack"]
    assert (
        messages["slim"]
        == messages["wide"]
        == [f"INFO dbdp: {stage} {part}/5" for stage in stages for part in range(1, 6)]
    )


class Bars(list[tuple[str, int, int]]):
    """A progress function that may be called while a statement runs."""

    needs_no_session = True

    def __call__(self, *report: int) -> None:
        self.append(report)


@pytest.mark.parametrize("options", [{"shards": 2}, {"algorithm": "dp_sgd"}, {}])
def test_only_progress_without_session_receives_parts(connection, schema, register, options):
    """Only progress that needs no session receives the parts of an owners packing."""
    connection.execute("create table many (x float8[], y int)")
    connection.execute("insert into many select array[i % 9], i % 2 from generate_series(1, 3000) as i")
    dataset = register("many", features={"x": {"length": 1, "norm": 9}}, negative="0")
    request = Request(
        **{"epsilon": 1.0, "delta": 1e-6, "algorithm": "bolt_on", "epochs": 1, "batch_size": 100} | options
    )
    bars, reports = Bars(), []

    def report(*part: int) -> None:
        reports.append(part)
        assert connection.execute("select 1").fetchone() == (1,)

    connect(connection).train(dataset, request, bars)
    connect(connection).train(dataset, request, report)
    parts = [("shuffle", *part) for part in ((1, 3), (2, 3), (3, 3))]
    assert [each for each in bars if each in parts] == parts
    assert [each for each in bars if each not in parts] == reports
