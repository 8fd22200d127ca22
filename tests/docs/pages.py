"""Pages of the documentation: their fenced blocks, in order.

What is run: `sql` by psql, `python`, `sh` and `bash`, and of `console` what stands behind `$ `, continued by a
backslash or behind `> `. Expected is the text of an `output` block right behind, or the other lines of a console. A
comment right before a fence may say more of it:

    <!-- not run: REASON -->    of what is not run, with one of the reasons in REASONS
    <!-- noisy -->              of what is expected: only the shape is, whatever the numbers

`…` in what is expected stands for anything. `<!-- after: PAGE.md -->` at the top of a page has it run behind another.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
REASONS = (
    "needs a clean machine",
    "needs a container engine",
    "needs a remote server",
    "needs PostgreSQL 18",
    "takes minutes",
    "needs Java and PySpark",
    "needs this source tree",
    "runs until it is stopped",
    "asks for an answer",
    "a glimpse of what the page then prepares",
    "runs this itself",
    "changes rights for all databases of the server",
)
SHELLS = ("sh", "bash", "console")
RUN = ("sql", "python", *SHELLS)
FENCE = re.compile(
    r"(?:<!-- (?P<comment>[^\n]*?) -->\n\s*)?^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
CODE = re.compile(r"<!--.*?-->|^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
AFTER = re.compile(r"<!-- after: (\S+) -->")
NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?\d[\d.]*(?:e[-+]?\d+)?")
RULES = re.compile(r"[-─━═┄]{2,}")


@dataclass(frozen=True)
class Step:
    """One input of an interpreter, and the output that the page shows; None if it shows none."""

    language: str
    code: str
    line: int
    expected: str | None = None
    noisy: bool = False

    @property
    def may_fail(self) -> bool:
        """Whether the page shows an error here."""
        return re.search(r"(?<!standard[_ ])error(?!_)", self.expected or "", re.IGNORECASE) is not None

    def agrees(self, printed: str) -> bool:
        """Return whether an output is that of the page."""
        if self.expected is None:
            return True
        parts = [re.escape(self._plain(part)) for part in self.expected.split("…")]
        return re.fullmatch(r"\s*.*?\s*".join(parts), self._plain(printed), re.DOTALL) is not None

    def _plain(self, text: str) -> str:
        numbers = NUMBER.sub("0", text) if self.noisy else text
        return ("" if self.noisy else " ").join(RULES.sub("--", numbers).split())


@dataclass(frozen=True)
class Page:
    """A page, by its path from the root of the source."""

    name: str
    text: str = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "Page":
        return cls(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))

    @property
    def after(self) -> str | None:
        """The page that this one continues."""
        found = AFTER.search(self.text)
        return found[1] if found else None

    @property
    def reasons(self) -> list[str]:
        """Why blocks are not run."""
        return [comment.removeprefix("not run: ") for comment, *_ in self._fences() if comment.startswith("not run")]

    def steps(self) -> Iterator[Step]:
        """Yield the steps that are run, in order."""
        fences = list(self._fences())
        behind = [*fences, ("", "", "", 0, False)][1:]
        for (comment, language, text, line, _), (beyond, following, printed, _, adjacent) in zip(
            fences, behind, strict=True
        ):
            if language not in RUN or comment.startswith("not run: "):
                continue
            if language == "console":
                yield from _commands(text, line, comment == "noisy")
            else:
                expected = printed if adjacent and following == "output" else None
                yield Step(language, text, line, expected, beyond == "noisy")

    def _fences(self) -> Iterator[tuple[str, str, str, int, bool]]:
        """Yield comment, language, text and line of each fence, and whether it directly follows the last."""
        end = -1
        for found in FENCE.finditer(self.text):
            between = self.text[end : found.start()]
            line = self.text.count("\n", 0, found.start("text"))
            yield found["comment"] or "", found["language"], textwrap.dedent(found["text"]), line, not between.strip()
            end = found.end()


def _commands(text: str, line: int, noisy: bool) -> Iterator[Step]:
    """Yield each command of a console with the output below it; without output any is accepted."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        count = 1
        while count < len(lines) and (lines[count - 1].endswith("\\") or lines[count].startswith("> ")):
            count += 1
        code = "\n".join([lines[0], *(each.removeprefix("> ") for each in lines[1:count])])
        expected = "\n".join(lines[count:]).strip()
        yield Step("console", code, line, expected or None, noisy)


def pages() -> list[Page]:
    """Return the README and all pages of docs/."""
    return [Page.read(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]
