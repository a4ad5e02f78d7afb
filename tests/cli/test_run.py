"""`taps run` as a user meets it: its files, its sentences, being killed."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

from taps.data import load_dataset
from taps.errors import StateError
from taps.streams.options import RunOptions
from taps.streams.record import COLUMNS, read_predictions, read_rows
from taps.streams.run import settings_of

TAPS = [sys.executable, "-m", "taps"]
FAST = ["--model", "tiny", "--method", "taps", "--set", "views=4", "--set", "tau0=0.5"]


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
    assert set(rows[0]) >= {"path", "predicted", "probability", "view_entropy", "threshold", "asked", "truth"}
    assert tuple(rows[0]) == COLUMNS
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["n"] == len(rows) == 24
    assert summary["broken"] == 5
    assert summary["asked"] == sum(row["asked"] == "1" for row in rows) > 0
    assert summary["top1"] == pytest.approx(np.mean([row["predicted"] == row["truth"] for row in rows]))
    assert {"rate", "ms_p50", "ms_p95", "peak_rss_mb", "settings"} <= summary.keys()
    events = [json.loads(line) for line in (tmp_path / "out/events.jsonl").read_text().splitlines()]
    asked = [event["id"] for event in events if event["event"] == "predicted" and event["asked"]]
    assert [event["id"] for event in events if event["event"] == "answered"] == asked
    for event in events:  # no answer stands before the prediction it belongs to
        if event["event"] == "answered":
            order = [e["event"] for e in events if e.get("id") == event["id"]]
            assert order == ["predicted", "answered"]


@pytest.mark.parametrize("mine", ["report.html", "summary.json", "state/x", "run.json", ".taps", "y"])
def test_a_folder_with_files_that_are_no_runs_is_refused_at_once(folder, tmp_path, here, monkeypatch, mine):
    monkeypatch.setattr("taps.streams.run.load_clip", None)  # before the model is loaded
    (tmp_path / "out" / mine).parent.mkdir(parents=True)
    (tmp_path / "out" / mine).write_text('{"options": {"method": "taps"}}')
    for resume in ([], ["--resume"]):
        code, _, err = here("run", folder, *FAST, "--out", "out", *resume)
        assert (code, [path.name for path in (tmp_path / "out").rglob("*")]) == (2, mine.split("/"))
        assert "choose" in err


def test_no_cell_is_a_formula(tmp_path, here):
    names = {"=cmd|' '!A0.png", "@sum.png", "-rf.png", "'=x.png", "+1.png"}
    fill(tmp_path / "images", 5, names=("=1+1", "-a"))
    for place in ("=1+1", "-a"):
        for name, path in zip(sorted(names), sorted((tmp_path / "images" / place).iterdir()), strict=True):
            path.rename(path.with_name(name))
    shutil.move(tmp_path / "images" / "-a" / "@sum.png", tmp_path / "images" / "@sum.png")
    code, _, err = here("run", "images", *FAST, "--classes", "=1+1,-a", "--out", "o", "--sort-into", "s")
    assert code == 0, err
    with (tmp_path / "o/predictions.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell[:1] in tuple("=+-@")]
    found = read_predictions(tmp_path / "o")
    assert {row["path"].rpartition("/")[2] for row in found} == names
    assert {row["predicted"] for row in found} <= {"=1+1", "-a"}
    assert len(list((tmp_path / "s").rglob("*.png"))) == 10
    assert here("predict", "images", "--model", "tiny", "--classes", "=1+1,-a", "--quiet")[0] == 0
    with (tmp_path / "predictions.csv").open(newline="") as file:
        assert not [cell for row in csv.reader(file) for cell in row if cell[:1] in tuple("=+-@")]


def test_a_run_leaves_a_page_and_sorted_images(folder, tmp_path, here):
    assert here("run", folder, *FAST, "--out", "o", "--sort-into", "sorted", "--sure", "0")[0] == 0
    rows = list(csv.DictReader((tmp_path / "o/predictions.csv").read_text().splitlines()))
    for row in rows:  # where somebody answered, the answer says where an image belongs
        label = row["truth"] if row["asked"] == "1" else row["final"]
        copy = tmp_path / "sorted" / label / row["path"].replace("/", "__")
        assert copy.read_bytes() == (folder / row["path"]).read_bytes()
    page = (tmp_path / "o/report.html").read_text()
    assert re.search(r"<h1>(.*)</h1>", page)[1].endswith(f" on {folder.name}")
    assert all(f"<td>{row['predicted']}</td>" in page for row in rows)
    assert page.count("<img") >= sum(row["asked"] == "1" for row in rows)


def test_results_do_not_wait_for_the_page(folder, tmp_path, here, monkeypatch):
    def broken(*_):
        raise StateError("The page is broken.")

    monkeypatch.setattr("taps.study.report.run_page.write_page", broken)
    assert here("run", folder, *FAST, "--out", "o", "--sort-into", "sorted", "--limit", "6")[0] == 2
    assert len(list((tmp_path / "sorted").rglob("*.png"))) == 6
    assert (tmp_path / "o/predictions.csv").read_text().count("\n") == 7
    assert json.loads((tmp_path / "o/summary.json").read_text())["n"] == 6


def test_no_two_images_are_sorted_under_one_name(tmp_path, here):
    names = ["a/b/c.png", "a__b/c.png", "a/b__c.png", "a__b__c.png", "a_/b_c.png", "a/_b_c.png"]
    rng = np.random.default_rng(0)
    for name in names:
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)).save(path)
    given = ["--model", "tiny", "--classes", "cat,dog", "--sort-into", "sorted", "--quiet"]
    for _ in range(2):  # a second time, the same names
        code, _, err = here("predict", "images", *given)
        assert code == 0, err
        copies = {path.read_bytes() for path in (tmp_path / "sorted").rglob("*.png")}
        assert copies == {(tmp_path / "images" / name).read_bytes() for name in names}
        assert len(list((tmp_path / "sorted").rglob("*.png"))) == len(names)
    assert list((tmp_path / "sorted").rglob("a__b__c.png"))  # a/b/c.png, which nothing else could mean


MISSILES = ("n04008634", "n03773504")  # both are called missile; the folders sort the other way round


@pytest.mark.parametrize("as_file", [True, False])
def test_wordnet_ids_with_equal_names_are_classes(tmp_path, here, as_file):
    fill(tmp_path / "images", 2, names=(*MISSILES, "n01440764"))
    ids = [*MISSILES, "n01440764"]
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    given = ["--classes", "ids.txt" if as_file else ",".join(ids)]
    code, _, err = here("run", "images", *FAST, *given, "--out", "o")
    assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "o/predictions.csv").read_text().splitlines()))
    assert {row["truth"] for row in rows} == {"missile", "tench"}
    assert all(ids[int(row["truth_index"])] == row["path"].split("/")[0] for row in rows)
    code, _, err = here("predict", "images", "--learner", "o", "--quiet")
    assert code == 0, err
    assert here("predict", "images", "--model", "tiny", *given, "--quiet")[0] == 0


def test_a_setting_that_is_refused_leaves_no_folder(folder, tmp_path, here):
    for wrong in (["--set", "vews=3"], ["--rate", "3"]):
        assert here("run", folder, *FAST, *wrong)[0] == 2
    assert not (tmp_path / "runs").exists()


def test_the_length_is_known_so_all_of_the_budget_is_spent(folder, tmp_path, here):
    few = ["--model", "tiny", "--method", "zero_shot+", "--limit", "20", "--set", "budget=hard"]
    assert here("run", folder, *few, "--rate", "0.12", "--out", "o")[0] == 0
    summary = json.loads((tmp_path / "o/summary.json").read_text())
    assert (summary["settings"]["expected"], summary["asked"]) == (20, 3)


def test_few_images_and_no_question_are_explained(folder, here):
    few = [
        "--model",
        "tiny",
        "--method",
        "zero_shot+",
        "--rate",
        "0.05",
        "--limit",
        "5",
        "--set",
        "policy=quantile",
        "--set",
        "tau0=9",
    ]
    code, out, _ = here("run", folder, *few, "--out", "o")
    assert code == 0
    assert "No question was due: 5 images, --rate 0.05. A higher rate asks more." in out


def said(run):
    """The predictions of a run, but for the time they took."""
    rows = csv.DictReader((run / "predictions.csv").read_text().splitlines())
    return [{name: row[name] for name in row if name != "seconds"} for row in rows]


STOPPED = """
import os, signal, sys
from taps.cli import main, terminal
from taps.streams.record import Pace, Record

