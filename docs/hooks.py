"""Add the notebook to the site as a page, and set the rank of each page in the search."""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

NOTEBOOK = "tutorials/notebook.ipynb"
# Users' pages come first, then references; decisions and proofs last.
BOOSTS = {
    "tutorials/": 4,
    "guides/": 4,
    "reference/python.md": 0.02,
    "reference/": 0.2,
    "decisions/": 0.1,
    "privacy.md": 0.1,
    "security.md": 0.2,
    "known-limits.md": 0.2,
}
OTHERS = 2


def on_files(files: Any, config: Any) -> Any:
    """Add the notebook as a page of Markdown."""
    cells = json.loads(Path(config.docs_dir, NOTEBOOK).read_text(encoding="utf-8"))["cells"]
    content = "\n\n".join(part for cell in cells for part in _parts(cell))
    files.append(File.generated(config, NOTEBOOK.replace(".ipynb", ".md"), content=content))
    return files


def _parts(cell: dict[str, Any]) -> list[str]:
    """Return a cell's text, or its code and what it printed or returned."""
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [text]
    return [f"```python\n{text}\n```", *map(_output, cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        return f"![The figure that this cell draws](data:image/png;base64,{''.join(data['image/png']).strip()})"
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        return html.replace(' border="1" class="dataframe"', "")
    return f"```output\n{''.join(data['text/plain']).rstrip()}\n```"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the boost of a page, which the plugin `search` reads; on the site links to the notebook lead to its page."""
    boost = next((boost for place, boost in BOOSTS.items() if page.file.src_uri.startswith(place)), OTHERS)
    page.meta["search"] = {"boost": boost}
    return markdown.replace("notebook.ipynb)", "notebook.md)")
