"""New names of models are told apart by people; names of former versions stay usable."""

import sys
import unicodedata

import psycopg
import pytest

from dbdp import checks
from dbdp.registry.spending import spelling

GOOD = (
    "credit",
    "Kredit-2",
    "größe_ß",
    "кредит",
    "κίνδυνος",
    "信用リスク",
    "신용",
    "クレジット.v2",
    "a.б",
    "été",
    "x١",
)[:-1]
BAD = {
    "\u3164": "shows nothing",
    "credit\u3164": "shows nothing",
    "credit\u1160": "shows nothing",
    "\uff23redit": "look like others; write 'Credit'",
    "\u0441redit": "letters of Cyrillic and Latin",  # Cyrillic es
    "cre\u217eit": "look like others",
    "ﬁt": "look like others; write 'fit'",
    "risk\u0661": "letters of Arabic-indic and Latin",
}


@pytest.mark.parametrize("name", GOOD)
def test_names_of_one_script_are_accepted(name):
    checks.model_name(name)
    spelling.check(name)


@pytest.mark.parametrize("name", BAD)
def test_names_that_look_like_others_are_refused(name):
    """The control: each has the form of a name."""
    checks.model_name(name)
    with pytest.raises(ValueError, match=BAD[name]):
        spelling.check(name)


def ignorable(letter: str) -> bool:
    """Whether a character shows nothing, by its category or its Unicode name."""
    words = ("FILLER", "VARIATION SELECTOR", "ZERO WIDTH", "INVISIBLE", "BLANK", "SPACE")
    return unicodedata.category(letter) in ("Cf", "Cc", "Zs", "Cn", "Co", "Cs") or any(
        word in unicodedata.name(letter, "") for word in words
    )


def test_no_letter_that_shows_nothing_is_in_a_new_name():
    """Of all of Unicode; the control: there are such letters in the form of a name."""
    in_form = []
    for letter in filter(ignorable, map(chr, range(sys.maxunicode + 1))):
        try:
            checks.model_name(f"a{letter}")
        except ValueError:
            continue
        in_form.append(letter)
        with pytest.raises(ValueError, match="name"):
            spelling.check(f"a{letter}")
    assert "\u3164" in in_form


def named(connection: psycopg.Connection, dataset: str, name: str) -> str:
    sql = "select version from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', batch_size => 20, name => %s)"
    return connection.execute(sql, (dataset, name)).fetchone()[0]


def test_one_of_two_names_that_differ_in_case_is_refused(connection, schema, dataset, spent):
    """Before the charge; the control: the name itself gets another version."""
    assert named(connection, dataset, f"{schema}_straße").endswith("@1")
    before = spent(dataset)
    for other in (f"{schema}_STRASSE", f"{schema}_Straße", f"{schema}_\u0441trasse"):
        with pytest.raises(psycopg.Error, match=r"differs from a name in use|letters of Cyrillic and Latin"):
            named(connection, dataset, other)
    assert spent(dataset) == before
    assert named(connection, dataset, f"{schema}_straße").endswith("@2")


def test_a_name_of_a_former_version_stays_usable(connection, schema, dataset):
    """Whatever its letters are; and a new one may not be taken for it."""
    old = f"{schema}_\u0441redit"
    with connection.transaction():
        named(connection, dataset, f"{schema}_x")
        connection.execute(
            "insert into dbdp.model_name (name, dataset, owned_by, owned_by_id, registered_by, registered_by_id) "
            "select %s, dataset, owned_by, owned_by_id, registered_by, registered_by_id "
            "from dbdp.model_name where name = %s",
            (old, f"{schema}_x"),
        )
    assert named(connection, dataset, old).endswith("@1")
    with pytest.raises(psycopg.Error, match="name"):
        named(connection, dataset, old.upper())
