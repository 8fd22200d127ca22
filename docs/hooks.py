"""Ranks the pages in the search of the site: users' pages first, then references, proofs and decisions last."""

from typing import Any

BOOSTS = {
    "tutorials/": 4,
    "guides/": 4,
    "reference/python.md": 0.02,
    "reference/": 0.2,
    "decisions/": 0.1,
    "privacy.md": 0.1,
    "security.md": 0.2,
}
OTHERS = 2


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Set the boost of a page, which the plugin `search` reads when it adds the page to its index."""
    boost = next((boost for place, boost in BOOSTS.items() if page.file.src_uri.startswith(place)), OTHERS)
    page.meta["search"] = {"boost": boost}
