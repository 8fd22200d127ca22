"""Spellings of new names that people could not tell from others: refused, or the same name.

Letters of two scripts that look alike, such as Latin and Cyrillic, are refused within a word. Whole words of one script
that look like words of another remain, and so do 0 and O, or 1 and l.
"""

import re
import unicodedata

_HANGUL_FILLERS = "\u115f\u1160"  # letters that show nothing; NFKC makes them of their compatible forms
_WRITTEN_TOGETHER = (frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}), frozenset({"CJK", "HANGUL"}))
_WORDS = re.compile(r"[_.-]+")


def folded(name: str) -> str:
    """Return the form that is the same for names that differ in case or in compatible characters only."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def check(name: str) -> None:
    """Raise ValueError for a new name with characters that are not seen, or look like others."""
    usual = unicodedata.normalize("NFKC", name)
    if any(letter in _HANGUL_FILLERS for letter in usual):
        raise ValueError(f"name = {name!a} has a letter that shows nothing; leave it out")
    if usual != name:
        raise ValueError(f"name = {name!r} has characters that look like others; write {usual!r}")
    for word in _WORDS.split(name):
        found = {script for script in map(_script, word) if script}
        if len(found) > 1 and not any(found <= together for together in _WRITTEN_TOGETHER):
            scripts = " and ".join(sorted(script.capitalize() for script in found))
            raise ValueError(
                f"name = {name!r} has letters of {scripts} in one word ({word!a}); use those of one script"
            )


def _script(letter: str) -> str | None:
    """Return the script of a letter or digit, by the first word of its Unicode name; None for 0 to 9."""
    return None if letter in "0123456789" else unicodedata.name(letter, "UNKNOWN").split()[0]
