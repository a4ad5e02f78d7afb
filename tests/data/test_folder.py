"""Folders and archives of images."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from PIL import Image

from taps.data import Dataset, load_dataset
from taps.data.orders import ordered
from taps.data.sources import ZipSource
from taps.errors import DataError

from .layouts import folder_of, put, tar_of, zip_of

PETS = ["cat/1.jpg", "cat/2.JPEG", "guinea_pig/1.webp", "dog/b.png", "dog/a.png"]


def facts(data: Dataset) -> list[tuple[str, str]]:
    return [(s.path, "" if s.label is None else data.classes[s.label]) for s in data.samples]


@pytest.fixture(params=["folder", "zip", "tar"])
def place(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    def make(keys: list[str]) -> Path:
        if request.param == "folder":
            return folder_of(tmp_path / "d", keys)
        if request.param == "zip":
            return zip_of(tmp_path / "d.zip", keys)
        return tar_of(tmp_path / "d.tar", {key: key for key in keys})

    return make


def test_class_folders_in_sorted_order_with_readable_names(place) -> None:  # type: ignore[no-untyped-def]
    data = load_dataset(place(PETS))
    assert data.classes == ("cat", "dog", "guinea pig")
    assert [s.path for s in data.samples] == sorted(PETS)
    assert [s.label for s in data.samples] == [0, 0, 1, 1, 2]
    assert [data.read(i).decode() for i in range(len(data))] == sorted(PETS)
    assert (data.name, data.template, len(data)) == ("d", "a photo of a {}.", 5)


def test_other_files_are_counted_not_loaded(place) -> None:  # type: ignore[no-untyped-def]
    junk = ["cat/._1.jpg", "cat/notes.txt", "dog/Thumbs.db", "README.md", "cover.jpg", ".hidden/x.jpg"]
    data = load_dataset(place([*PETS, *junk]))
    assert [s.path for s in data.samples] == sorted(PETS)
    # What lies in a hidden folder on disk is not even looked at.
    assert data.skipped in (5, 6)


def test_a_name_that_is_not_unicode_is_left_out(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "d", PETS)
    with open(os.fsencode(folder / "cat") + b"/K\xe4tzchen.jpg", "wb") as file:
        file.write(b"an image")
    data = load_dataset(folder)
    assert (len(data), data.left_out) == (5, "1 with a name that is not UTF-8")


def test_pictures_of_phones_are_said_to_need_a_package(place, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("taps.data.sources.IMAGE_SUFFIXES", {".jpg"})
    with pytest.raises(DataError, match=r"no images, but 2 \.heic \(pip install pillow-heif to read them\)"):
        load_dataset(place(["1.HEIC", "2.heic"]))


def test_macosx_folder_of_a_zip_is_no_class(tmp_path: Path) -> None:
    data = load_dataset(zip_of(tmp_path / "d.zip", [*PETS, "__MACOSX/cat/._1.jpg"]))
    assert len(data.classes) == 3
    assert data.skipped == 1


def test_an_image_that_is_broken_stays_in(place) -> None:  # type: ignore[no-untyped-def]
    from taps.errors import ImageError

    data = load_dataset(place(PETS))
    with pytest.raises(ImageError, match=r"cat/1\.jpg"):
        data.image(0)


def test_flat_folder_has_no_labels(place) -> None:  # type: ignore[no-untyped-def]
    data = load_dataset(place(["b.jpg", "a.jpg"]))
    assert facts(data) == [("a.jpg", ""), ("b.jpg", "")]
    assert data.classes == ()


def test_wnids_get_the_names_of_imagenet(place) -> None:  # type: ignore[no-untyped-def]
    data = load_dataset(place(["n02124075/a.jpg", "n01440764/a.jpg"]))
    assert data.classes == ("tench", "Egyptian Mau")


def test_two_imagenet_classes_of_one_name_stay_two(place) -> None:  # type: ignore[no-untyped-def]
    where = place(["n04355933/a.jpg", "n04356056/a.jpg"])
    data = load_dataset(where)
    assert data.classes == ("sunglasses", "sunglasses")
    assert [s.label for s in data.samples] == [0, 1]
    listed = load_dataset(where, classes=["n01440764", "n04355933", "n04356056"])
    assert [s.label for s in listed.samples] == [1, 2]


def test_tiny_imagenets_inner_folder_is_no_class(place) -> None:  # type: ignore[no-untyped-def]
    data = load_dataset(place(["n01440764/images/a.jpg", "n01443537/images/a.jpg"]))
    assert data.classes == ("tench", "goldfish")


def test_an_inner_folder_of_one_name_is_no_class(place) -> None:  # type: ignore[no-untyped-def]
    data = load_dataset(place(["cat/images/a.jpg", "dog/images/a.jpg"]))
    assert data.classes == ("cat", "dog")
    assert [s.domain for s in data.samples] == ["", ""]


def test_domains_share_their_classes_and_one_can_be_addressed(place) -> None:  # type: ignore[no-untyped-def]
    path = place(["photo/dog/1.jpg", "photo/cat/1.jpg", "sketch/dog/2.jpg", "sketch/cat/3.jpg"])
    whole = load_dataset(path)
    assert whole.classes == ("cat", "dog")
    assert [(s.domain, s.label) for s in whole.samples] == [
        ("photo", 0),
        ("photo", 1),
        ("sketch", 0),
        ("sketch", 1),
    ]
    one = load_dataset(path / "sketch")
    assert [s.path for s in one.samples] == ["cat/3.jpg", "dog/2.jpg"]
    assert one.read(0) == b"sketch/cat/3.jpg"


def test_a_domain_that_is_not_there(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "pacs.zip", ["photo/dog/1.jpg", "photo/cat/1.jpg"])
    with pytest.raises(DataError, match=r"no folder painting, only photo"):
        load_dataset(path / "painting")


def test_kinds_with_their_own_classes(place) -> None:  # type: ignore[no-untyped-def]
    data = load_dataset(place(["bird/wren/1.jpg", "bird/tit/1.jpg", "food/pizza/1.jpg"]))
    assert data.classes == ("pizza", "tit", "wren")


def test_wrapping_folder_and_splits_are_looked_through(place) -> None:  # type: ignore[no-untyped-def]
    path = place([f"net2/{part}/{name}/1.jpg" for part in ("train", "val") for name in ("cat", "dog")])
    assert [s.path for s in load_dataset(path).samples] == ["net2/val/cat/1.jpg", "net2/val/dog/1.jpg"]
    assert load_dataset(path, split="train").samples[0].path == "net2/train/cat/1.jpg"


def test_given_names_order_the_labels(place, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = place(PETS)
    listed = put(tmp_path / "names.txt", "\ufeffzebra\nGuinea Pig\ndog\n\ncat\n")
    data = load_dataset(path, classes=listed)
    assert data.classes == ("zebra", "Guinea Pig", "dog", "cat")
    assert facts(data)[-1] == ("guinea_pig/1.webp", "Guinea Pig")
    with pytest.raises(DataError, match=r"not in the list of 2 names: guinea_pig \(1 images\)"):
        load_dataset(path, classes=["cat", "dog"])


def test_folders_that_the_list_does_not_name_are_no_classes(place) -> None:  # type: ignore[no-untyped-def]
    path = place(["1.jpg", "2023/May/2.jpg", "2024/3.jpg"])
    data = load_dataset(path, classes=["cat", "dog"])
    assert [s.path for s in data.samples] == ["1.jpg", "2023/May/2.jpg", "2024/3.jpg"]
    assert data.labels == [None] * 3
    assert data.classes == ("cat", "dog")


def test_images_beside_the_folders_of_listed_classes_have_no_label(place) -> None:  # type: ignore[no-untyped-def]
    path = place(["1.jpg", "cat/2.jpg", "dog/3.jpg"])
    data = load_dataset(path, classes=["cat", "dog"])
    assert [(s.path, s.label) for s in data.samples] == [("1.jpg", None), ("cat/2.jpg", 0), ("dog/3.jpg", 1)]
    assert data.skipped == 0
    assert load_dataset(path).labels == [0, 1]


def test_of_folders_that_are_no_classes_one_may_be_empty(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "d", ["holiday/1.jpg"])
    (folder / "empty").mkdir()
    assert load_dataset(folder, classes=["cat", "dog"]).labels == [None]


def test_numbered_folders_count_by_value_not_as_text(place) -> None:  # type: ignore[no-untyped-def]
    path = place([f"{i}/x.jpg" for i in range(12)])
    with pytest.raises(DataError, match="numbers for class folders"):
        load_dataset(path)
    data = load_dataset(path, classes=[f"class {chr(97 + i)}" for i in range(12)])
    assert {s.path: s.label for s in data.samples} == {f"{i}/x.jpg": i for i in range(12)}


def test_nested_folders_of_a_class_with_the_names_given(place) -> None:  # type: ignore[no-untyped-def]
    path = place(["run/v1/1.jpg", "run/v2/1.jpg", "walk/v3/1.jpg"])
    assert load_dataset(path, classes=["walk", "run"]).labels == [1, 1, 0]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (["cat/1.jpg", "Cat/1.jpg"], "more than once: cat"),
        (["ceiling fan/1.jpg", "ceiling_fan/1.jpg"], "more than once: ceiling fan"),
        (["cat/1.jpg"], "one class only"),
        (["notes.txt"], "holds no images"),
        (["n00000001/1.jpg", "n01440764/1.jpg"], "not among ImageNet's"),
    ],
)
def test_folders_that_cannot_be_classified(place, keys: list[str], sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DataError, match=sentence):
        load_dataset(place(keys))


def test_folders_of_runs_and_answers_beside_the_images_are_no_classes(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "d", PETS)
    put(folder / "runs" / "first" / "run.json")
    put(folder / "d.taps" / "images" / "ab" / "cdef")
    assert load_dataset(folder).classes == ("cat", "dog", "guinea pig")
    assert load_dataset(folder, classes=["cat", "dog", "guinea pig"]).labels == [0, 0, 1, 1, 2]


def test_class_folder_without_images(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "d", PETS)
    put(folder / "horse" / "notes.txt")
    with pytest.raises(DataError, match="without images: horse"):
        load_dataset(folder)


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [(["cat", "Cat"], "more than once"), (["cat"], "two names"), (["cat", " "], "2 of the list is empty")],
)
def test_lists_of_names_that_cannot_be_used(tmp_path: Path, classes: list[str], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        load_dataset(folder_of(tmp_path / "d", PETS), classes=classes)


@pytest.mark.parametrize("text", ["Käfer\nHund".encode("latin-1"), "cat\ndog".encode("utf-16")])
def test_a_list_of_names_in_another_encoding(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "names.txt").write_bytes(text)
    with pytest.raises(DataError, match=r"names\.txt is not in UTF-8: save it in that encoding"):
        load_dataset(folder_of(tmp_path / "d", PETS), classes=tmp_path / "names.txt")


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a folder nor a file"):
        load_dataset(tmp_path / "nothing")
    with pytest.raises(DataError, match="cannot be opened as a zip"):
        load_dataset(put(tmp_path / "cut.zip", "PK not really"))
    with pytest.raises(DataError, match="neither a folder nor a zip"):
        load_dataset(put(tmp_path / "a.txt"))
    with pytest.raises(DataError, match="Unknown split 'dev'"):
        load_dataset(tmp_path, split="dev")


def test_a_damaged_member_is_named(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "d.zip", PETS)
    path.write_bytes(path.read_bytes().replace(b"cat/1.jpgcat/1.jpg", b"cat/1.jpgcat/X.jpg"))
    with pytest.raises(DataError, match=r"member cat/1\.jpg cannot be read"):
        load_dataset(path).read(0)


def test_a_link_in_a_circle_ends(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "d", PETS)
    (folder / "cat" / "again").symlink_to(folder)
    assert len(load_dataset(folder)) == len(PETS)


def test_a_forked_process_opens_its_own_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ZipSource(zip_of(tmp_path / "d.zip", PETS))
    mine = source.archive()
    assert source.archive() is mine
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert source.archive() is not mine


def _read(job: tuple[Dataset, int]) -> bytes:
    return job[0].read(job[1])


def test_one_zip_in_several_processes(tmp_path: Path) -> None:
    data = load_dataset(zip_of(tmp_path / "d.zip", [f"{c}/{i}.jpg" for c in "ab" for i in range(30)]))
    assert data.read(0) == b"a/0.jpg"  # opened before the others are started
    assert b"ZipFile" not in pickle.dumps(data)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(_read, [(data, i) for i in range(len(data))]))
    assert [content.decode() for content in found] == [s.path for s in data.samples]


@pytest.mark.parametrize(
    ("domains", "classes", "spoken"),
    [
        (("Caltech101", "LabelMe", "SUN09", "VOC2007"), ("bird", "person"), ("bird", "person")),
        (("Art", "Clipart", "Product", "Real World"), ("Alarm_Clock", "Bed"), ("Alarm Clock", "Bed")),
    ],
)
def test_vlcs_and_office_home_are_streams_of_domains(
    tmp_path: Path, domains: tuple[str, ...], classes: tuple[str, ...], spoken: tuple[str, ...]
) -> None:
    for domain in domains:
        for name in classes:
            (tmp_path / domain / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / domain / name / "00001.jpg")
    data = load_dataset(str(tmp_path))
    assert tuple(name.replace("_", " ") for name in data.classes) == spoken
    assert {sample.domain for sample in data.samples} == set(domains)
    order, phase = ordered(data, "by_domain", seed=1)
    assert [data.samples[i].domain for i in order] == [name for name in domains for _ in classes]
    assert phase.max() == 3


def test_a_pipe_among_images_is_unreadable(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "d", PETS)
    os.mkfifo(folder / "cat" / "x.png")
    data = load_dataset(folder)
    at = [sample.path for sample in data.samples].index("cat/x.png")
    said: list[str] = []

    def read() -> None:
        with pytest.raises(DataError) as refused:
            data.read(at)
        said.append(str(refused.value))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(60)  # it would wait for ever
    assert "no regular file" in said[0]


def packed(path: Path, name: str, size: int, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip with a member of zeros."""
    with zipfile.ZipFile(path, "w", method, compresslevel=1) as archive, archive.open(name, "w") as file:
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(("megabytes", "lies", "why"), [(608, False, "bytes"), (304, True, "cannot be read")])
def test_a_member_that_unpacks_to_very_much(tmp_path: Path, megabytes: int, lies: bool, why: str) -> None:
    path = packed(tmp_path / "d.zip", "big.png", megabytes << 20)
    if lies:  # the headers say 1,000 bytes
        size = struct.pack("<I", megabytes << 20)
        path.write_bytes(path.read_bytes().replace(size, struct.pack("<I", 1000)))
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from taps.data import load_dataset\n"
        "from taps.errors import DataError\n"
        "data = load_dataset(sys.argv[1])\n"
        "def peak(): return int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])\n"
        "before = peak()\n"
        "try:\n    data.read(0)\n"
        "except DataError as error:\n    print(error)\n"
        "print((peak() - before) // 1024)\n"
    )
    said = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    sentence, grown = said.stdout.splitlines()
    assert "big.png" in sentence
    assert why in sentence
    assert int(grown) < 150


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_whose_unpacking_cannot_be_bounded_are_refused(tmp_path: Path, method: int) -> None:
    data = load_dataset(packed(tmp_path / "d.zip", "a.png", 1 << 20, method))
    with pytest.raises(DataError, match="not packed by deflate"):
        data.read(0)


def test_whatever_is_left_out_of_a_zip_is_counted(tmp_path: Path) -> None:
    odd = ["/abs.png", "a//c.png", "a/../e.png", "./f.png", "../g.png", ".h.png", "i.txt"]
    keys = [*PETS, *odd, "dog/a.png"]
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = zip_of(tmp_path / "d.zip", keys)
    data = load_dataset(path)
    assert len(data) + data.skipped_kinds.total() == len(keys)
    assert data.skipped_kinds["under a name used twice"] == 1
    for index in range(len(data)):
        data.read(index)
