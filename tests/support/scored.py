"""Columns of every type that a model may be trained on, and scores that a parallel plan must not change."""

import psycopg

OF_EVERY_TYPE: dict[str, list] = {
    "a": [-1, 1],
    "n": [0, 10],
    "i": [0, 9],
    "b": [0, 1],
    "r": [0, 1],
    "t": ["u", "ü ß", ""],
    "c": ["ab", "x"],
    "e": ["sad", "happy"],
    "f": ["true", "false"],
    "s": ["0", "-2"],
}
PARALLEL = """
set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0;
set min_parallel_table_scan_size = 0; set parallel_leader_participation = off"""


def assert_alike_in_parallel(connection: psycopg.Connection, sql: str) -> list[tuple]:
    """Check that a query has one answer, which is returned, by one process and by the workers of a parallel plan."""
    serial = connection.execute(sql).fetchall()
    connection.execute(PARALLEL)
    assert "Gather" in str(connection.execute(f"explain {sql}").fetchall())
    assert connection.execute(sql).fetchall() == serial
    return serial
