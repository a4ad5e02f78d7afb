"""A QR code (ISO/IEC 18004) in the terminal: bytes, error correction level L, versions 1 to 10."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from taps.errors import SettingsError

Grid = list[list[bool]]
BLOCKS = {  # version → codewords for error correction in a block, data codewords of each block
    1: (7, (19,)), 2: (10, (34,)), 3: (15, (55,)), 4: (20, (80,)), 5: (26, (108,)),
    6: (18, (68,) * 2), 7: (20, (78,) * 2), 8: (24, (97,) * 2), 9: (30, (116,) * 2),
    10: (18, (68, 68, 69, 69)),
}  # fmt: skip
MIDDLES = {1: (), 2: (6, 18), 3: (6, 22), 4: (6, 26), 5: (6, 30), 6: (6, 34), 7: (6, 22, 38), 8: (6, 24, 42),
           9: (6, 26, 46), 10: (6, 28, 50)}  # fmt: skip
"""Where alignment patterns are centred, in both directions."""
MASKS: tuple[Callable[[int, int], bool], ...] = (
    lambda y, x: (y + x) % 2 == 0,
    lambda y, x: y % 2 == 0,
    lambda y, x: x % 3 == 0,
    lambda y, x: (y + x) % 3 == 0,
    lambda y, x: (y // 2 + x // 3) % 2 == 0,
    lambda y, x: y * x % 2 + y * x % 3 == 0,
    lambda y, x: (y * x % 2 + y * x % 3) % 2 == 0,
    lambda y, x: ((y + x) % 2 + y * x % 3) % 2 == 0,
)
QUIET = 4  # light modules around the code
LEVEL = 0b01  # L


def qr_code(text: str) -> Grid:
    """The modules of a code that holds a text, dark ones true; without the quiet zone."""
    data = text.encode()
    fitting = [version for version in BLOCKS if len(data) + (2 if version < 10 else 3) <= room(version)]
    if not fitting:
        raise SettingsError(f"A QR code of 10 versions holds {room(10) - 3} bytes, not {len(data)}.")
    version = fitting[0]
    size = 17 + 4 * version
    grid = [[False] * size for _ in range(size)]
    fixed = _patterns(grid, version)
    bits = (word >> shift & 1 == 1 for word in _codewords(data, version) for shift in range(7, -1, -1))
    free = [place for place in _path(size) if place not in fixed]
    for (y, x), bit in zip(free, bits, strict=False):  # some modules are left over
        grid[y][x] = bit
    made = [_masked(grid, free, mask) for mask in range(8)]
    return min(made, key=penalty)


def room(version: int) -> int:
    """Bytes of data that a version has, those that say how much it is included."""
    return sum(BLOCKS[version][1])


def half_blocks(grid: Grid) -> str:
    """The code in characters, two modules each, for dark text on a light ground."""
    wide = len(grid) + 2 * QUIET
    rows = [[False] * wide] * QUIET
    rows = [*rows, *([False] * QUIET + row + [False] * QUIET for row in grid), *rows, [False] * wide]
    pairs = zip(rows[::2], rows[1::2], strict=False)
    return "\n".join("".join(" ▄▀█"[2 * a + b] for a, b in zip(*pair, strict=True)) for pair in pairs)


def _path(size: int) -> Iterator[tuple[int, int]]:
    """Places in the order in which data fill them: two columns at a time, up and down, from the right."""
    for k, right in enumerate([*range(size - 1, 6, -2), *range(5, 0, -2)]):
        for y in range(size) if k % 2 else range(size - 1, -1, -1):
            yield from ((y, right), (y, right - 1))


def _format_places(size: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Both places of each bit that says level and mask, the lowest bit first."""
    first = [*((k, 8) for k in (0, 1, 2, 3, 4, 5, 7, 8)), *((8, k) for k in (7, 5, 4, 3, 2, 1, 0))]
    second = [*((8, size - 1 - k) for k in range(8)), *((size - 7 + k, 8) for k in range(7))]
    return list(zip(first, second, strict=True))


def _check(value: int, divisor: int, bits: int) -> int:
    """The remainder of a value, shifted by so many bits, in polynomials over GF(2)."""
    left = value << bits
    while left.bit_length() > bits:
        left ^= divisor << (left.bit_length() - bits - 1)
    return left


