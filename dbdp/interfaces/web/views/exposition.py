"""Prometheus' text format 0.0.4."""

from collections.abc import Iterator
from dataclasses import dataclass

from dbdp.sessions.session import Row

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True)
class Metric:
    """A metric of each dataset."""

    name: str  # its name, its type and what it is
    kind: str
    help: str
    columns: dict[str, str]  # the column of `dbdp.stat_datasets` of each sample, by the sample's suffix


METRICS = (
    Metric("dbdp_charges_total", "counter", "Charges in the ledger.", {"": "charges"}),
    Metric("dbdp_failures_total", "counter", "Charges of clients that failed.", {"": "failures"}),
    Metric("dbdp_unfinished_charges", "gauge", "Charges without an outcome.", {"": "unfinished"}),
    Metric(
        "dbdp_release_seconds",
        "summary",
        "Seconds from a charge to its release.",
        {"_sum": "total_seconds", "_count": "releases"},
    ),
    Metric("dbdp_release_seconds_max", "gauge", "The longest of them.", {"": "max_seconds"}),
    Metric("dbdp_last_charge_timestamp_seconds", "gauge", "When the last charge was made.", {"": "last_charge"}),
    Metric("dbdp_last_release_timestamp_seconds", "gauge", "When the last release was stored.", {"": "last_release"}),
    Metric("dbdp_budget_spent_ratio", "gauge", "The larger spent share of epsilon and delta.", {"": "spent_share"}),
    Metric("dbdp_budget_unrecorded_ratio", "gauge", "The share without a row in the ledger.", {"": "unrecorded_share"}),
)


def text(rows: list[Row]) -> str:
    """Return the metrics of the rows of `dbdp.stat_datasets`; a null has no sample."""
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, rows))


def _lines(metric: Metric, rows: list[Row]) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for row in rows:
        labels = f'{{dataset="{row["dataset"].translate(_ESCAPED)}",period="{row["period"]}"}}'
        for suffix, column in metric.columns.items():
            if row[column] is not None:
                yield f"{metric.name}{suffix}{labels} {row[column]!r}"
