"""Links with a token in them: what is printed, and for whom."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from taps.cli.link import Links, reachable
from taps.cli.qr import half_blocks, qr_code


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
    assert lines[2:] == half_blocks(qr_code(theirs)).split("\n")


@pytest.mark.parametrize(("host", "width"), [("10.1.2.3", 30), ("1" * 300, 100)], ids=["narrow", "long"])
def test_where_a_code_has_no_room_the_address_is_enough(host: str, width: int) -> None:
    _, lines = printed(Links("#token=a", "#token=b"), f"http://{host}:81", width=width)
    assert len(lines) == 2
    assert host in lines[1]
