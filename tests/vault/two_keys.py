"""A GCM ciphertext that opens under two keys: the attack that key commitment prevents.

With the nonce and the additional data fixed, a tag is a polynomial of the ciphertext's blocks in GF(2^128). All blocks
but one are chosen freely; the last block is solved for, so that both keys produce the same tag.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

ONE = 1 << 127
REDUCE = 0xE1 << 120


def multiplied(x: int, y: int) -> int:
    """X · y in GCM's field."""
    product = 0
    for i in range(128):
        if y >> (127 - i) & 1:
            product ^= x
        x = (x >> 1) ^ REDUCE if x & 1 else x >> 1
    return product


def inverse(x: int) -> int:
    """1 / x: Return x to the power of 2^128 - 2."""
    result, power = ONE, x
    for _ in range(127):
        power = multiplied(power, power)
        result = multiplied(result, power)
    return result


def block(key: bytes, text: bytes) -> int:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return int.from_bytes(encryptor.update(text), "big")


def padded(text: bytes) -> list[int]:
    text += bytes(-len(text) % 16)
    return [int.from_bytes(text[i : i + 16], "big") for i in range(0, len(text), 16)]


def sealed_for_both(keys: tuple[bytes, bytes], nonce: bytes, aad: bytes, blocks: int = 3) -> bytes:
    """Ciphertext and tag that both keys accept."""
    arguments = [bytes([n + 1]) * 16 for n in range(blocks - 1)]
    lengths = (8 * len(aad)) << 64 | 8 * 16 * blocks
    sums, squares, masks = [], [], []
    for key in keys:
        h = block(key, bytes(16))
        total = 0
        for part in [*padded(aad), *padded(b"".join(arguments))]:
            total = multiplied(total ^ part, h)
        # The unknown block c comes next, then the lengths: ((total ^ c) · h ^ lengths) · h.
        sums.append(multiplied(multiplied(total, h) ^ lengths, h))
        squares.append(multiplied(h, h))
        masks.append(block(key, nonce + b"\x00\x00\x00\x01"))
    expected_sum = sums[0] ^ sums[1] ^ masks[0] ^ masks[1]
    unknown = multiplied(expected_sum, inverse(squares[0] ^ squares[1]))
    tag = sums[0] ^ multiplied(unknown, squares[0]) ^ masks[0]
    return b"".join(arguments) + unknown.to_bytes(16, "big") + tag.to_bytes(16, "big")
