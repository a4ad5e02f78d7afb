"""Sets of domains as they are downloaded: PACS, VLCS and Office-Home in DomainBed's layout."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from taps.data import load_dataset
from taps.data.orders import ordered

SETS = {
    "PACS": (["art_painting", "cartoon", "photo", "sketch"], ["dog", "elephant"], ["dog", "elephant"]),
    "VLCS": (["Caltech101", "LabelMe", "SUN09", "VOC2007"], ["bird", "person"], ["bird", "person"]),
    "OfficeHomeDataset_10072016": (
        ["Art", "Clipart", "Product", "Real World"],
        ["Alarm_Clock", "Desk_Lamp", "TV"],
        ["Alarm Clock", "Desk Lamp", "TV"],
    ),
}


def tree(folder: Path, domains: list[str], classes: list[str], images: int = 2) -> Path:
    pixels = np.zeros((4, 4, 3), np.uint8)
    for domain in domains:
        for name in classes:
            (folder / domain / name).mkdir(parents=True)
            for index in range(images):
                Image.fromarray(pixels).save(folder / domain / name / f"{index:05d}.jpg")
    return folder


@pytest.mark.parametrize("name", SETS)
def test_domains_classes_and_the_stream(tmp_path: Path, name: str) -> None:
    domains, folders, classes = SETS[name]
    place = tree(tmp_path / name, domains, folders)
    (place / "ImageInfo.csv").write_text("Image Path,Author\nArt/TV/00000.jpg,nobody\n")  # as Office-Home
    data = load_dataset(place)
    assert data.classes == tuple(classes)
    assert sorted({sample.domain for sample in data.samples}) == sorted(domains)
    order, phase = ordered(data, "by_domain", seed=3)
    met = [data.samples[place].domain for place in order]
    assert list(dict.fromkeys(met)) == sorted(domains)
    assert phase.tolist() == sorted(2 * len(classes) * list(range(4)))
    assert load_dataset(place / domains[3]).classes == tuple(classes)  # one domain alone
