"""The tutorial's commands and the notebook's cells run; commands that cannot be served stop before torch."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from taps.cli import main
from taps.data.sample import bundled_sample

DOCS = Path(__file__).resolve().parent.parent / "docs"


PAGE = (DOCS / "tutorial.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    return [line for line in PAGE.splitlines() if line.startswith("taps ")]


def test_the_tutorials_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import zipfile

    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(bundled_sample()) as archive:
        archive.extractall("photos")
    ran = [line for line in commands() if "console" not in line and "--resume" not in line]
    assert len(ran) == 4
    for line in ran:
        classes = "" if "--learner" in line else " --classes airplane,bass"
        small = line.replace("taps predict photos", f"taps predict photos/airplane{classes}")
        monkeypatch.setattr(sys, "argv", shlex.split(small))
        with pytest.raises(SystemExit) as ended:
            main.run()
        assert not ended.value.code, line
    assert "360 of 360 images, 48 classes, all can be read." in capsys.readouterr().out
    assert (tmp_path / "runs" / "first" / "report.html").is_file()
    assert len((tmp_path / "learned.csv").read_text().splitlines()) == 7
    images, broken, accuracy, final, asked, rate, delivered = re.findall(
        r"[\d.]+", PAGE.split("rate │\n")[1].split(" of the labels")[0]
    )
    summary = json.loads((tmp_path / "runs" / "first" / "summary.json").read_text())
    assert (summary["n"], summary["broken"], summary["asked"]) == (int(images), int(broken), int(asked))
    assert f"{summary['rate']:.1%}" == f"{rate}%"
    # Another processor rounds otherwise: three images of 120 may tip over.
    for name, value in (("top1", accuracy), ("top1_final", final), ("delivered", delivered)):
        assert 100 * summary[name] == pytest.approx(float(value), abs=2.51)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), "docs/notebook.ipynb", "exec"), names)
    assert (tmp_path / "my-learner").is_dir()


@pytest.mark.parametrize("words", ["--help", "run --help", "run x --no-such", "run x --limit -5"])
def test_torch_is_not_loaded_for_help_and_wrong_options(words: str) -> None:
    code = (
        "import sys\nfrom taps.cli import main\n"
        f"sys.argv = ['taps', *{words.split()!r}]\n"
        "try:\n    main.run()\nexcept SystemExit:\n    pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
