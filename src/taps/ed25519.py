"""Whether an Ed25519 signature is right (RFC 8032, 5.1.7). All data is public: no secret can leak."""

from __future__ import annotations

import hashlib

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]  # on the curve -x² + y² = 1 + D x² y²
BASE_Y = 4 * pow(5, -1, P) % P


def is_signed(message: bytes, signature: bytes, key: bytes) -> bool:
    """Whether the owner of a public key has signed a message.

    >>> key = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    >>> is_signed(b"", bytes(64), key)
    False
    """
    if len(signature) != 64 or len(key) != 32:
        return False
    owner, nonce = _point(key), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if owner is None or nonce is None or scalar >= ORDER:
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    base = _point(BASE_Y.to_bytes(32, "little"))
    assert base is not None
    return _times(scalar, base) == _add(nonce, _times(challenge, owner))


def _point(data: bytes) -> Point | None:
    """The point of 32 bytes: y, and in the last bit whether x is odd. None where there is no such point."""
    number = int.from_bytes(data, "little")
    y, odd = number & (2**255 - 1), number >> 255
    squared = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(squared, (P + 3) // 8, P)
    if (x * x - squared) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - squared) % P or (x == 0 and odd):
        return None
    return (P - x if x % 2 != odd else x), y


def _add(first: Point, second: Point) -> Point:
    (x1, y1), (x2, y2) = first, second
    both = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + y1 * x2) * pow(1 + both, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - both, -1, P)
    return x % P, y % P


def _times(number: int, point: Point) -> Point:
    total: Point = (0, 1)
    while number:
        if number % 2:
            total = _add(total, point)
        point = _add(point, point)
        number //= 2
    return total
