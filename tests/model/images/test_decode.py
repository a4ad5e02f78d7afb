"""Every kind of image a folder may hold: decoded rightly, or refused by name."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import taps.model.images.decode
from taps.errors import ImageError
from taps.model.images.decode import load_image

RNG = np.random.default_rng(0)
SMOOTH = np.array(
    Image.fromarray(RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize(
        (80, 60), Image.Resampling.BICUBIC
    )
)
NOISE = RNG.integers(0, 256, (60, 80, 3), dtype=np.uint8)


def encoded(image: Image.Image | np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def hollow_png(width: int, height: int) -> bytes:
    """A sound PNG file of any size that holds a single pixel's data."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    data = png_chunk(b"IDAT", zlib.compress(bytes(4)))
    return b"\x89PNG\r\n\x1a\n" + header + data + png_chunk(b"IEND", b"")


def flip_byte(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


JPEG, PNG = encoded(NOISE, "JPEG"), encoded(NOISE, "PNG")

# ---- right ----


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_files_give_their_pixels(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"image.{kind.lower()}"
    path.write_bytes(encoded(NOISE, kind))
    for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes())):
        pixels = load_image(source)
        assert pixels.dtype == np.uint8
        assert pixels.flags.writeable
        np.testing.assert_array_equal(pixels, NOISE)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF"])
def test_lossy_files_come_close(kind: str) -> None:
    off = load_image(encoded(SMOOTH, kind)).astype(int) - SMOOTH
    assert np.abs(off).mean() < 12


@pytest.mark.parametrize("kind", ["JPEG", "TIFF", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_undone(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    # What a viewer must do with the stored pixels, in numpy's words, from the meaning of the tag.
    shown = {
        1: SMOOTH,
        2: SMOOTH[:, ::-1],
        3: SMOOTH[::-1, ::-1],
        4: SMOOTH[::-1],
        5: SMOOTH.transpose(1, 0, 2),
        6: np.rot90(SMOOTH, -1),
        7: SMOOTH.transpose(1, 0, 2)[::-1, ::-1],
        8: np.rot90(SMOOTH, 1),
    }[orientation]
    pixels = load_image(encoded(SMOOTH, kind, exif=exif))
    assert pixels.shape == shown.shape
    assert np.abs(pixels.astype(int) - shown).mean() < 12


def test_cmyk_is_converted() -> None:
    for kind in ("JPEG", "TIFF"):
        pixels = load_image(encoded(Image.fromarray(SMOOTH).convert("CMYK"), kind))
        assert np.abs(pixels.astype(int) - SMOOTH).mean() < 12


def test_palette_keeps_its_colours() -> None:
    image = Image.fromarray(SMOOTH).quantize(16)
    np.testing.assert_array_equal(load_image(encoded(image)), np.array(image.convert("RGB")))


def test_transparency_is_laid_on_white() -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putdata([0, 1])
    red_and_white = [[[255, 0, 0], [255, 255, 255]]]
    assert load_image(encoded(palette, transparency=1)).tolist() == red_and_white
    assert load_image(encoded(palette, transparency=b"\xff\x00")).tolist() == red_and_white
    assert load_image(encoded(palette, "GIF", transparency=1)).tolist() == red_and_white

    rgba = np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [200, 100, 0, 51]]], dtype=np.uint8)
    blended = [[[200, 100, 0], [255, 255, 255], [244, 224, 204]]]
    assert load_image(encoded(rgba)).tolist() == blended
    assert load_image(rgba).tolist() == blended
    assert load_image(Image.fromarray(rgba)).tolist() == blended
    assert load_image(Image.fromarray(rgba).convert("RGBa"))[0, 1].tolist() == [255, 255, 255]

    grey = Image.fromarray(np.array([[[10, 255], [10, 0]]], dtype=np.uint8), "LA")
    assert load_image(encoded(grey))[0].tolist() == [[10] * 3, [255] * 3]
    assert load_image(grey.convert("La"))[0].tolist() == [[10] * 3, [255] * 3]

    keyed = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], dtype=np.uint8))
    assert load_image(encoded(keyed, transparency=(4, 5, 6)))[0].tolist() == [[1, 2, 3], [255] * 3]