def update(self, step, running):
    if running.position == 37:
        os.kill(os.getpid(), signal.{signal})

terminal.StreamProgress.update = update
Record.__init__.__defaults__ = (Pace(every=10, pause=0, worth=0),)
main.run()
"""


def stopped(folder, signal):
    """`taps run` on 60 images that gets a signal after the 37th; what it says, and how it ends."""
    fill(folder / "many", per_class=20)
    # The same number of threads as here: sums over more threads round otherwise.
    command = [sys.executable, "-c", STOPPED.format(signal=signal), "run", "many", *FAST, "--out", "part"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    return done.stdout.replace("\n", " "), done.returncode


def check_resumed(folder, here):
    code, _, err = here("run", "--resume", "--out", "part")
    assert code == 0, err
    assert here("run", "many", *FAST, "--out", "whole")[0] == 0
    assert said(folder / "part") == said(folder / "whole")
    counts = [json.loads((folder / run / "summary.json").read_text()) for run in ("whole", "part")]
    assert [c["n"] for c in counts] == [60, 60]
    assert counts[0]["learner"] == counts[1]["learner"]


def test_killed_and_resumed_is_the_same_run(tmp_path, here):
    _, code = stopped(tmp_path, "SIGKILL")
    assert code == -signal.SIGKILL
    assert 30 <= len(said(tmp_path / "part")) < 60
    check_resumed(tmp_path, here)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path, here):
    told, code = stopped(tmp_path, "SIGINT")
    assert code == 130
    assert len(said(tmp_path / "part")) == 37
    assert "37 of 60 images" in told
    assert "taps run --resume --out part" in told
    check_resumed(tmp_path, here)


def test_console_annotator_asks_a_person(folder, tmp_path, here):
    asked = ["--classes", "cat,dog,bird", "--annotator", "console", "--limit", "2", "--out", "o"]
    code, _, err = here("run", folder / "dog", *FAST, *asked, stdin="dog\n\n")
    assert code == 0, err
    summary = json.loads((tmp_path / "o/summary.json").read_text())
    assert (summary["asked"], summary["answered"]) == (2, 1)


@pytest.mark.parametrize("typed", ["n\nzebra\nzebra\ndog\n", "dog\nu\nn\nzebra\nzebra\ndog\n"])
def test_a_class_is_added_at_the_console(folder, tmp_path, here, typed):
    asked = ["--classes", "cat,dog,bird", "--annotator", "console", "--limit", "3", "--out", "o"]
    code, _, err = here("run", folder / "dog", *FAST, *asked, stdin=typed)
    assert code == 0, err
    rows = read_predictions(tmp_path / "o")
    assert [row["truth"] for row in rows] == ["zebra", "zebra", "dog"]
    added = [float(row["of_truth"]) for row in rows]
    assert added[0] == 0.0  # nobody had thought of it when the image was predicted
    assert added[2] > 0
    code, _, err = here("run", "--resume", "--limit", "5", "--out", "o", stdin="zebra\nbird\n")
    assert code == 0, err
    assert json.loads((tmp_path / "o/summary.json").read_text())["classes"] == 4
    assert [row["truth"] for row in read_predictions(tmp_path / "o")[3:]] == ["zebra", "bird"]


def test_an_annotator_is_named_where_one_is_asked(folder, here):
    code, _, err = here("run", folder, *FAST, "--as", "ann", "--out", "o")
    assert code == 2
    assert "use it with --annotator console" in err


def spoil(folder):
    """Files that cannot be read, of several kinds; how many."""
    (folder / "cat" / "lost.png").symlink_to(folder / "nowhere.png")
    (folder / "dog" / "loop.jpg").symlink_to(folder / "dog" / "loop.jpg")
    (folder / "dog" / "locked.png").write_bytes((folder / "dog" / "0.png").read_bytes())
    (folder / "dog" / "locked.png").chmod(0)
    return 2 + (not os.access(folder / "dog" / "locked.png", os.R_OK))


def test_files_that_cannot_be_read_are_counted_and_skipped(folder, tmp_path, here):
    broken = spoil(folder)
    code, out, err = here("run", folder, *FAST, "--out", "out", "--json")
    assert code == 0, err
    assert json.loads(out)["broken"] == broken
    assert json.loads(out)["n"] == 27 - broken
    events = map(json.loads, (tmp_path / "out/events.jsonl").read_text().splitlines())
    assert {"cat/lost.png", "dog/loop.jpg"} <= {e["path"] for e in events if e["event"] == "unreadable"}


def test_a_folder_of_which_no_image_can_be_read_is_refused(folder, tmp_path, here):
    for path in folder.rglob("*.png"):
        path.write_bytes(b"no image")
    code, _, err = here("run", folder, *FAST, "--out", "o")
    assert code == 2
    assert "None of the 24 images" in err
    assert not (tmp_path / "o").exists()


def test_a_damaged_member_of_a_zip_is_counted_and_skipped(folder, tmp_path, here):
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.write(path, path.relative_to(folder).as_posix())
        place = archive.getinfo("dog/3.png").header_offset + 80
    data = bytearray((tmp_path / "images.zip").read_bytes())
    data[place] ^= 255  # stored as it is: its checksum does not fit any more
    (tmp_path / "images.zip").write_bytes(data)
    code, out, err = here("run", "images.zip", *FAST, "--out", "out", "--json")
    assert code == 0, err
    assert (json.loads(out)["n"], json.loads(out)["broken"]) == (23, 1)


def test_resume_needs_no_options_and_takes_the_last_run(folder, tmp_path, here):
    assert here("run", folder, *FAST, "--out", "whole", "--seed", "3", "--rate", "0.4")[0] == 0
    assert here("run", folder, *FAST, "--seed", "3", "--rate", "0.4", "--limit", "9")[0] == 0
    [begun] = (tmp_path / "runs").iterdir()
    fill(tmp_path / "others")
    code, out, err = here("run", "--resume", "--limit", "24")
    assert code == 0, err
    assert str(begun.relative_to(tmp_path)) in out.replace("\n", "")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [begun.name]
    assert said(begun) == said(tmp_path / "whole")
    assert here("run", folder, "--resume")[0] == 0  # it has come to its end; nothing is done again
    assert said(begun) == said(tmp_path / "whole")
    code, _, err = here("run", "others", "--resume")
    assert code == 2
    assert "No run over others" in err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (["--no-shuffle"], "started with --shuffle, not --no-shuffle"),
        (["--annotator", "none"], "--annotator folder, not --annotator none"),
        (["--seed", "5"], "--seed 0, not --seed 5"),
        (["--rate", "0.3"], "no --rate, not --rate 0.3"),
        (["--set", "views=3"], "--set views=4 tau0=0.5, not --set views=3"),
        (["--limit", "2"], "is at image 5 already"),
    ],
)
def test_what_contradicts_a_run_is_refused(folder, tmp_path, here, change, told):
    assert here("run", folder, *FAST, "--limit", "5", "--out", "o")[0] == 0
    before = (tmp_path / "o/predictions.csv").read_bytes()
    code, _, err = here("run", folder, "--out", "o", "--resume", *change)
    assert code == 2
    assert told in err
    assert (tmp_path / "o/predictions.csv").read_bytes() == before


def test_other_images_are_refused(folder, tmp_path, here):
    assert here("run", folder, *FAST, "--limit", "5", "--out", "o")[0] == 0
    (folder / "cat" / "0.png").rename(folder / "cat" / "99.png")
    code, _, err = here("run", folder, *FAST, "--limit", "9", "--out", "o", "--resume")
    assert code == 2
    assert "other images" in err


def test_a_run_whose_images_were_replaced_is_refused(folder, tmp_path, here):
    assert here("run", folder, *FAST, "--limit", "9", "--out", "o")[0] == 0
    path = folder / said(tmp_path / "o")[0]["path"]
    first = path.read_bytes()
    Image.new("RGB", (9, 9)).save(path)
    code, _, err = here("run", "--resume", "--limit", "12", "--out", "o")
    assert code == 2
    assert "replaced" in err
    assert path.name in err
    path.write_bytes(first)
    assert here("run", "--resume", "--limit", "12", "--out", "o")[0] == 0


def test_images_that_change_while_it_runs_are_not_sorted(folder, tmp_path, here, monkeypatch):
    def change(session, **_):
        other, gone = (folder / row.name for row in read_rows(session.record.folder)[:2])
        Image.new("RGB", (9, 9)).save(other)
        gone.unlink()

    monkeypatch.setattr("taps.streams.final.repredict_all", change)
    code, out, err = here("run", folder, *FAST, "--out", "o", "--sort-into", "sorted", "--sure", "0")
    assert code == 0, err
    assert "files are gone: 1" in out
    assert "other pictures now: 1" in out
    assert len(list((tmp_path / "sorted").rglob("*.png"))) == 24 - 2


def test_a_run_goes_on_with_images_that_were_moved(folder, tmp_path, here):
    assert here("run", folder, *FAST, "--limit", "5", "--out", "o")[0] == 0
    moved = folder.rename(tmp_path / "moved")
    code, _, err = here("run", "--resume", "--out", "o")
    assert code == 2
    assert "taps run FOLDER --resume --out o" in err
    for where in ([moved], []):  # the new place is kept
        code, _, err = here("run", *where, "--limit", "9", "--out", "o", "--resume")
        assert code == 0, err
    assert len(said(tmp_path / "o")) == 9


def test_a_run_of_the_folder_one_is_in(folder, here, monkeypatch):
    monkeypatch.chdir(folder)
    assert here("run", ".", *FAST, "--limit", "3")[0] == 0
    [run] = (folder / "runs").iterdir()
    assert run.name.startswith(f"{folder.name}-taps-")
    code, _, err = here("run", "--resume", "--limit", "5")  # the folder of runs is no class
    assert code == 0, err


def test_a_long_list_of_classes_is_no_path(folder, tmp_path, here):
    names = [f"class number {number}" for number in range(40)]
    code, _, err = here(
        "run", folder, *FAST, "--annotator", "none", "--classes", ",".join(names), "--out", "o"
    )
    assert code == 0, err
    assert json.loads((tmp_path / "o/summary.json").read_text())["classes"] == 40


def test_a_run_under_way_is_left_alone(folder, tmp_path, here):
    assert here("run", folder, *FAST, "--limit", "5", "--out", "o")[0] == 0
    with FileLock(tmp_path / "o" / ".lock"):
        code, _, err = here("run", folder, *FAST, "--limit", "9", "--out", "o", "--resume")
    assert code == 2
    assert "Another process" in err


def test_answers_of_a_person_survive_a_kill_at_the_next_question(folder, tmp_path, here):
    command = [*TAPS, "run", str(folder), *FAST, "--annotator", "console", "--out", "o", "--limit", "3"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdin.write(b"dog\n")
    process.stdin.flush()
    events = tmp_path / "o/events.jsonl"
    while not (events.is_file() and events.read_text().count('"predicted", ') > 1):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()
    code, _, err = here("run", "--resume", "--out", "o", "--as", "bob", stdin="bird\ncat\nhorse\n")
    assert code == 0, err
    events = [json.loads(line) for line in (tmp_path / "o/events.jsonl").read_text().splitlines()]
    answers = [(event["label"], event.get("annotator")) for event in events if event["event"] == "answered"]
    assert answers == [("dog", None), ("bird", "bob"), ("cat", "bob")]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["images", "--model", "nope"], "Unknown model 'nope'"),
        (["absent", "--model", "tiny"], "absent"),
        (["empty", "--model", "tiny"], "empty"),
        (["images", "--model", "tiny", "--method", "guess"], "Unknown method 'guess'"),
        (
            ["images", "--model", "tiny", "--classes", "cat,"],
            "'cat,' names one class; a classifier",
        ),
        (["images", "--model", "tiny", "--classes", "cat"], "'cat' names one class; a classifier"),
        (["images", "--model", "tiny", "--classes", "missing.txt"], "file not found"),
        (["images", "--model", "tiny", "--classes", ""], "'' names no class"),
        (["images", "--model", "tiny", "--limit", "0"], "--limit is 0"),
        (["images", "--model", "tiny", "--limit", "-5"], "--limit is -5"),
        (["images", "--model", "tiny", "--device", "abacus"], "'abacus' cannot be used here"),
        (["images/cat", "--model", "tiny", "--classes", "cat,cat", "--annotator", "none"], "the same"),
        (["images/cat", "--model", "tiny", "--classes", "cat,_", "--annotator", "none"], "empty"),
        (["images/cat", "--model", "tiny", "--classes", "a,b" + " x" * 90, "--annotator", "none"], "shorten"),
        (["images", "--model", "tiny", "--set", "colour=red"], "no setting colour"),
        (["images", "--model", "tiny", "--rate", "7"], "rate"),
        (["images", "--model", "tiny", "--out", "/proc/taps/no"], "cannot be written"),
        (["images", "--model", "tiny", "--annotator", "crystal"], "crystal"),
        (["--resume", "--out", "absent"], "absent holds no run"),
        (["images/cat", "--model", "tiny", "--classes", "cat,dog"], "--annotator"),
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


def test_a_full_disk_is_a_sentence_and_the_run_can_go_on(folder, tmp_path, here, disk_room):
    with disk_room(1 << 12):
        code, _, err = here("run", folder, *FAST, "--out", "out")
    assert code == 2
    assert err.startswith("taps: ")
    assert "cannot be written" in err
    assert "File too large" in err
    code, _, err = here("run", folder, *FAST, "--out", "out", "--resume")
    assert code == 0, err
    assert json.loads((tmp_path / "out/summary.json").read_text())["n"] == 24


@pytest.mark.parametrize("command", ["run", "predict", "label"])
def test_a_folder_that_is_not_there_is_told_before_torch_is_imported(tmp_path, command):
    code = (
        "import sys; sys.modules['torch'] = None; from taps.cli.main import run; sys.argv[0] = 'taps'; run()"
    )
    given = [sys.executable, "-c", code, command, "nowhere"]
    done = subprocess.run(given, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("taps: 'nowhere' is neither a folder nor a file")


def test_a_stream_as_a_paper_draws_it(folder, tmp_path, here):
    """One class after the other; a run that goes on has the same order."""
    plain = ["--model", "tiny", "--method", "zero_shot", "--order", "statA:separate"]
    code, _, err = here("run", folder, *plain, "--out", "out")
    assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "out/predictions.csv").read_text().splitlines()))
    labels = [row["truth"] for row in rows]
    assert [labels[place] for place in (0, 8, 16)] == list(dict.fromkeys(labels))
    assert [row["phase"] for row in rows] == [str(place // 8) for place in range(24)]
    code, _, err = here("run", folder, "--no-shuffle", "--order", "statA", "--model", "tiny")
    assert (code, err.strip()) == (2, "taps: --order statA shuffles the stream; leave out --no-shuffle.")


def test_quick_takes_four_views_where_the_method_has_views(pictures):
    dataset = load_dataset(pictures)
    quick = settings_of(RunOptions(str(pictures), quick=True), dataset)
    assert (quick["views"], quick["fraction"]) == (4, 0.5)
    assert settings_of(RunOptions(str(pictures), quick=True, settings={"views": 8}), dataset)["views"] == 8
    assert "views" not in settings_of(RunOptions(str(pictures), method="zero_shot", quick=True), dataset)
    assert "views" not in settings_of(RunOptions(str(pictures)), dataset)