def _masked(grid: Grid, free: list[tuple[int, int]], mask: int) -> Grid:
    """A copy with a mask over the data, and the format that says which."""
    made = [row[:] for row in grid]
    for y, x in free:
        made[y][x] ^= MASKS[mask](y, x)
    told = LEVEL << 3 | mask
    told = (told << 10 | _check(told, 0b10100110111, 10)) ^ 0b101010000010010
    for k, pair in enumerate(_format_places(len(grid))):
        for y, x in pair:
            made[y][x] = told >> k & 1 == 1
    return made


def penalty(grid: Grid) -> int:
    """How hard a code is to read: long runs, blocks, what looks like a corner, too much of one colour."""
    lines = ["".join(".#"[dark] for dark in row) for row in (*grid, *map(list, zip(*grid, strict=True)))]
    runs = sum(len(run.group()) - 2 for line in lines for run in re.finditer(r"\.{5,}|#{5,}", line))
    corners = sum(line.count("#.###.#....") + line.count("....#.###.#") for line in lines)
    size = len(grid)
    places = [(y, x) for y in range(size - 1) for x in range(size - 1)]
    blocks = sum(grid[y][x] == grid[y][x + 1] == grid[y + 1][x] == grid[y + 1][x + 1] for y, x in places)
    share = sum(map(sum, grid)) / size**2
    return runs + 3 * blocks + 40 * corners + 10 * int(20 * abs(share - 0.5))


def _codewords(data: bytes, version: int) -> list[int]:
    """Data and error correction, block by block interleaved."""
    length = 8 if version < 10 else 16
    bits = f"0100{len(data):0{length}b}" + "".join(f"{byte:08b}" for byte in data)
    bits += "0" * min(4, 8 * room(version) - len(bits))
    bits += "0" * (-len(bits) % 8)
    words = [int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)]
    words += [(0xEC, 0x11)[k % 2] for k in range(room(version) - len(words))]
    correction, sizes = BLOCKS[version]
    blocks, at = [], 0
    for size in sizes:
        blocks.append(words[at : at + size])
        at += size
    checks = [_remainder(block, correction) for block in blocks]
    return [*_interleaved(blocks), *_interleaved(checks)]


def _interleaved(blocks: list[list[int]]) -> Iterator[int]:
    for k in range(max(map(len, blocks))):
        yield from (block[k] for block in blocks if k < len(block))


def _times(a: int, b: int) -> int:
    """A product in GF(256), modulo x⁸ + x⁴ + x³ + x² + 1."""
    product = 0
    for shift in range(7, -1, -1):
        product = (product << 1) ^ (0x11D if product & 0x80 else 0)
        product ^= a if b >> shift & 1 else 0
    return product


def _remainder(words: list[int], count: int) -> list[int]:
    """Of the words, as a polynomial, divided by Π (x − 2ⁱ), i < count: Reed and Solomon's checks."""
    divisor, root = [1], 1
    for _ in range(count):
        longer = [*divisor, 0]
        for k, each in enumerate(divisor):
            longer[k + 1] ^= _times(each, root)
        divisor, root = longer, _times(root, 2)
    left = [*words, *[0] * count]
    for at in range(len(words)):
        factor = left[at]
        for k, each in enumerate(divisor):
            left[at + k] ^= _times(each, factor)
    return left[-count:]


def _patterns(grid: Grid, version: int) -> set[tuple[int, int]]:
    """Draw what is the same in all codes of a version; its places, and those of the format."""
    size, fixed = len(grid), set()

    def put(y: int, x: int, dark: bool) -> None:
        if 0 <= y < size and 0 <= x < size:
            grid[y][x] = dark
            fixed.add((y, x))

    for k in range(size):
        put(6, k, k % 2 == 0)
        put(k, 6, k % 2 == 0)
    for y, x in ((3, 3), (3, size - 4), (size - 4, 3)):
        for a in range(-4, 5):
            for b in range(-4, 5):
                put(y + a, x + b, max(abs(a), abs(b)) not in (2, 4))
    for y in MIDDLES[version]:
        for x in MIDDLES[version]:
            if (y, x) not in ((6, 6), (6, size - 7), (size - 7, 6)):
                for a in range(-2, 3):
                    for b in range(-2, 3):
                        put(y + a, x + b, max(abs(a), abs(b)) != 1)
    for place in (place for pair in _format_places(size) for place in pair):
        put(*place, False)
    put(size - 8, 8, True)
    if version >= 7:
        told = version << 12 | _check(version, 0b1111100100101, 12)
        for k in range(18):
            put(k // 3, size - 11 + k % 3, told >> k & 1 == 1)
            put(size - 11 + k % 3, k // 3, told >> k & 1 == 1)
    return fixed
