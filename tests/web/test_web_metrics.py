"""/metrics: statistics for Prometheus, which sends a token, with the rights of the page's role."""

import re
from contextlib import ExitStack

import httpx
import pytest
from psycopg.conninfo import make_conninfo
from site_of_tests import PASSWORD, served

from dbdp.interfaces.web.views import exposition

SAMPLE = re.compile(r'(\w+)\{dataset="((?:[^"\\]|\\.)*)",period="(\d+)"\} (\S+)')
TOKEN = b"t" * 32


@pytest.fixture
def monitor(people):
    """The URL of a role that monitors, and may do nothing else."""
    name = f"monitor_{people.schema}"
    with people.admin() as admin:
        admin.execute(f"create role {name} login password '{PASSWORD}' in role pg_monitor")
        yield make_conninfo(people.url, user=name, password=PASSWORD)
        admin.execute(f"drop role {name}")


def scraped(url, token=TOKEN, **headers):
    """The response to Prometheus, of the page of a role."""
    with served(url, metrics_token=TOKEN.decode()) as site, httpx.Client(base_url=site.address, timeout=60) as client:
        return client.get("/metrics", headers=headers | ({"authorization": b"Bearer " + token} if token else {}))


def samples(answer):
    """The samples by metric and dataset; every other line is a comment."""
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    matches = [SAMPLE.fullmatch(line) for line in lines]
    return {(match[1], match[2]): float(match[4]) for match in matches}


def test_metrics_are_of_the_datasets_that_the_role_may_see(people, monitor):
    answer = scraped(monitor)
    assert (answer.status_code, answer.headers["content-type"]) == (200, exposition.MEDIA_TYPE)
    shown = samples(answer)
    with people.admin() as admin:
        row = admin.execute(
            "select charges, releases, total_seconds, spent_share from dbdp.stat_datasets_details where dataset = %s",
            (people.dataset,),
        ).fetchone()
    names = ("charges_total", "release_seconds_count", "release_seconds_sum", "budget_spent_ratio")
    assert tuple(shown[f"dbdp_{name}", people.dataset] for name in names) == row
    assert row[0] == 3
    assert ("dbdp_charges_total", people.odd) in shown
    assert ("dbdp_last_release_timestamp_seconds", people.odd) not in shown
    of_owner = samples(scraped(people.url_of("owner")))
    assert {dataset for _, dataset in of_owner} == {people.dataset, people.odd}
    assert samples(scraped(people.url_of("rival"))) == {}
    assert scraped(people.url_of("analyst")).status_code == 403


def test_metrics_need_the_token(monitor):
    for token in (b"", TOKEN[1:], TOKEN + b"t", "ü".encode()):
        answer = scraped(monitor, token)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_another_page_cannot_read_metrics(monitor):
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}
    assert scraped(monitor, **headers).status_code == 403


def test_without_a_token_there_are_no_metrics(monitor):
    with ExitStack() as stack:
        site = stack.enter_context(served(monitor))
        client = stack.enter_context(httpx.Client(base_url=site.address, timeout=60))
        assert client.get("/metrics", headers={"authorization": b"Bearer " + TOKEN}).status_code == 404


def test_a_name_is_escaped_as_the_format_wants_it():
    columns = {column for metric in exposition.METRICS for column in metric.columns.values()}
    row = dict.fromkeys(columns, 1) | {"dataset": 'a "b" \\ \n', "period": 7}
    lines = exposition.text([row]).splitlines()
    assert 'dbdp_charges_total{dataset="a \\"b\\" \\\\ \\n",period="7"} 1' in lines
    assert len([line for line in lines if SAMPLE.fullmatch(line)]) == len(columns)
