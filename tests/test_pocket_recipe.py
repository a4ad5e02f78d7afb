"""What the recipe of the embedded model does to pictures, against pictures whose answer is known."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

RECIPE = Path(__file__).parent.parent / "recipes" / "pocket"
CANVAS = 96


@pytest.fixture(scope="module")
def recipe() -> Iterator[Callable[[str], ModuleType]]:
    """Modules found as their own scripts find them, and forgotten afterwards: names there are common."""
    before = set(sys.modules)
    sys.path.insert(0, str(RECIPE))
    yield importlib.import_module
    sys.path.remove(str(RECIPE))
    for name in set(sys.modules) - before:
        if str(RECIPE) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def isolate(recipe: Callable[[str], ModuleType]) -> ModuleType:
    return recipe("isolate")


@pytest.fixture(scope="module")
def drawings(recipe: Callable[[str], ModuleType]) -> ModuleType:
    return recipe("drawings")


def disc(cx: float, cy: float, radius: float, height: int, width: int) -> torch.Tensor:
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    return ((x - cx) ** 2 + (y - cy) ** 2 < radius**2).float()


def test_an_object_and_its_mask_stay_together_and_whole(isolate: ModuleType) -> None:
    """The picture is the mask itself, in three shapes: whatever view is drawn, both must agree."""
    torch.manual_seed(0)
    sizes = torch.tensor([[64, 64], [96, 80], [70, 96]] * 8)
    canvas, masks = torch.zeros(24, 3, CANVAS, CANVAS), torch.zeros(24, 1, isolate.SIDE, isolate.SIDE)
    area = torch.zeros(24)
    for i, (h, w) in enumerate(sizes.tolist()):
        there = disc(0.6 * w, 0.45 * h, 0.2 * min(h, w), h, w)
        canvas[i, :, :h, :w] = there
        masks[i] = torch.nn.functional.interpolate(there[None, None], size=isolate.SIDE, mode="area")[0]
        area[i] = there.sum()
    theta = isolate.object_transforms(masks, sizes, CANVAS)
    seen = isolate.sample(canvas, theta, 128)[:, :1]
    mask = isolate.sample_masks(masks, theta, sizes, CANVAS, 128)
    assert (seen - mask).abs().mean() < 0.02
    # Little of the object is cut off: its pixels in the view, at the picture's own scale.
    scale = torch.linalg.det(theta[:, :, :2]) * CANVAS**2 / 128**2
    kept = seen.sum((1, 2, 3)) * scale / area
    assert kept.min() > 0.85
    assert kept.max() < 1.05


def test_crests_are_one_pixel_wide_and_where_the_border_is(drawings: ModuleType) -> None:
    picture = torch.zeros(1, 1, 64, 64)
    picture[..., 20:] = 1
    strength, crest = drawings.ridges(drawings.blur(picture, 2.0))
    lines = (crest > 0.05)[0, 0, 5:-5]
    assert (lines.sum(1) <= 2).all()
    assert lines[:, 19:21].any(1).all()
    assert not lines[:, :17].any()
    assert ((strength > 0.05)[0, 0, 5:-5].sum(1) > 4).all()  # without crests the line would be broad


def test_drawings_are_lines_on_white_around_the_object(drawings: ModuleType) -> None:
    torch.manual_seed(0)
    there = disc(64, 64, 40, 128, 128).expand(6, 1, 128, 128)
    drawn = drawings.line_drawing(torch.rand(6, 3, 1, 1) * there, there)
    assert drawn.shape == (6, 3, 64, 64)
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert (drawn.amin((1, 2, 3)) < 0.7).all()  # there are lines,
    ring = disc(32, 32, 26, 64, 64) - disc(32, 32, 14, 64, 64)
    assert (drawn * (1 - ring) + ring).min() > 0.9  # none far from the outline
    assert (drawn.mean((1, 2, 3)) > 0.7).all()


def test_objects_are_told_from_their_background_by_colour(isolate: ModuleType) -> None:
    there = disc(32, 32, 18, 64, 64)[None, None]
    red, green = torch.tensor([0.8, 0.2, 0.1]), torch.tensor([0.2, 0.6, 0.3])
    picture = there * red.view(1, 3, 1, 1) + (1 - there) * green.view(1, 3, 1, 1)
    torch.manual_seed(0)
    picture = (picture + 0.03 * torch.randn_like(picture)).clamp(0, 1)
    rough = disc(36, 30, 18, 64, 64)[None, None] * 0.8 + 0.1
    odds = isolate.by_colour(picture, rough)
    assert ((odds > 0) == (there > 0)).float().mean() > 0.99


def test_a_guided_filter_with_a_flat_guide_is_a_box_filter(isolate: ModuleType) -> None:
    x = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    flat = torch.full((2, 3, 32, 32), 0.4)
    assert torch.allclose(
        isolate.guided(flat, x, 3, 1e-3), isolate.box_mean(isolate.box_mean(x, 3), 3), atol=1e-5
    )


def test_masks_of_nothing_and_of_everything_are_left_out(isolate: ModuleType) -> None:
    masks = torch.stack([torch.zeros(1, 64, 64), torch.ones(1, 64, 64), torch.full((1, 64, 64), 0.5)])
    masks = torch.cat([masks, disc(32, 32, 16, 64, 64)[None, None]])
    assert isolate.good(masks).tolist() == [False, False, False, True]


def test_what_captions_name_is_found_among_the_teachers_features(isolate: ModuleType) -> None:
    """Two planted directions: each image's direction must point along those that it names, and no other."""
    make = torch.Generator().manual_seed(0)
    planted = torch.linalg.qr(torch.randn(40, 2, generator=make)).Q.t()
    named = (torch.rand(3000, 2, generator=make) < 0.4).float()
    features = 3 * named @ planted + torch.randn(3000, 40, generator=make)
    found = isolate.caption_directions(features, named)
    both = named.sum(1) == 2
    for column in (0, 1):
        only = (named[:, column] == 1) & ~both
        along = torch.nn.functional.cosine_similarity(found[only], planted[column : column + 1])
        across = torch.nn.functional.cosine_similarity(found[only], planted[1 - column : 2 - column])
        assert along.min() > 0.95
        assert across.abs().max() < 0.2
    assert found[named.sum(1) == 0].abs().max() == 0


