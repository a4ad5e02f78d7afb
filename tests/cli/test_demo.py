"""`taps demo`: its table and its page."""

import re


def test_demo_writes_a_page_that_needs_nothing_else(tmp_path, here):
    code, said, err = here("demo", "--model", "tiny", "--limit", "40", "--views", "4")
    assert code == 0, err
    assert "random weights" in said
    page = (tmp_path / "taps-demo/report.html").read_text()
    assert str(tmp_path / "taps-demo/report.html") in said
    assert not re.search(r"(src|href)=\"(?!data:)", page), "the page refers to something outside itself"
    assert "{{" not in page
    for method in ("view_ensemble", "view_ensemble+"):
        accuracy = re.search(rf"{re.escape(method)}\s+│\s+([\d.]+%)\s+│\s+(\d+)", said)
        assert accuracy, said
        assert f'<td class="n">{accuracy[1]}</td><td class="n">{accuracy[2]}</td>' in page
    asked = int(re.search(r"The (\d+) questions", page)[1])
    assert asked == 4  # a tenth of 40, as it knows how many come; most of them early
    assert sum(int(at) <= 20 for at in re.findall(r"image (\d+), [\d.]+ nats", page)) == 3
    assert asked == page.count("<figure>") > 0
    assert re.search(rf"{asked} answers bought [+-][\d.]+ points: [\d.]+% right instead of [\d.]+%", page)
    assert re.search(rf"The last {asked} answers changed \d+ of the next 20 predictions", page)


def test_a_mistake_is_told_before_anything_is_streamed(tmp_path, here):
    for wrong, told in ((("--rate", "2"), "The setting rate is 2.0"), (("--limit", "0"), "--limit")):
        code, said, err = here("demo", "--model", "tiny", "--out", tmp_path, *wrong)
        assert code != 0
        assert told in err
        assert "asked" not in said  # no progress bar has been shown
