"""Links of the pages outside of docs/, which no build of the site checks, lead to a file and a heading."""

import re

import pytest
from pages import CODE, ROOT

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.strip().lower())) for title in titles}


def broken(text: str) -> list[str]:
    """Return the links of a page at the root that lead nowhere."""
    found = []
    for path, anchor in LINK.findall(text):
        page = ROOT / path
        target = page.read_text(encoding="utf-8") if path and page.is_file() else text
        if not page.exists() or (anchor and anchor not in anchors(target)):
            found.append(f"{path}#{anchor}")
    return found


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_a_root_page_lead_to_a_heading(name):
    """The controls are a file and a heading that do not exist."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert LINK.search(text)
    assert broken(text) == []
    assert broken(f"{text}\n[a](docs/absent.md) [b](docs/index.md#absent)") == [
        "docs/absent.md#",
        "docs/index.md#absent",
    ]
