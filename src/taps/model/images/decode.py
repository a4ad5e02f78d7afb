"""An image of any kind → 8-bit RGB pixels, or an `ImageError` that names it."""

from __future__ import annotations

import functools
import io
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from taps.errors import ImageError
from taps.types import PixelArray

MAX_PIXELS = 100_000_000
"""Larger images are refused from their header, before memory is allocated for them."""
LARGE_JPEG, MAX_JPEG = 24_000_000, 400_000_000
"""A JPEG of more pixels than the first is decoded at 1/2, 1/4 or 1/8; of more than the second, refused."""

# Formats with a signature. Left out on purpose: those that would run another program (EPS) and those
# so loosely marked that random bytes pass for them (TGA).
FORMATS = ("HEIF", "JPEG", "MPO", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO")

HEIF_MARKS = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1"))

ORIENTATION_TAG = 0x0112
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class _Quiet:
    """Silences Pillow's warnings while any thread decodes: sizes are checked here, odd metadata is harmless.

    Filters belong to the whole process, so threads that overlap must share one change of them.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                self.filters = warnings.catch_warnings()
                self.filters.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self.users += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.filters.__exit__(None, None, None)


_QUIET = _Quiet()


def load_image(
    source: object, *, name: str | None = None, at_least: int | None = None, copy: bool = True
) -> PixelArray:
    """Decode one image.

    Args:
        source: A path, the bytes of an image file, a Pillow image, a numpy array (H×W, H×W×3, H×W×4 or
            3×H×W; uint8, or float in 0..1) or a torch tensor (3×H×W or H×W; the same number types).
        name: Name of the image in an error; by default its path, or the kind of `source`.
        at_least: Let JPEG files be decoded at 1/2, 1/4 or 1/8 of their size as long as neither side falls
            below this. Several times faster for photographs, not exact; off by default.
        copy: False returns a numpy array of such pixels itself, not a copy.

    Returns:
        Pixels H×W×3, uint8, RGB, upright, transparency laid on white; with `copy` a fresh, writable array.

    Raises:
        ImageError: `source` is not an image, is damaged, empty, or over `MAX_PIXELS`.

    >>> load_image(np.zeros((2, 3), dtype=np.uint8)).shape
    (2, 3, 3)
    """
    if isinstance(source, str | os.PathLike):
        return _from_path(Path(source), name or os.fspath(source), at_least)
    if isinstance(source, bytes | bytearray | memoryview):
        return _from_file(io.BytesIO(source), name or "<bytes>", at_least)
    if isinstance(source, Image.Image):
        label = name or getattr(source, "filename", "") or "<image>"
        with _refusing_damage(label):
            return _from_pillow(source, label)
    if isinstance(source, np.ndarray):
        return _from_array(source, name or "<array>", channels_first=False, copy=copy)
    # Known by name, so that reading files does not wait for torch to be imported.
    if any(kind.__module__ == "torch" and kind.__name__ == "Tensor" for kind in type(source).__mro__):
        return _from_tensor(source, name or "<tensor>")
    raise ImageError(
        f"{name or '<object>'}: cannot make an image of {type(source).__name__}; "
        "give a path, bytes, a Pillow image, a numpy array or a torch tensor."
    )


def load_small(data: bytes, size: int, *, name: str | None = None) -> PixelArray:
    """Decode the bytes of an image no wider or higher than `size`, in little more memory than its pixels."""
    return _from_file(io.BytesIO(data), name or "<bytes>", None, size)


def _from_path(path: Path, name: str, at_least: int | None) -> PixelArray:
    try:
        if not path.is_file():  # Also keeps us from waiting for ever on a pipe.
            raise ImageError(f"{name}: no such image file; check the path.")
        with path.open("rb") as file:
            return _from_file(file, name, at_least)
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path.
        raise ImageError(f"{name}: cannot be read ({error}); check the file and its permissions.") from error


def _from_file(file: IO[bytes], name: str, at_least: int | None, at_most: int | None = None) -> PixelArray:
    start = file.read(12)
    if not start:
        raise ImageError(f"{name}: the file is empty; replace or remove it.")
    if start[4:12] in HEIF_MARKS and "HEIF" not in _known_formats():
        raise ImageError(f"{name}: HEIC pictures need one more package: pip install 'taps-vlm[heif]'.")
    file.seek(0)
    with _refusing_damage(name):
        image = Image.open(file, formats=_known_formats())
        _shrink_jpeg(image, at_least)
        _check_size(image.height, image.width, name)
        if image.format == "PNG":
            # Pillow decodes pixel data past its checksums; `verify` reads them, but spends the image.
            image.verify()
            file.seek(0)
            image = Image.open(file, formats=_known_formats())
        if at_most is not None:
            return _from_pillow(_small(image, at_most), name)
        return _from_pillow(image, name)


def _small(image: Image.Image, size: int) -> Image.Image:
    if image.mode in ("1", "P", "PA"):  # their values have no mean
        image = image.convert("RGBA" if image.mode == "PA" or "transparency" in image.info else "RGB")
    kind = Image.Resampling.NEAREST if image.mode.startswith("I") else Image.Resampling.BICUBIC
    image.thumbnail((size, size), kind)
    return image


def _shrink_jpeg(image: Image.Image, at_least: int | None) -> None:
    """Let a JPEG be decoded smaller: a large one always, others where `at_least` allows it."""
    pixels = image.height * image.width
    if image.format not in ("JPEG", "MPO") or pixels > MAX_JPEG:
        return
    if pixels > LARGE_JPEG:  # between a quarter of so many pixels and all of them are left
        scale = (LARGE_JPEG / pixels) ** 0.5
        image.draft(None, (max(1, int(image.width * scale / 2)), max(1, int(image.height * scale / 2))))
    if at_least is not None:
        image.draft(None, (at_least, at_least))


@functools.cache
def _known_formats() -> list[str]:
    """The formats that Pillow can read; phones' HEIC where `pillow-heif` is installed."""
    Image.init()
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    return [each for each in FORMATS if each in Image.OPEN]


@contextmanager
def _refusing_damage(name: str) -> Iterator[None]:
    """Turn every exception of a decoder into an `ImageError`: damaged files raise nearly anything."""
    try:
        with _QUIET:
            yield
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageError(_too_large(name)) from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{name}: not an image in a known format; replace or remove it.") from error
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise ImageError(f"{name}: the image is damaged ({reason}); replace or remove it.") from error


def _too_large(name: str) -> str:
    return f"{name}: more than {MAX_PIXELS // 1_000_000} megapixels; scale the image down first."


def _check_size(height: int, width: int, name: str) -> None:
    if height < 1 or width < 1:
        raise ImageError(f"{name}: the image has no pixels ({width}×{height}); replace or remove it.")
    if height * width > MAX_PIXELS:
        raise ImageError(_too_large(name))


def _from_pillow(image: Image.Image, name: str) -> PixelArray:
    _check_size(image.height, image.width, name)
    image.load()
    image = _upright(image)
    if image.mode == "F" or image.mode.startswith("I"):
        return _grey_to_pixels(np.asarray(image), name)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = _on_white(image)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _upright(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:  # Unreadable metadata says nothing against the pixels.
        return image
    return image.transpose(UPRIGHT[orientation]) if orientation in UPRIGHT else image


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode == "La":
        image = image.convert("LA")
    with_alpha = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", with_alpha.size, "white"), with_alpha)


def _grey_to_pixels(values: np.ndarray[Any, Any], name: str) -> PixelArray:
    """Scale deep grey images to 8 bits by their own range; Pillow would clip them at 255."""
    if not np.isfinite(values).all():
        raise ImageError(f"{name}: the image holds NaN or infinite values; repair or remove it.")
    low, high = values.min(), values.max()
    if low < 0:
        raise ImageError(f"{name}: the image holds negative values; rescale it to 8 bits first.")
    if np.issubdtype(values.dtype, np.floating):
        scale = 255.0 if high <= 1 else 1.0 if high <= 255 else 255 / 65535
        grey = np.rint(np.minimum(values * scale, 255)).astype(np.uint8)
    else:
        shift = 0 if high <= 0xFF else 8 if high <= 0xFFFF else 24
        grey = np.minimum(values >> shift, 255).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def _from_tensor(tensor: Any, name: str) -> PixelArray:
    try:
        tensor = tensor.detach().cpu()
        if tensor.is_floating_point():
            tensor = tensor.float()  # numpy knows no bfloat16
        array = tensor.numpy()
    except (TypeError, RuntimeError) as error:  # sparse, quantised, or without numbers
        kind = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
        raise ImageError(
            f"{name}: a tensor of this kind ({kind}) holds no pixels; give a dense one."
        ) from error
    return _from_array(array, name, channels_first=True)


def _from_array(
    array: np.ndarray[Any, Any], name: str, *, channels_first: bool, copy: bool = True
) -> PixelArray:
    array = _channels_last(array, name, channels_first)
    _check_size(array.shape[0], array.shape[1], name)
    array = _to_bytes(array, name)
    if array.shape[2] == 4:
        return np.array(_on_white(Image.fromarray(np.ascontiguousarray(array), "RGBA")).convert("RGB"))
    if array.shape[2] == 3 and not copy:
        return np.ascontiguousarray(array)
    return np.array(np.broadcast_to(array, (*array.shape[:2], 3)), order="C")


def _channels_last(array: np.ndarray[Any, Any], name: str, channels_first: bool) -> np.ndarray[Any, Any]:
    if array.ndim == 2:
        return array[:, :, None]
    if array.ndim == 3:
        first, last = array.shape[0] in (1, 3, 4), array.shape[2] in (1, 3, 4)
        if first and (channels_first or not last):
            return array.transpose(1, 2, 0)
        if last:
            return array
    raise ImageError(f"{name}: shape {array.shape} is not an image; give H×W, H×W×3, H×W×4 or 3×H×W.")


def _to_bytes(array: np.ndarray[Any, Any], name: str) -> PixelArray:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if not np.issubdtype(array.dtype, np.floating):
        raise ImageError(f"{name}: {array.dtype} values are not pixels; give uint8, or float in 0..1.")
    if not np.isfinite(array).all():
        raise ImageError(f"{name}: the image holds NaN or infinite values; repair or remove it.")
    if array.min() < -1e-3 or array.max() > 1 + 1e-3:  # Rounding may step over the edge a little.
        raise ImageError(f"{name}: float pixels must lie in 0..1; divide by 255, or give uint8.")
    scaled: PixelArray = np.rint(np.clip(array, 0, 1) * 255).astype(np.uint8)
    return scaled
