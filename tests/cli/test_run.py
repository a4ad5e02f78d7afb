"""`taps run` as a user meets it: its files, its sentences, being killed."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from taps.cli import main
from taps.stream.record import COLUMNS

TAPS = [sys.executable, "-m", "taps.cli"]
FAST = ["--model", "tiny", "--set", "views=4", "--set", "tau0=0.5"]


def taps(*args, cwd, stdin=""):
    env = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    return subprocess.run(
        [*TAPS, *map(str, args)], cwd=cwd, input=stdin, capture_output=True, text=True, env=env
    )


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """The command in this process: as `taps` above, without waiting for torch to be imported again."""
    monkeypatch.chdir(tmp_path)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["taps", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main.run()
        return (ended.value.code or 0, *capsys.readouterr())

    return call


def fill(folder, per_class=8, names=("cat", "dog", "bird")):
    rng = np.random.default_rng(0)
    for name in names:
        (folder / name).mkdir(parents=True)
        for index in range(per_class):
            pixels = rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder


@pytest.fixture
def folder(tmp_path):
    return fill(tmp_path / "images")


def test_files_and_counts(folder, tmp_path, here):
    for index in range(5):
        (folder / "cat" / f"broken{index}.jpg").write_bytes(os.urandom(50 * index))
    code, _, err = here("run", folder, *FAST, "--out", "out")
    assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "out/predictions.csv").read_text().splitlines()))
    assert set(rows[0]) >= {"path", "predicted", "probability", "entropy", "threshold", "asked", "label"}
    assert tuple(rows[0]) == COLUMNS
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["n"] == len(rows) == 24
    assert summary["broken"] == 5
    assert summary["asked"] == sum(row["asked"] == "1" for row in rows) > 0
    assert summary["top1"] == pytest.approx(np.mean([row["predicted"] == row["label"] for row in rows]))
    assert {"rate", "ms_p50", "ms_p95", "peak_rss_mb", "settings"} <= summary.keys()
    events = [json.loads(line) for line in (tmp_path / "out/events.jsonl").read_text().splitlines()]
    asked = [event["id"] for event in events if event["event"] == "predicted" and event["asked"]]
    assert [event["id"] for event in events if event["event"] == "answered"] == asked
    for event in events:  # no answer stands before the prediction it belongs to
        if event["event"] == "answered":
            order = [e["event"] for e in events if e.get("id") == event["id"]]
            assert order == ["predicted", "answered"]


def said(run):
    """The predictions of a run, but for the time they took."""
    rows = csv.DictReader((run / "predictions.csv").read_text().splitlines())
    return [{name: row[name] for name in row if name != "seconds"} for row in rows]


def test_killed_and_resumed_is_the_same_run(tmp_path, here):
    folder = fill(tmp_path / "many", per_class=100)
    code, _, err = here("run", folder, *FAST, "--out", "whole")
    assert code == 0, err
    # The same number of threads as here: sums over more threads round otherwise.
    process = subprocess.Popen(
        [*TAPS, "run", str(folder), *FAST, "--out", "part"], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    rows = tmp_path / "part/predictions.csv"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (rows.is_file() and len(rows.read_text().splitlines()) > 120):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed_at = len(rows.read_text().splitlines())
    assert 120 < killed_at < 301, "the process was to be killed in the middle of its stream"
    code, _, err = here("run", folder, *FAST, "--out", "part", "--resume")
    assert code == 0, err
    assert said(tmp_path / "part") == said(tmp_path / "whole")
    counts = [json.loads((tmp_path / run / "summary.json").read_text()) for run in ("whole", "part")]
    assert [c["n"] for c in counts] == [300, 300]
    assert counts[0]["learner"] == counts[1]["learner"]


def test_console_oracle_asks_a_person(folder, tmp_path):
    asked = ["--classes", "cat,dog,bird", "--oracle", "console", "--limit", "2", "--out", "o"]
    done = taps("run", folder / "dog", *FAST, *asked, cwd=tmp_path, stdin="dog\n\n")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "o/summary.json").read_text())
    assert (summary["asked"], summary["answered"]) == (2, 1)


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["images", "--model", "nope"], "no model named 'nope'"),
        (["absent", "--model", "tiny"], "absent"),
        (["empty", "--model", "tiny"], "empty"),
        (["images", "--model", "tiny", "--method", "guess"], "no method named 'guess'"),
        (["images", "--model", "tiny", "--classes", "cat"], "at least two classes"),
        (["images/cat", "--model", "tiny", "--classes", "cat,cat", "--oracle", "none"], "the same"),
        (["images/cat", "--model", "tiny", "--classes", "cat,_", "--oracle", "none"], "empty"),
        (["images/cat", "--model", "tiny", "--classes", "a,b" + " x" * 90, "--oracle", "none"], "shorten"),
        (["images", "--model", "tiny", "--set", "colour=red"], "no setting colour"),
        (["images", "--model", "tiny", "--rate", "7"], "rate"),
        (["images", "--model", "tiny", "--out", "/proc/taps/no"], "cannot be written"),
        (["images", "--model", "tiny", "--oracle", "crystal"], "crystal"),
        (["images/cat", "--model", "tiny", "--classes", "cat,dog"], "--oracle"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, tmp_path, here, args, word):
    (tmp_path / "empty").mkdir()
    code, out, err = here("run", *args)
    assert code == 2
    assert word in err
    assert "Traceback" not in err + out


def test_a_used_directory_is_refused(folder, tmp_path, here):
    assert here("run", folder, *FAST, "--limit", "3", "--out", "o")[0] == 0
    before = (tmp_path / "o/predictions.csv").read_bytes()
    code, _, err = here("run", folder, *FAST, "--limit", "3", "--out", "o")
    assert code == 2
    assert "--resume" in err
    code, _, err = here("run", folder, *FAST, "--limit", "3", "--out", "o", "--resume", "--seed", "5")
    assert code == 2
    assert "seed" in err
    assert (tmp_path / "o/predictions.csv").read_bytes() == before
