"""Signatures: the vectors of RFC 8032, section 7.1, and each of them changed in one bit."""

from __future__ import annotations

import pytest

from taps.ed25519 import ORDER, is_signed

VECTORS = {
    "": (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    "72": (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
    "af82": (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
        "4a7c15e9716ed28dc027beceea1ec40a",
    ),
}


@pytest.mark.parametrize("message", VECTORS)
def test_the_vectors_of_the_standard(message: str) -> None:
    key, signature = map(bytes.fromhex, VECTORS[message])
    assert is_signed(bytes.fromhex(message), signature, key)
    assert not is_signed(bytes.fromhex(message) + b"x", signature, key)


@pytest.mark.parametrize("bit", range(0, 512, 37))
def test_a_changed_bit_is_refused(bit: int) -> None:
    key, signature = map(bytes.fromhex, VECTORS["72"])
    changed = bytearray(signature)
    changed[bit // 8] ^= 1 << bit % 8
    assert not is_signed(b"r", bytes(changed), key)
    other = bytearray(key)
    other[bit // 16] ^= 1 << bit % 8
    assert not is_signed(b"r", signature, bytes(other))


def test_what_is_no_signature_or_has_a_second_form_is_refused() -> None:
    key, signature = map(bytes.fromhex, VECTORS["72"])
    again = int.from_bytes(signature[32:], "little") + ORDER  # the same equation holds: it must not count
    assert not is_signed(b"r", signature[:32] + again.to_bytes(32, "little"), key)
    assert not is_signed(b"r", signature[:63], key)
    assert not is_signed(b"r", signature, b"")
