"""/metrics: statistics for Prometheus, with the rights of the role that each request names."""

import re
from collections.abc import Iterator

import httpx
import pytest
from site_of_tests import PASSWORD, People, Site, served

from dbdp.interfaces.web.accounts.sign_ins import MOST_FAILURES
from dbdp.interfaces.web.views import exposition

SAMPLE = re.compile(r'(\w+)\{dataset="((?:[^"\\]|\\.)*)",period="(\d+)"\} (\S+)')


@pytest.fixture
def measured(people: People) -> Iterator[Site]:
    """A page with metrics."""
    with served(people.url, with_metrics=True) as site:
        yield site


@pytest.fixture
def monitor(people: People) -> Iterator[str]:
    """A role that monitors, and may do nothing else."""
    name = f"monitor_{people.schema}"
    with people.admin() as admin:
        admin.execute(f"create role {name} login password '{PASSWORD}' in role pg_monitor")
        yield name
        admin.execute(f"drop role {name}")


def scraped(site: Site, role: str, password: str = PASSWORD) -> httpx.Response:
    with httpx.Client(base_url=site.address, timeout=60, verify=False) as client:
        return client.get("/metrics", auth=(role, password))


def samples(answer: httpx.Response) -> dict[tuple[str, str], float]:
    """The samples by metric and dataset; every other line is a comment."""
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    matches = [SAMPLE.fullmatch(line) for line in lines]
    return {(match[1], match[2]): float(match[4]) for match in matches}


def test_metrics_are_the_statistics_of_the_datasets_that_a_role_may_see(measured, people, monitor):
    answer = scraped(measured, monitor)
    assert (answer.status_code, answer.headers["content-type"]) == (200, exposition.MEDIA_TYPE)
    shown = samples(answer)
    with people.admin() as admin:
        row = admin.execute(
            "select charges, releases, total_seconds, spent_share from dbdp.stat_datasets where dataset = %s",
            (people.dataset,),
        ).fetchone()
    names = ("charges_total", "release_seconds_count", "release_seconds_sum", "budget_spent_ratio")
    assert tuple(shown[f"dbdp_{name}", people.dataset] for name in names) == row
    assert row[0] == 3
    assert ("dbdp_charges_total", people.odd) in shown
    assert ("dbdp_last_release_timestamp_seconds", people.odd) not in shown
    assert {dataset for _, dataset in samples(scraped(measured, people.names["owner"]))} == {people.dataset, people.odd}
    assert samples(scraped(measured, people.names["rival"])) == {}
    assert scraped(measured, people.names["analyst"]).status_code == 403


def test_metrics_need_a_role_and_its_password_and_lock_out_who_guesses(measured, people):
    with measured.browser() as client:
        answer = client.get("/metrics")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Basic realm="dbdp"')
    owner = people.names["owner"]
    statuses = [scraped(measured, owner, "wrong").status_code for _ in range(MOST_FAILURES + 1)]
    assert statuses == [401] * MOST_FAILURES + [429]
    assert scraped(measured, owner).status_code == 429
    assert scraped(measured, "postgres", "").status_code == 401


def test_another_page_cannot_read_metrics_with_a_browsers_password(measured, people):
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}
    with measured.browser(**headers) as client:
        assert client.get("/metrics", auth=(people.names["owner"], PASSWORD)).status_code == 403


def test_without_the_option_there_are_no_metrics(shared_site, people):
    assert scraped(shared_site, people.names["owner"]).status_code == 404


def test_a_name_is_escaped_as_the_format_wants_it():
    columns = {column for metric in exposition.METRICS for column in metric.columns.values()}
    row = dict.fromkeys(columns, 1) | {"dataset": 'a "b" \\ \n', "period": 7}
    lines = exposition.text([row]).splitlines()
    assert 'dbdp_charges_total{dataset="a \\"b\\" \\\\ \\n",period="7"} 1' in lines
    assert len([line for line in lines if SAMPLE.fullmatch(line)]) == len(columns)
