"""The site of docs/ in a browser: no code is cut off, no page is too wide, users' pages are found first."""

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from browser import chromium
from pages import ROOT
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WIDER = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
CODE = ":is(.language-sql, .language-python, .language-console) pre > code"
CUT = f"return [...document.querySelectorAll('{CODE}')].filter(each => each.scrollWidth > each.clientWidth + 1).length"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, built as `make docs` builds it."""
    if not (importlib.util.find_spec("material") and importlib.util.find_spec("mkdocstrings")):
        pytest.skip("there is no mkdocs here: make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A browser without a window."""
    with chromium(tmp_path_factory.mktemp("profile"), javascript=True) as driver:
        yield driver


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_no_code_is_cut_off_and_no_page_is_wider_than_the_screen(browser, address, width):
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 400}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    pages = ["index", "algorithms", "tutorials/owner", "tutorials/data-scientist", "guides/choosing", "reference/sql"]
    layouts = {}
    for page in pages:
        browser.get(f"{address}/{page}.html")
        layouts[page] = browser.execute_script(WIDER), browser.execute_script(CUT)
    assert layouts == dict.fromkeys(pages, (0, 0))
    browser.get(f"{address}/tutorials/owner.html")
    browser.execute_script("for (const each of document.querySelectorAll('pre > code')) each.style.whiteSpace = 'pre'")
    assert width > 400 or browser.execute_script(CUT) > 0  # control: without wrapping a telephone would cut it off


@pytest.mark.slow
@pytest.mark.parametrize("words", ["budget", "noise", "epsilon", "install", "capacity", "accuracy"])
def test_the_search_finds_a_users_page_first(browser, address, words):
    browser.get(f"{address}/index.html?q={words}")
    links = WebDriverWait(browser, 60).until(lambda it: it.find_elements(By.CSS_SELECTOR, ".md-search-result__link"))
    first = links[0].get_attribute("href").removeprefix(address)
    assert not first.startswith(("/privacy", "/security", "/decisions")), first
