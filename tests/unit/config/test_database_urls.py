"""URLs of SQL databases: a password comes back as it was, or is refused with how to encode it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recovery.config.addresses.database_urls import BadDatabaseUrl, parse

HERE = Path("/srv")
PRINTABLE = "".join(map(chr, range(32, 127)))


@given(st.text(PRINTABLE, min_size=1))
def test_an_encoded_password_comes_back_as_it_was(password: str) -> None:
    found = parse(f"postgresql://reader:{quote(password, safe='')}@db/n8n", HERE)
    assert (found["password"], found["host"], found["path"]) == (password, "db", "n8n")


@given(st.text(PRINTABLE.replace("%", ""), min_size=1))
@example("something long")
@example("1234/secret")
@example("1234#secret")
@example("se[cret")
@example("x@evil/y")
def test_a_password_as_it_is_works_or_is_refused_with_how_to_encode_it(password: str) -> None:
    try:
        found = parse(f"postgresql://reader:{password}@db/n8n", HERE)
    except BadDatabaseUrl as error:
        said = str(error)
        assert "ercent-encode" in said or "%20" in said
        assert password not in said or len(password) < 6
    else:
        assert (found["password"], found["host"], found["path"]) == (password, "db", "n8n")


@pytest.mark.parametrize("mark", list("/?#[] "))
def test_a_refusal_names_the_code_of_what_stands_in_the_password(mark: str) -> None:
    with pytest.raises(BadDatabaseUrl) as caught:
        parse(f"postgresql://reader:12{mark}hidden@db/n8n", HERE)
    assert quote(mark, safe="") in str(caught.value)
    assert "hidden" not in str(caught.value)
