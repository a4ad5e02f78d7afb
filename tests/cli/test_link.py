"""Links with a token in them: what is printed, and for whom."""

from __future__ import annotations

import io
import sys

import pytest
import segno
from rich.console import Console

from taps.cli.link import Links, reachable


def printed(links: Links, url: str, *, width: int = 100) -> tuple[str, list[str]]:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    page = links.show(console, url, "photos")
    return page, console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_alone_on_a_machine_there_is_one_address() -> None:
    page, lines = printed(Links(), "http://127.0.0.1:81")
    assert lines == [f"Label at {page}"]
    assert page == "http://127.0.0.1:81/?stream=photos"


def test_others_get_the_address_that_they_reach_and_its_code() -> None:
    links = Links("#token=mine", "#token=theirs")
    page, lines = printed(links, "http://0.0.0.0:81")
    assert page == "http://127.0.0.1:81/?stream=photos#token=mine"
    theirs = f"{reachable('http://0.0.0.0:81')}/?stream=photos#token=theirs"
    assert lines[:2] == [f"Label at {page}", f"Phones and colleagues: {theirs}"]
    assert "0.0.0.0" not in theirs
    assert modules(lines[2:]) == [list(row) for row in segno.make_qr(theirs, error="L").matrix_iter(border=4)]


def modules(lines: list[str]) -> list[list[int]]:
    """The modules that characters of two each show, dark ones 1: the characters draw the light ones."""
    rows = [[int(char not in half) for char in line] for line in lines for half in ("▀█", "▄█")]
    return rows[: len(rows[0])]  # the last line has but one row


@pytest.mark.parametrize("installed", [False, True], ids=["absent", "narrow"])
def test_without_room_or_segno_the_address_is_enough(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "segno", None)
    width = 30 if installed else 100
    _, lines = printed(Links("#token=a", "#token=b"), "http://10.1.2.3:81", width=width)
    assert len(lines) == 2
    assert "10.1.2.3" in lines[1]