def test_one_bit() -> None:
    bits = NOISE[:, :, 0] > 127
    for kind in ("PNG", "TIFF", "BMP"):
        np.testing.assert_array_equal(load_image(encoded(Image.fromarray(bits), kind))[:, :, 1], bits * 255)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_clipped(kind: str) -> None:
    deep = np.arange(60 * 80, dtype=np.uint16).reshape(60, 80) * 13
    np.testing.assert_array_equal(load_image(encoded(deep, kind))[:, :, 2], deep >> 8)
    shallow = deep & 0xFF
    np.testing.assert_array_equal(load_image(encoded(shallow, kind))[:, :, 0], shallow)
    as_int = Image.fromarray(deep.astype(np.int32))
    np.testing.assert_array_equal(load_image(as_int)[:, :, 0], deep >> 8)


def test_thirty_two_bits_are_scaled() -> None:
    deep = np.array([[0, 1 << 24, (1 << 31) - 1]], dtype=np.int32)
    assert load_image(encoded(deep, "TIFF"))[0, :, 0].tolist() == [0, 1, 127]


@pytest.mark.parametrize(("top", "scale"), [(1.0, 255.0), (255.0, 1.0), (65535.0, 255 / 65535)])
def test_float_tiff(top: float, scale: float) -> None:
    values = np.linspace(0, top, 48, dtype=np.float32).reshape(6, 8)
    np.testing.assert_array_equal(load_image(encoded(values, "TIFF"))[:, :, 0], np.rint(values * scale))


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_animations_give_their_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (9, 7), colour) for colour in ("red", "lime", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    np.testing.assert_array_equal(load_image(data), np.array(frames[0]))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
def test_one_pixel(kind: str) -> None:
    assert load_image(encoded(Image.new("RGB", (1, 1), "white"), kind)).tolist() == [[[255, 255, 255]]]


def test_arrays_and_tensors() -> None:
    as_float = NOISE.astype(np.float32) / 255
    for source in (
        NOISE,
        NOISE.transpose(2, 0, 1),
        NOISE[:, :, ::-1][:, :, ::-1],
        as_float,
        as_float.astype(np.float64),
        as_float.transpose(2, 0, 1),
        torch.from_numpy(NOISE).permute(2, 0, 1),
        torch.from_numpy(as_float).permute(2, 0, 1).requires_grad_(),
        torch.from_numpy(NOISE),
    ):
        pixels = load_image(source)
        np.testing.assert_array_equal(pixels, NOISE)
        assert not np.shares_memory(pixels, NOISE)
        np.testing.assert_array_equal(load_image(source, copy=False), NOISE)
    assert load_image(NOISE, copy=False) is NOISE
    grey = NOISE[:, :, 0]
    for source in (grey, grey[:, :, None], torch.from_numpy(grey), grey[None]):
        np.testing.assert_array_equal(load_image(source), np.stack([grey] * 3, axis=2))
    assert load_image(np.array([[True, False]]))[0, :, 0].tolist() == [255, 0]
    assert load_image(torch.ones(3, 2, 2, dtype=torch.bfloat16)).min() == 255


def test_ambiguous_shapes_follow_the_custom_of_their_library() -> None:
    cube = RNG.integers(0, 256, (3, 5, 3), dtype=np.uint8)
    np.testing.assert_array_equal(load_image(cube), cube)
    np.testing.assert_array_equal(load_image(torch.from_numpy(cube)), cube.transpose(1, 2, 0))


def test_smaller_jpegs_only_when_asked() -> None:
    data = encoded(np.repeat(np.repeat(SMOOTH, 8, 0), 8, 1), "JPEG")
    assert load_image(data).shape == (480, 640, 3)
    assert load_image(data, at_least=100).shape == (120, 160, 3)
    assert load_image(data, at_least=600).shape == (480, 640, 3)


def test_large_jpegs_are_decoded_smaller_and_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(np.repeat(np.repeat(SMOOTH, 8, 0), 8, 1), "JPEG")  # 480 × 640
    whole = load_image(data).astype(float)
    monkeypatch.setattr(taps.model.images.decode, "LARGE_JPEG", 480 * 640 - 1)
    monkeypatch.setattr(taps.model.images.decode, "MAX_PIXELS", 480 * 640 - 1)
    half = load_image(data)
    assert half.shape == (240, 320, 3)
    blocks = whole.reshape(240, 2, 320, 2, 3).mean(axis=(1, 3))
    assert np.abs(half - blocks).mean() < 2.0
    monkeypatch.setattr(taps.model.images.decode, "MAX_JPEG", 480 * 640 - 1)
    with pytest.raises(ImageError, match="megapixels"):
        load_image(data)


def test_heic_is_read_where_its_package_is_there_and_named_where_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heif = pytest.importorskip("pillow_heif")
    file = io.BytesIO()
    heif.from_pillow(Image.fromarray(SMOOTH)).save(file, quality=90)
    assert np.abs(load_image(file.getvalue()).astype(float) - SMOOTH).mean() < 8.0
    monkeypatch.setattr(taps.model.images.decode, "_known_formats", lambda: ["JPEG"])
    with pytest.raises(ImageError, match=r"pip install 'taps-vlm\[heif\]'"):
        load_image(file.getvalue())


def test_the_limit_is_on_pixels_not_on_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert taps.model.images.decode.MAX_PIXELS == 100_000_000
    monkeypatch.setattr(taps.model.images.decode, "MAX_PIXELS", 60 * 80)
    for source in (NOISE, PNG, Image.fromarray(NOISE)):
        assert load_image(source).shape == NOISE.shape
    monkeypatch.setattr(taps.model.images.decode, "MAX_PIXELS", 60 * 80 - 1)
    for source in (NOISE, PNG, Image.fromarray(NOISE)):
        with pytest.raises(ImageError, match="megapixels"):
            load_image(source)


# ---- wrong ----

BROKEN: dict[str, bytes] = {
    "zero bytes": b"",
    "one byte": b"\xff",
    "zeros": bytes(1000),
    "text": b"this is not an image\n" * 20,
    "html": b"<!DOCTYPE html><html><body>404</body></html>",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>',
    "json": b'{"a": 1}',
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n",
    "pdf": b"%PDF-1.4\n" + bytes(100),
    "zip": b"PK\x03\x04" + bytes(100),
    "jpeg signature": JPEG[:3],
    "jpeg header": JPEG[:20],
    "png signature": PNG[:8],
    "png without rows": hollow_png(80, 60),
    "png without width": hollow_png(0, 60),
    "png without height": hollow_png(80, 0),
    "png over 100 megapixels": hollow_png(10_000, 10_001),
    "png over 190 megapixels": hollow_png(20_000, 10_000),
    "png bomb": hollow_png(100_000, 100_000),
    "png signature damaged": flip_byte(PNG, 1),
    "png header checksum": flip_byte(PNG, 30),
    "png width damaged": flip_byte(PNG, 18),
    "png pixel data": flip_byte(PNG, len(PNG) // 2),
    "png pixel checksum": flip_byte(PNG, len(PNG) - 14),
    "png end cut": PNG[:-12],
    "float with nan": encoded(np.array([[0, np.nan]], dtype=np.float32), "TIFF"),
    "float with inf": encoded(np.array([[0, np.inf]], dtype=np.float32), "TIFF"),
    "float negative": encoded(np.array([[0, -1]], dtype=np.float32), "TIFF"),
    "jpeg between": JPEG[:200] + JPEG[-200:],
}
for each in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000"):
    whole = encoded(NOISE, each)
    for part in (10, 50, 90):
        BROKEN[f"{each} cut at {part} %"] = whole[: len(whole) * part // 100]
BROKEN["progressive JPEG cut"] = encoded(NOISE, "JPEG", progressive=True)[:-400]
BROKEN["CMYK JPEG cut"] = encoded(Image.fromarray(NOISE).convert("CMYK"), "JPEG")[:-400]
for seed in range(5):
    BROKEN[f"random bytes {seed}"] = np.random.default_rng(seed).bytes(2000)


def test_there_are_fifty_kinds_of_broken_files() -> None:
    assert len(BROKEN) >= 50


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(BROKEN[kind])
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with pytest.raises(ImageError) as by_path:
            load_image(path)
        with pytest.raises(ImageError) as by_bytes:
            load_image(BROKEN[kind])
    assert not heard
    assert str(by_path.value).startswith(str(path))
    assert str(by_bytes.value).startswith("<bytes>")
    assert str(by_path.value).endswith(".")
    assert "\n" not in str(by_path.value)


@pytest.mark.parametrize("kind", ["png over 100 megapixels", "png over 190 megapixels", "png bomb"])
def test_huge_files_are_told_apart(kind: str) -> None:
    with pytest.raises(ImageError, match="megapixels"):
        load_image(BROKEN[kind])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: np.zeros((0, 5, 3), dtype=np.uint8), "no pixels"),
        (lambda: np.zeros((5, 0), dtype=np.float32), "no pixels"),
        (lambda: np.zeros(5, dtype=np.uint8), "shape"),
        (lambda: np.zeros((5, 5, 2), dtype=np.uint8), "shape"),
        (lambda: np.zeros((1, 3, 5, 5), dtype=np.uint8), "shape"),
        (lambda: np.zeros((5, 5, 3), dtype=np.int64), "int64"),
        (lambda: np.zeros((5, 5, 3), dtype=np.complex64), "complex64"),
        (lambda: np.array([["a"]]), "not pixels"),
        (lambda: np.full((5, 5, 3), np.nan), "NaN"),
        (lambda: np.full((5, 5, 3), np.inf), "infinite"),
        (lambda: np.full((5, 5, 3), 200.0), "0..1"),
        (lambda: np.full((5, 5, 3), -0.5), "0..1"),
        (lambda: np.broadcast_to(np.uint8(0), (10_000, 10_001)), "megapixels"),
        (lambda: torch.full((3, 5, 5), torch.nan), "<tensor>"),
        (lambda: torch.zeros(3, 5, 5, dtype=torch.int32), "int32"),
        (lambda: torch.zeros(2, 3, 5, 5), "shape"),
        (lambda: Image.new("RGB", (0, 5)), "no pixels"),
        (lambda: None, "NoneType"),
        (lambda: 3, "int"),
        (lambda: [[0, 1]], "list"),
    ],
)
def test_bad_values_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ImageError, match=message):
        load_image(make())