def test_a_redrawn_object_and_its_mask_stay_together(drawings: ModuleType) -> None:
    torch.manual_seed(0)
    there = disc(64, 64, 36, 128, 128).expand(32, 1, 128, 128)
    x, mask = drawings.redrawn(there.expand(-1, 3, -1, -1), there)
    assert ((x[:, :1] > 0.5) == (mask > 0.5)).float().mean() > 0.97
    area = (mask > 0.5).float().mean((1, 2, 3)) / there[0].mean()
    assert area.min() > 0.4
    assert area.max() < 2.5
    assert area.std() > 0.1  # proportions do change


def test_few_tones_are_three_colours_at_the_means_of_their_parts(drawings: ModuleType) -> None:
    make = torch.Generator().manual_seed(0)
    left = torch.arange(128).view(1, 1, 1, 128) < 64
    picture = torch.where(left, torch.tensor(0.2), torch.tensor(0.8)).expand(1, 3, 128, 128)
    picture = picture + 0.02 * torch.randn(1, 3, 128, 128, generator=make)
    torch.manual_seed(0)
    flat = drawings.few_tones(picture, torch.ones(1, 1, 128, 128))
    assert len(flat.flatten(2)[0].t().unique(dim=0)) <= 3
    assert flat[0, :, :, :50].mean() == pytest.approx(0.2, abs=0.03)
    assert flat[0, :, :, 78:].mean() == pytest.approx(0.8, abs=0.03)


def test_clip_art_lies_on_a_page_and_differs_from_the_photo(drawings: ModuleType) -> None:
    torch.manual_seed(0)
    there = disc(64, 64, 36, 128, 128).expand(24, 1, 128, 128)
    photo = torch.rand(24, 3, 128, 128)
    drawn = drawings.clip_art(photo, there)
    assert drawn.shape == (24, 3, 64, 64)
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    corner = drawn[..., :3, :3]  # far from the object: one colour, but for the fading of a scene
    assert corner.flatten(2).std(2).max() < 0.06
    # Noise on the object, the finest of textures, is gone from all but its outline.
    middle = drawn[..., 24:40, 24:40]
    rough = (middle - torch.nn.functional.avg_pool2d(middle, 3, 1, 1)).abs()[..., 1:-1, 1:-1].mean((1, 2, 3))
    before = torch.nn.functional.avg_pool2d(photo, 2)[..., 24:40, 24:40]
    noise = (before - torch.nn.functional.avg_pool2d(before, 3, 1, 1)).abs()[..., 1:-1, 1:-1].mean()
    assert rough.median() < 0.8 * noise
