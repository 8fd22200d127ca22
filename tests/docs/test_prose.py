"""The prose of users' pages is plain: few dialect words, short sentences, and it speaks to the reader."""

import re
from collections.abc import Iterable

import pytest
from pages import CODE, ROOT

OF_USERS = (
    *("python", "cli", "web", "algorithms", "evaluation", "comparison", "scale", "operations"),
    *("hosted", "support", "release-notes"),
)
OF_DEVELOPERS = ("CONTRIBUTING.md", "docs/architecture.md", "docs/experiments.md", "docs/decisions/*.md")
TO_YOU = ("README.md", "docs/tutorials/*.md", "docs/guides/*.md", *(f"docs/{name}.md" for name in OF_USERS))
OF_THE_PROJECT = ("CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
PLAIN = (*TO_YOU, *OF_THE_PROJECT, "docs/index.md", "docs/docker.md", "docs/packaging.md", *OF_DEVELOPERS)
HABITS = {  # a pattern, the most hits per 10,000 words, an example, and better words
    "what": (
        r"\b(?:of|by|for|to|from|with|in|on|and|as|than|is|are|not) what\b",
        2,
        "It is what leaves it.",
        "a result",
    ),
    "who": (r"\b(?:for|to|by|of|from|with|than) who\b", 0.5, "A text for who looks.", "for readers who look"),
    "alone": (r"\balone\b", 1, "The owner alone reads it.", "Only the owner"),
    "where": (r"(?:^|[.:,(|] |\b(?:only|except|and|or) )where\b", 3, "It warns, where noise wins.", "It warns if"),
    "at most": (r"\bat (?:most|least)(?=[.,:)|]| and\b)|\b(?:as|so) many\b", 1, "One at most.", "at most one"),
    "of its own": (r"\bof (?:its|their|your|one's) own\b", 1, "A budget of its own.", "its own budget"),
    "whose": (r"\bwhose\b", 1, "A person whose rows are read.", "a person with rows"),
    "beside": (r"\bbeside\b", 0.5, "Small beside the others.", "next to the others, besides"),
    "in place of": (
        r"\bin (?:its |their )?place of\b|\bin (?:its|their) place\b",
        1,
        "10 in place of 36.",
        "36 → 10 in place",
    ),
    "whatever": (r"\bwhatever\b|\banew\b|\bby (?:itself|themselves)\b", 0.5, "Whatever it reads.", "regardless of it"),
    "fractions": (r"\ban? (?:half|third|quarter|fifth|tenth) (?:of|less|more)\b", 0.5, "A third less.", "33 %"),
}
MOST_WORDS, MOST_LONG = 25, 2  # of a sentence; sentences with more, per 100
MOST_SEMICOLONS = 6  # per 100 sentences
LEAST_YOU = 105  # per 10,000 words
PARAGRAPH = re.compile(r"\n\s*\n|^\s*(?:[-*]|\d+\.) |^#+ .*$|^ *\|", re.MULTILINE)


def paragraphs(text: str) -> list[str]:
    """Return paragraphs, items and rows of tables, without code and addresses."""
    prose = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]+`", "Code", CODE.sub("\n\n", text)))
    return [" ".join(part.split()) for part in PARAGRAPH.split(prose) if part and part.strip()]


def sentences(parts: Iterable[str]) -> list[list[str]]:
    """Return the words of each sentence outside of tables."""
    found = [one for part in parts if not part.endswith("|") for one in re.split(r"(?<=[.!?:]) (?=[^a-z…])", part)]
    return [[word for word in one.split() if re.search(r"\w", word)] for one in found]


def per(many: int, count: int, whole: int) -> float:
    return many * count / max(whole, 1)


def hits(pattern: str, parts: Iterable[str]) -> int:
    return sum(len(re.findall(pattern, part, re.IGNORECASE)) for part in parts)


def share_of_long(found: list[list[str]]) -> float:
    return per(100, sum(len(each) > MOST_WORDS for each in found), len(found))


def words(parts: Iterable[str]) -> int:
    return sum(len(part.split()) for part in parts)


def read(*globs: str) -> list[str]:
    texts = [path.read_text(encoding="utf-8") for each in globs for path in sorted(ROOT.glob(each))]
    assert len(texts) >= len(globs)
    return [part for text in texts for part in paragraphs(text)]


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_of_words_is_rare(habit):
    """The control is the same text with twenty examples of the habit. The better words are no hit."""
    pattern, most, example, better = HABITS[habit]
    parts = read(*PLAIN)
    assert per(10_000, hits(pattern, parts), words(parts)) <= most
    assert per(10_000, hits(pattern, [*parts, *[example] * 20]), words(parts)) > most
    assert hits(pattern, [better]) == 0


@pytest.mark.parametrize("glob", PLAIN)
def test_sentences_have_one_idea_and_no_semicolons(glob):
    """Of 100 sentences 98 have 25 words or fewer. The controls are longer sentences, and joined ones."""
    parts = read(glob)
    found = sentences(parts)
    longer = ["one " * (MOST_WORDS + 1)] * (1 + len(found) // 30)
    assert share_of_long(found) <= MOST_LONG
    assert per(100, hits(";", parts), len(found)) <= MOST_SEMICOLONS
    assert share_of_long(sentences([*parts, *longer])) > MOST_LONG
    assert hits(";", paragraphs("It is read; it is `a;b`.\n\n```sql\nselect 1;\n```")) == 1


@pytest.mark.parametrize("glob", TO_YOU)
def test_a_page_for_users_says_you(glob):
    """The control is a text that does not."""
    parts = read(glob)
    assert per(10_000, hits(r"\byour?s?\b", parts), words(parts)) >= LEAST_YOU
    assert hits(r"\byour?s?\b", ["The youngest registers a table.", "You register yours."]) == 2