def test_bad_paths_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.png", str(tmp_path / "nul\0.png")):
        with pytest.raises(ImageError):
            load_image(path)


def test_a_truncated_image_opened_by_the_user_is_refused() -> None:
    with Image.open(io.BytesIO(JPEG[: len(JPEG) // 2])) as image, pytest.raises(ImageError, match="damaged"):
        load_image(image)


def test_the_given_name_is_used() -> None:
    with pytest.raises(ImageError, match=r"^upload 7:"):
        load_image(b"", name="upload 7")


def test_unreadable_exif_does_not_refuse_the_pixels() -> None:
    data = encoded(SMOOTH, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + bytes(20))
    assert load_image(data).shape == SMOOTH.shape


def test_threads_leave_the_warning_filters_as_they_were() -> None:
    before = list(warnings.filters)
    sources = [*BROKEN.values(), JPEG, PNG] * 3

    def decode(data: bytes) -> bool:
        try:
            return load_image(data).shape == NOISE.shape
        except ImageError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(decode, sources)) == 6
    assert list(warnings.filters) == before


@settings(max_examples=60)
@given(
    st.sampled_from(["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_damage_anywhere_gives_pixels_or_an_image_error(kind: str, damage: list[tuple[float, int]]) -> None:
    data = bytearray(encoded(SMOOTH[:20, :24], kind))
    for place, value in damage:
        data[int(place * len(data))] = value
    try:
        pixels = load_image(bytes(data))
    except ImageError:
        return
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(
    "made",
    [
        lambda pixels: pixels.to_sparse(),
        lambda pixels: pixels.to("meta"),
        lambda pixels: torch.quantize_per_tensor(pixels, 0.1, 0, torch.quint8),
    ],
    ids=["sparse", "meta", "quantised"],
)
def test_tensors_that_hold_no_pixels_are_refused_in_a_sentence(
    made: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    with pytest.raises(ImageError, match="dense"):
        load_image(made(torch.rand(3, 8, 8)))
