"""The named sets in miniature, with the traps of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taps.data import check_dataset, find_set, load_dataset, named_sets
from taps.data.facts import imagenet_names
from taps.data.sets import official_classes, spelling_key
from taps.errors import DataError

from .layouts import coop, folder_of, put


def called(data) -> dict[str, str]:  # type: ignore[no-untyped-def]
    return {s.path: data.classes[s.label] for s in data.samples}


def test_facts_agree_with_each_other() -> None:
    assert len(named_sets()) == 15
    for named in named_sets().values():
        classes = official_classes(named)
        assert classes is None or len(classes) == named.classes
        assert "{}" in named.template
        if classes is not None and named.classes < 1000:
            assert len({spelling_key(name) for name in classes}) == len(classes), "spellings must not collide"
    assert list(imagenet_names()) == sorted(imagenet_names())


@pytest.mark.parametrize("name", ["caltech101", "Caltech101", "caltech-101", "Caltech_101"])
def test_spellings_of_a_name(name: str) -> None:
    found = find_set(name)
    assert found is not None
    assert found.id == "caltech101"


@pytest.mark.parametrize(
    ("name", "images", "split_file", "rows", "expected"),
    [
        (
            "caltech101",
            "caltech-101/101_ObjectCategories",
            "split_zhou_Caltech101.json",
            [("Faces/image_0001.jpg", 0, "Faces"), ("accordion/image_0001.jpg", 3, "accordion")],
            ["face", "accordion"],
        ),
        (
            "stanford_cars",
            "stanford_cars",
            "split_zhou_StanfordCars.json",
            [
                ("cars_test/00001.jpg", 0, "AM General Hummer SUV 2000"),
                ("cars_test/00002.jpg", 1, "2012 Acura RL Sedan"),
            ],
            ["2000 AM General Hummer SUV", "2012 Acura RL Sedan"],
        ),
        (
            "ucf101",
            "ucf101/UCF-101-midframes",
            "split_zhou_UCF101.json",
            [
                ("Apply_Eye_Makeup/v_ApplyEyeMakeup_g01_c01.jpg", 0, "Apply_Eye_Makeup"),
                ("Handstand_Pushups/v_HandStandPushups_g01_c01.jpg", 36, "HandStandPushups"),
                ("Yo_Yo/v_YoYo_g01_c01.jpg", 100, "YoYo"),
            ],
            ["Apply Eye Makeup", "Handstand Pushups", "Yo Yo"],
        ),
        (
            "eurosat",
            "eurosat/2750",
            "split_zhou_EuroSAT.json",
            [("AnnualCrop/1.jpg", 0, "AnnualCrop"), ("SeaLake/1.jpg", 9, "Sea or Lake")],
            ["Annual Crop Land", "Sea or Lake"],
        ),
        (
            "sun397",
            "SUN397",
            "split_zhou_SUN397.json",
            [("a/abbey/1.jpg", 0, "abbey"), ("a/apse/indoor/1.jpg", 9, "indoor apse")],
            ["abbey", "indoor apse"],
        ),
        (
            "dtd",
            "dtd/images",
            "split_zhou_DescribableTextures.json",
            [("banded/a.jpg", 0, "banded"), ("polka-dotted/a.jpg", 30, "polka-dotted")],
            ["banded", "polka-dotted"],
        ),
        (
            "pets",
            "oxford-iiit-pet/images",
            "split_zhou_OxfordPets.json",
            [("Abyssinian_1.jpg", 0, "abyssinian"), ("pug_1.jpg", 25, "pug")],
            ["abyssinian", "pug"],
        ),
        (
            "Flowers102",
            "oxford_flowers/jpg",
            "split_zhou_OxfordFlowers.json",
            [("image_1.jpg", 0, "pink primrose"), ("image_2.jpg", 11, "colt's foot")],
            ["pink primrose", "colt's foot"],
        ),
        (
            "food101",
            "Food-101/images",
            "split_zhou_Food101.json",
            [("apple_pie/1.jpg", 0, "apple_pie"), ("waffles/1.jpg", 100, "waffles")],
            ["apple pie", "waffles"],
        ),
    ],
)
def test_split_files_of_coop(  # type: ignore[no-untyped-def]
    tmp_path: Path, name: str, images: str, split_file: str, rows, expected: list[str]
) -> None:
    data = load_dataset(name, root=coop(tmp_path, images, split_file, rows))
    assert called(data) == dict(zip([row[0] for row in rows], expected, strict=True))
    found = find_set(name)
    assert found is not None
    assert (data.name, data.template, len(data.classes)) == (found.name, found.template, found.classes)
    assert data.read(0) == Path(rows[0][0]).name.encode()


def test_root_may_point_into_the_set(tmp_path: Path) -> None:
    coop(tmp_path, "dtd/images", "split_zhou_DescribableTextures.json", [("banded/a.jpg", 0, "banded")])
    for root in (tmp_path, tmp_path / "dtd", tmp_path / "dtd" / "images"):
        assert load_dataset("dtd", root=root).samples[0].path == "banded/a.jpg"


def test_cars_in_a_folder_too_deep(tmp_path: Path) -> None:
    row = ("cars_test/00001.jpg", 0, "2000 AM General Hummer SUV")
    coop(tmp_path, "stanford_cars/cars_test", "split_zhou_StanfordCars.json", [row])
    assert load_dataset("cars", root=tmp_path).read(0) == b"00001.jpg"


def test_root_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coop(tmp_path, "dtd/images", "split_zhou_DescribableTextures.json", [("banded/a.jpg", 0, "banded")])
    monkeypatch.chdir(tmp_path / "dtd")
    monkeypatch.delenv("TAPS_DATA", raising=False)
    with pytest.raises(DataError, match="DTD was not found"):
        load_dataset("DTD")
    monkeypatch.setenv("TAPS_DATA", str(tmp_path))
    assert len(load_dataset("DTD")) == 1


def test_own_names_for_a_named_set(tmp_path: Path) -> None:
    coop(tmp_path, "eurosat/2750", "split_zhou_EuroSAT.json", [("River/1.jpg", 8, "River")])
    names = list(load_dataset("eurosat", root=tmp_path).classes)
    assert load_dataset("eurosat", root=tmp_path, classes=names[::-1]).labels == [1]
    plain = [f"land {i}" for i in range(10)]
    assert called(load_dataset("eurosat", root=tmp_path, classes=plain)) == {"River/1.jpg": "land 8"}
    with pytest.raises(DataError, match="has 10 classes, the list has 2"):
        load_dataset("eurosat", root=tmp_path, classes=["a", "b"])


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            ("BACKGROUND_Google/1.jpg", 100, "BACKGROUND_Google"),
            "BACKGROUND_Google, Faces_easy, which the set of 100",
        ),
        (("ant/1.jpg", 100, "ant"), r"outside its 100 classes: ant \(label 100\)"),
        (("ant/1.jpg", -1, "ant"), r"outside its 100 classes: ant \(label -1\)"),
        (("ant/1.jpg", 5, "ant"), "'ant' but has label 5, which is 'anchor'"),
    ],
)
def test_caltech_rows_that_would_give_wrong_numbers(
    tmp_path: Path, row: tuple[str, int, str], sentence: str
) -> None:
    rows = [("accordion/1.jpg", 3, "accordion"), row]
    coop(tmp_path, "caltech-101/101_ObjectCategories", "split_zhou_Caltech101.json", rows)
    with pytest.raises(DataError, match=sentence):
        load_dataset("caltech101", root=tmp_path)


def test_background_folder_on_disk_is_expected(tmp_path: Path) -> None:
    coop(
        tmp_path, "caltech-101/101_ObjectCategories", "split_zhou_Caltech101.json", [("ant/1.jpg", 6, "ant")]
    )
    for name in ("BACKGROUND_Google", "Faces_easy", "unicorn"):
        put(tmp_path / "caltech-101/101_ObjectCategories" / name / "1.jpg")
    notes = [f.text for f in check_dataset("caltech101", tmp_path).findings if f.level == "note"]
    assert len(notes) == 1
    assert notes[0].endswith("uses: unicorn.")


def test_images_under_other_paths_than_the_split_file_has_are_found_by_name(tmp_path: Path) -> None:
    rows = [
        ("banded/a.jpg", 0, "banded"),
        ("banded/b.jpg", 0, "banded"),
        ("crosshatched/c.jpg", 8, "crosshatched"),
    ]
    coop(tmp_path, "dtd/images", "split_zhou_DescribableTextures.json", rows)
    images = tmp_path / "dtd/images"
    before = called(load_dataset("dtd", root=tmp_path))
    (images / "new/deep").mkdir(parents=True)
    (images / "banded/a.jpg").rename(images / "new/deep/a.jpg")
    (images / "crosshatched/c.jpg").rename(images / "c.jpg")
    found = called(load_dataset("dtd", root=tmp_path))
    assert found == {"new/deep/a.jpg": "banded", "banded/b.jpg": "banded", "c.jpg": "crosshatched"}
    assert sorted(found.values()) == sorted(before.values())
    notes = [f.text for f in check_dataset("dtd", tmp_path).findings if f.level == "note"]
    assert any("2 images" in note and "names" in note for note in notes)
    put(images / "other/a.jpg")  # two files of the name: which is it?
    with pytest.raises(DataError, match=r"1 of 3 images are not in .*banded/a\.jpg"):
        load_dataset("dtd", root=tmp_path)


def test_an_image_of_another_part_is_not_taken_for_one_of_its_name(tmp_path: Path) -> None:
    rows = [("cars_test/00001.jpg", 0, "AM General Hummer SUV 2000")]
    coop(tmp_path, "stanford_cars", "split_zhou_StanfordCars.json", rows)
    folder = tmp_path / "stanford_cars"
    train = [("cars_train/00001.jpg", 1, "2012 Acura RL Sedan")]
    content = json.dumps({"train": train, "val": [], "test": rows})
    put(folder / "split_zhou_StanfordCars.json", content)
    put(folder / "cars_train/00001.jpg")
    (folder / "cars_test/00001.jpg").unlink()
    with pytest.raises(DataError, match="1 of 1 images are not in"):
        load_dataset("stanford_cars", root=tmp_path)


def test_missing_images_and_broken_split_files(tmp_path: Path) -> None:
    rows = [("banded/a.jpg", 0, "banded"), ("banded/b.jpg", 0, "banded")]
    coop(tmp_path, "dtd/images", "split_zhou_DescribableTextures.json", rows)
    (tmp_path / "dtd/images/banded/b.jpg").unlink()
    with pytest.raises(DataError, match=r"1 of 2 images are not in .*banded/b\.jpg"):
        load_dataset("dtd", root=tmp_path)
    file = tmp_path / "dtd" / "split_zhou_DescribableTextures.json"
    for content, sentence in [
        ('{"test": [["ban', "cannot be read as JSON"),
        ('{"train": []}', "no list 'test'"),
        ('{"test": [["a.jpg", 1]]}', "not \\[path, label, name\\]"),
    ]:
        put(file, content)
        with pytest.raises(DataError, match=sentence):
            load_dataset("dtd", root=tmp_path)
    file.unlink()
    put(tmp_path / "dtd/labels/test1.txt", "banded/a.jpg\n")
    with pytest.raises(DataError, match=r"json is missing; .*test1.txt has 1,880 images"):
        load_dataset("dtd", root=tmp_path)


def test_train_part_of_a_split(tmp_path: Path) -> None:
    parts = {"train": [["banded/t.jpg", 0, "banded"]], "val": [], "test": [["banded/a.jpg", 0, "banded"]]}
    put(tmp_path / "dtd/split_zhou_DescribableTextures.json", json.dumps(parts))
    folder_of(tmp_path / "dtd/images", ["banded/t.jpg", "banded/a.jpg"])
    assert [s.path for s in load_dataset("dtd", root=tmp_path, split="train").samples] == ["banded/t.jpg"]


@pytest.mark.parametrize("where", ["fgvc_aircraft", "fgvc-aircraft-2013b/data"])
def test_aircraft(tmp_path: Path, where: str) -> None:
    variants = official_classes(named_sets()["fgvc_aircraft"]) or ()
    put(tmp_path / where / "variants.txt", "\n".join(variants) + "\n")
    put(tmp_path / where / "images_variant_test.txt", "0034309 Boeing 717\n1234567 F-16A/B\n")
    folder_of(tmp_path / where / "images", ["0034309.jpg", "1234567.jpg"])
    data = load_dataset("aircraft", root=tmp_path)
    assert called(data) == {"0034309.jpg": "Boeing 717", "1234567.jpg": "F-16A/B"}
    put(tmp_path / where / "images_variant_test.txt", "0034309 Boeing 9000\n")
    with pytest.raises(DataError, match=r"outside its 100 classes: Boeing 9000"):
        load_dataset("aircraft", root=tmp_path)


def test_official_lists_that_say_the_same(tmp_path: Path) -> None:
    put(tmp_path / "oxford_pets/annotations/test.txt", "Abyssinian_201 1 1 1\nyorkshire_terrier_9 37 2 25\n")
    folder_of(tmp_path / "oxford_pets/images", ["Abyssinian_201.jpg", "yorkshire_terrier_9.jpg"])
    assert called(load_dataset("pets", root=tmp_path)) == {
        "Abyssinian_201.jpg": "abyssinian",
        "yorkshire_terrier_9.jpg": "yorkshire terrier",
    }
    scenes = ["/a/abbey", "/a/airplane_cabin", "/a/airport_terminal", "/a/alley", "/a/amphitheater"]
    scenes += [
        "/a/amusement_arcade",
        "/a/amusement_park",
        "/a/anechoic_chamber",
        "/a/apartment_building/outdoor",
    ]
    put(tmp_path / "sun397/ClassName.txt", "\n".join(scenes))
    put(tmp_path / "sun397/Testing_01.txt", "/a/abbey/x.jpg\n/a/apartment_building/outdoor/y.jpg\n")
    folder_of(tmp_path / "sun397/SUN397", ["a/abbey/x.jpg", "a/apartment_building/outdoor/y.jpg"])
    assert list(called(load_dataset("sun397", root=tmp_path)).values()) == [
        "abbey",
        "outdoor apartment building",
    ]
    put(tmp_path / "ucf101/ucfTrainTestlist/classInd.txt", "1 ApplyEyeMakeup\n37 HandstandPushups\n")
    videos = "ApplyEyeMakeup/v_ApplyEyeMakeup_g01_c01.avi\nHandstandPushups/v_HandStandPushups_g01_c02.avi\n"
    put(tmp_path / "ucf101/ucfTrainTestlist/testlist01.txt", videos)
    frames = [
        "Apply_Eye_Makeup/v_ApplyEyeMakeup_g01_c01.jpg",
        "Handstand_Pushups/v_HandStandPushups_g01_c02.jpg",
    ]
    folder_of(tmp_path / "ucf101/UCF-101-midframes", frames)
    assert called(load_dataset("ucf101", root=tmp_path)) == dict(
        zip(frames, ["Apply Eye Makeup", "Handstand Pushups"], strict=True)
    )


@pytest.mark.parametrize("where", ["imagenet-adversarial/imagenet-a", "imagenet-a", "ImageNet-A"])
def test_subset_of_imagenet_counts_its_own_folders(tmp_path: Path, where: str) -> None:
    wnids = sorted(imagenet_names())[::5]
    base = folder_of(tmp_path / where, [f"{wnid}/x.jpg" for wnid in wnids])
    put(base / "README.txt")
    data = load_dataset("imagenet-a", root=tmp_path)
    assert data.labels == list(range(200))
    assert called(data) == {f"{wnid}/x.jpg": imagenet_names()[wnid] for wnid in wnids}
    (base / wnids[0] / "x.jpg").unlink()
    (base / wnids[0]).rmdir()
    with pytest.raises(DataError, match="199 class folders where 200"):
        load_dataset("imagenet-a", root=tmp_path)


@pytest.mark.parametrize("where", ["imagenet-sketch/images", "ImageNet-Sketch", "imagenet-sketch/sketch"])
def test_sketch_keeps_the_labels_of_imagenet(tmp_path: Path, where: str) -> None:
    folder_of(tmp_path / where, ["n15075141/x.jpg", "n01443537/x.jpg"])
    assert load_dataset("imagenet_sketch", root=tmp_path).labels == [1, 999]


def test_imagenets_val_and_train(tmp_path: Path) -> None:
    folder_of(tmp_path / "imagenet/images", ["val/n01443537/x.jpg", "train/n01440764/x.jpg"])
    assert load_dataset("imagenet", root=tmp_path).labels == [1]
    assert load_dataset("imagenet", root=tmp_path, split="train").labels == [0]
    folder_of(tmp_path / "b/imagenet/val", ["ILSVRC2012_val_00000001.JPEG"])
    with pytest.raises(DataError, match="outside any class folder"):
        load_dataset("imagenet", root=tmp_path / "b")
    with pytest.raises(DataError, match="test split only"):
        load_dataset("imagenet_r", root=tmp_path, split="train")


V2 = "imagenetv2/imagenetv2-matched-frequency-format-val"


def test_v2_labels_are_numbers_not_positions(tmp_path: Path) -> None:
    folder_of(tmp_path / V2, [f"{i}/x.jpeg" for i in range(1000)])
    data = load_dataset("imagenetv2", root=tmp_path)
    assert {s.path: s.label for s in data.samples} == {f"{i}/x.jpeg": i for i in range(1000)}
    assert data.labels == list(range(1000))
    as_text = sorted(str(i) for i in range(1000))
    assert sum(as_text.index(str(label)) != label for label in range(1000)) > 900, "the trap is a real one"


def test_v2_traps(tmp_path: Path) -> None:
    folder_of(tmp_path / "padded" / V2, [f"{i:03d}/x.jpeg" for i in range(1000)])
    assert load_dataset("imagenetv2", root=tmp_path / "padded").labels == list(range(1000))
    texts = [f.text for f in check_dataset("imagenetv2", tmp_path / "padded").findings]
    assert any("leading zeros" in text for text in texts)
    folder_of(tmp_path / "from1" / V2, [f"{i}/x.jpeg" for i in range(1, 1001)])
    with pytest.raises(DataError, match="count from 1 to 1000"):
        load_dataset("imagenetv2", root=tmp_path / "from1")
    folder_of(tmp_path / "twice" / V2, ["7/x.jpeg", "007/x.jpeg"])
    with pytest.raises(DataError, match="the same number: 7"):
        load_dataset("imagenetv2", root=tmp_path / "twice")
    folder_of(tmp_path / "wnids" / V2, ["n01440764/x.jpeg"])
    with pytest.raises(DataError, match="expected are the numbers 0 to 999"):
        load_dataset("imagenetv2", root=tmp_path / "wnids")
