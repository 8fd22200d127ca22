"""The page in a real browser: Debian's Chromium, without a window and without JavaScript."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path

import pytest
from browser import chromium
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait
from site_of_tests import ODD, PASSWORD, People

from dbdp.interfaces.web.sign_in import links


@pytest.fixture
def address(people: People, browser: webdriver.Chrome, tmp_path: Path) -> Iterator[str]:
    """The address at which the command serves the page, which the browser has opened by its link."""
    command = [sys.executable, "-m", "dbdp.interfaces.cli.main", "web", "--port", "0"]
    environment = os.environ | {"DBDP_URL": people.url_of("owner")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout
    link = process.stdout.readline().strip()
    leading = tmp_path / "open.html"
    leading.write_text(links._ONWARD.format(link=escape(link)))
    browser.get(leading.as_uri())  # as `--open` does: from a file, which is another site
    WebDriverWait(browser, 60).until(
        lambda seen: link.partition("?")[0] in seen.current_url and "?" not in seen.current_url
    )
    yield link.partition("?")[0]
    process.terminate()
    rest, _ = process.communicate(timeout=20)
    assert link.startswith("http://127.0.0.1:")
    assert rest.startswith("that link was used; the next one, for another browser: http://127.0.0.1:")
    assert PASSWORD not in rest
    assert "Traceback" not in rest


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A browser that runs no JavaScript."""
    with chromium(tmp_path_factory.mktemp("profile"), javascript=False) as driver:
        yield driver


@contextmanager
def another_page(browser: webdriver.Chrome) -> Iterator[None]:
    """Wait at the end of the block until the page is another one."""
    page = browser.find_element(By.TAG_NAME, "html")
    yield
    WebDriverWait(browser, 60).until(staleness_of(page))


def click(browser: webdriver.Chrome, text: str) -> None:
    with another_page(browser):
        browser.find_element(By.LINK_TEXT, text).click()


def send(browser: webdriver.Chrome, label: str) -> None:
    with another_page(browser):
        browser.find_element(By.XPATH, f"//button[normalize-space()='{label}']").click()


def fill(browser: webdriver.Chrome, name: str, text: str) -> None:
    field = browser.find_element(By.CSS_SELECTOR, f"main [name='{name}']")
    field.clear()
    field.send_keys(text)


def content(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.TAG_NAME, "main").text


def sign_out(browser: webdriver.Chrome, address: str) -> None:
    """Sign out, after which nothing is shown; nothing on the way broke the page's policy."""
    send(browser, "Sign out")
    browser.get(f"{address}models")
    assert "Open the page by its link" in content(browser)
    assert [entry for entry in browser.get_log("browser") if "401" not in entry["message"]] == []


@pytest.mark.slow
def test_an_owner_looks_plans_grants_and_signs_out(browser, address, people):
    browser.get(address)

    click(browser, people.dataset)
    assert "array of 3 numbers" in content(browser)
    bar = browser.find_element(By.CSS_SELECTOR, "svg.bar")
    assert bar.size["width"] > 300
    parts = [(part.get_attribute("class"), part.size["width"]) for part in bar.find_elements(By.TAG_NAME, "rect")]
    assert parts[-1][0] == "left" and 0 < parts[0][1] < bar.size["width"] / 10

    click(browser, "Plan a training")
    fill(browser, "epsilon", "2")
    fill(browser, "delta", "1e-6")
    Select(browser.find_element(By.NAME, "algorithm")).select_by_visible_text("dp_sgd")
    send(browser, "Show the plan")
    assert "What it would cost" in content(browser)
    assert "noise scale" in content(browser)
    assert browser.find_element(By.CSS_SELECTOR, "rect.planned").size["width"] > 5
    assert browser.find_element(By.CSS_SELECTOR, "svg.chart").size["width"] > 300
    with another_page(browser):
        browser.find_element(By.XPATH, "//button[starts-with(., 'Train, for')]").click()
    WebDriverWait(browser, 60).until(lambda seen: "/model?" in seen.current_url)
    assert "released this model" in content(browser)

    click(browser, "Models")
    click(browser, f"Model {people.models['owner']}")
    assert "noise scale" in content(browser)

    click(browser, "Allowances")
    Select(browser.find_element(By.ID, "of")).select_by_visible_text(people.dataset)
    fill(browser, "role", people.names["rival"])
    send(browser, "Continue")
    send(browser, f"Grant training to {people.names['rival']}")
    assert f"{people.names['rival']} may train on" in content(browser)
    browser.get(f"{address}allowances/revoke?dataset={people.dataset}&role={people.names['rival']}")
    send(browser, f"Revoke training of {people.names['rival']}")
    assert "may no longer train" in content(browser)

    sign_out(browser, address)


@pytest.mark.slow
def test_on_a_telephone_nothing_is_wider_than_the_screen(browser, address, people):
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    with people.login("owner") as session:
        session.execute(f"create table {people.schema}.fresh (a_column_of_a_long_name float8, x float8[], y text)")
    pages = [
        "datasets",
        "budgets",
        "ledger",
        "models",
        "statistics",
        "allowances",
        f"model?id={people.models['owner']}",
    ]
    pages += [f"dataset?name={people.dataset}", f"plan?dataset={people.dataset}&epsilon=1", "overview"]
    pages += [f"register?source={people.schema}.fresh", f"renew?dataset={people.dataset}"]
    pages += [f"score?model={people.models['owner']}&metric=auc&epsilon=1"]
    for page in pages:
        browser.get(address + page)
        layout = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})
        assert layout["cssContentSize"]["width"] <= 390, page
    browser.get(f"{address}datasets")
    assert ODD in content(browser)  # as text
