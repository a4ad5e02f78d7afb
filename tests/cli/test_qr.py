"""QR codes, read by a reader of its own: format, mask, codewords, checks, text."""

from __future__ import annotations

import random
import string

import pytest

from taps.cli.qr import QUIET, half_blocks, qr_code
from taps.errors import SettingsError

# Of the standard's tables: the capacity of each version in bytes (level L), and its blocks.
CAPACITY = (17, 32, 53, 78, 106, 134, 154, 192, 230, 271)
WORDS = (26, 44, 70, 100, 134, 172, 196, 242, 292, 346)
SPLIT = ([19], [34], [55], [80], [108], [68] * 2, [78] * 2, [97] * 2, [116] * 2, [68, 68, 69, 69])
CENTRES = ([], [18], [22], [26], [30], [34], [22, 38], [24, 42], [26, 46], [28, 50])

POWERS = [1]
for _ in range(254):
    POWERS.append(POWERS[-1] << 1 ^ (0x11D if POWERS[-1] & 128 else 0))
LOG = {value: power for power, value in enumerate(POWERS)}


def syndrome(words: list[int], power: int) -> int:
    """The words, as a polynomial, at 2^power: 0 where they are without error."""
    found = 0
    for degree, word in enumerate(reversed(words)):
        found ^= POWERS[(LOG[word] + power * degree) % 255] if word else 0
    return found


def is_data(y: int, x: int, size: int, version: int) -> bool:
    corner = (y < 9 and (x < 9 or x >= size - 8)) or (y >= size - 8 and x < 9)
    told = version > 6 and min(y, x) < 6 and max(y, x) >= size - 11
    middles = [(a, b) for a in (6, *CENTRES[version - 1]) for b in (6, *CENTRES[version - 1])]
    away = {(6, 6), (6, size - 7), (size - 7, 6)}
    aligned = any(abs(y - a) < 3 and abs(x - b) < 3 for a, b in middles if (a, b) not in away)
    return not (corner or told or y == 6 or x == 6 or (version > 1 and aligned))


def flips(mask: int, i: int, j: int) -> bool:
    """The standard's table of masks."""
    product = i * j
    rules = [(i + j) % 2, i % 2, j % 3, (i + j) % 3, (i // 2 + j // 3) % 2, product % 2 + product % 3]
    rules += [(product % 2 + product % 3) % 2, ((i + j) % 2 + product % 3) % 2]
    return rules[mask] == 0


def read(grid: list[list[bool]]) -> tuple[int, str]:
    """Version and text of a code, every check made."""
    size = len(grid)
    version = (size - 17) // 4
    row = [grid[8][x] for x in (0, 1, 2, 3, 4, 5, 7, 8)] + [grid[y][8] for y in (7, 5, 4, 3, 2, 1, 0)]
    other = [grid[y][8] for y in range(size - 1, size - 8, -1)] + [grid[8][x] for x in range(size - 8, size)]
    assert row == other
    assert grid[size - 8][8]
    told = int("".join("01"[bit] for bit in row), 2) ^ 0b101010000010010
    rest = told
    for shift in range(4, -1, -1):
        if rest >> (10 + shift) & 1:
            rest ^= 0b10100110111 << shift
    assert rest == 0
    assert told >> 13 == 0b01
    bits = ""
    columns = [x for x in range(size - 1, -1, -1) if x != 6]
    for pair in range(len(columns) // 2):
        for step in range(size):
            y = size - 1 - step if pair % 2 == 0 else step
            for x in columns[2 * pair : 2 * pair + 2]:
                if is_data(y, x, size, version):
                    bits += "01"[grid[y][x] ^ flips(told >> 10 & 7, y, x)]
    words = [int(bits[8 * k : 8 * k + 8], 2) for k in range(WORDS[version - 1])]
    assert len(bits) - 8 * len(words) in (0, 7)
    sizes, data = SPLIT[version - 1], sum(SPLIT[version - 1])
    blocks: list[list[int]] = [[] for _ in sizes]
    left = iter(words[:data])
    for k in range(max(sizes)):
        for block, each in zip(blocks, sizes, strict=True):
            if k < each:
                block.append(next(left))
    for k, word in enumerate(words[data:]):
        blocks[k % len(blocks)].append(word)
    checks = (len(words) - data) // len(blocks)
    assert all(syndrome(block, power) == 0 for block in blocks for power in range(checks))
    plain = "".join(f"{w:08b}" for block, n in zip(blocks, sizes, strict=True) for w in block[:n])
    assert plain[:4] == "0100"
    head = 4 + (8 if version < 10 else 16)
    count = int(plain[4:head], 2)
    return version, bytes(int(plain[head + 8 * k : head + 8 * k + 8], 2) for k in range(count)).decode()


@pytest.mark.parametrize("version", range(1, 11))
def test_each_version_is_read_back_at_its_limits(version: int) -> None:
    letters = random.Random(version)
    least = CAPACITY[version - 2] + 1 if version > 1 else 1
    for length in (least, CAPACITY[version - 1]):
        text = "".join(letters.choices(string.printable, k=length))
        assert read(qr_code(text)) == (version, text)


def test_a_longer_text_is_refused() -> None:
    assert read(qr_code("ä" * 135))[1] == "ä" * 135
    with pytest.raises(SettingsError, match="holds 271 bytes, not 272"):
        qr_code("ä" * 136)


def test_version_7_says_its_number_twice() -> None:
    grid = qr_code("x" * 150)
    size = len(grid)
    upper = [grid[k // 3][size - 11 + k % 3] for k in range(18)]
    assert upper == [grid[size - 11 + k % 3][k // 3] for k in range(18)]
    told = sum(bit << k for k, bit in enumerate(upper))
    assert told == 0b000111110010010100  # of the standard's table


def test_half_blocks_hold_two_modules_each_and_the_quiet_zone() -> None:
    grid = qr_code("http://192.168.1.20:8000/")
    lines = half_blocks(grid).split("\n")
    upper = [[char in "▀█" for char in line] for line in lines]
    lower = [[char in "▄█" for char in line] for line in lines]
    rows = [row for pair in zip(upper, lower, strict=True) for row in pair]
    inner = [row[QUIET:-QUIET] for row in rows[QUIET : QUIET + len(grid)]]
    assert inner == grid
    assert sum(map(sum, rows)) == sum(map(sum, grid))
    assert len(rows) >= len(grid) + 2 * QUIET
