# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds in corpus/: for each target, inputs that are well-formed or nearly. Inputs that
a fuzzer found are added beside them by hand, under names that start with found-."""

from __future__ import annotations

import struct
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
MAGIC = 0x31524648
ID, NONCE, MAC = bytes(range(16)), bytes(range(16, 32)), bytes(range(32))


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def op(kind: int = 1, dtype: int = 15, count: int = 8) -> bytes:
    return struct.pack("<BBBBiQ", kind, dtype, 0, 0, -1, count)


def frame(kind: int, payload: bytes = b"", flags: int = 0, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    head = struct.pack("<IBBHQQQ", MAGIC, kind, flags, 1, 7, 3, 2)
    return head + op() + struct.pack("<QII", size, 1, 0) + payload


def facts(chunk_bytes: int = 0, algorithm: int = 2) -> bytes:
    parts = [struct.pack("<H", 1), ID, text(b"host"), struct.pack("<q", 42), text(b"boot")]
    parts += [text(b"node"), text(b"zone"), b"\1", text(b"name"), NONCE]
    parts += [struct.pack("<I", 2), text(b"10.0.0.2|4000"), text(b"fe80::1|4000")]
    parts += [struct.pack("<Q", 7), MAC, struct.pack("<BQBB", algorithm, chunk_bytes, 1, 1)]
    return b"".join(parts)


def report(last: int, first: int, calls: int, waiting: list[int]) -> bytes:
    head = struct.pack("<QQII", last, first, calls, len(waiting))
    return head + op() * calls + b"".join(struct.pack("<i", rank) for rank in waiting)


def cause(code: int, message: bytes, *words: bytes) -> bytes:
    head = bytes([code]) + text(message) + bytes([len(words) // 2])
    return head + b"".join(text(word) for word in words)


HELLO = struct.pack("<HQ", 1, 7) + ID + NONCE + b"\0"

SEEDS = {
    "handshake": {
        "hello": HELLO,
        "hello-version-2": struct.pack("<H", 2) + HELLO[2:],
        "challenge": ID + NONCE + MAC,
        "auth": MAC,
    },
    "facts": {
        "rank": facts(65536),
        "huge-chunk": facts(2**64 - 1),
        "unknown-algorithm": facts(0, 77),
        "links": struct.pack("<Iii", 2, 0, 1) + text(b""),
        "links-many": struct.pack("<I", 2**32 - 1),
    },
    "call_report": {
        "two-calls": report(90, 89, 2, [2, 3]),
        "none": report(0, 1, 0, []),
        "fewer-than-it-says": report(100, 1, 1, []),
        "first-is-zero": report(1, 0, 1, []),
        "waits-for-nobody-known": report(90, 90, 1, [1000000, -5]),
    },
    "cause": {
        "timeout": cause(3, b"allreduce timed out", b"rank", b"3", b"host", b"a7"),
        "code-zero": cause(0, b"fine"),
        "facts-missing": cause(4, b"gone")[:-1] + b"\xff",
    },
    "offer": {
        "inside": struct.pack(">QQQQ", 4096, 1 << 20, 4097, 8192),
        "past-the-end": struct.pack(">QQQQ", 4096, 1 << 20, 1 << 20, 8192),
        "wraps": struct.pack(">QQQQ", 2**64 - 1, 1 << 20, 2**64 - 1, 2**64 - 1),
    },
    "conn": {
        "hello": b"\1\x14" + frame(1, HELLO),
        "stranger": b"\0\xff" + frame(8, b"x" * 100),
        "data": b"\2\x05" + frame(8, b"x" * 200) + frame(15) + frame(10, b"y" * 9, 2),
        "long-data": b"\2\xff" + frame(8, b"x" * 6000) + frame(9),
        "endless-data": b"\2\xff" + frame(8, b"x" * 50, 0, 2**64 - 1),
        "no-descriptors": b"\3\xff" + frame(6, NONCE + struct.pack("<Q", 8192)),
        "long-control": b"\2\xff" + frame(13, b"", 0, 1 << 40),
        "empty-frames": b"\2\1" + frame(8) + frame(10) + frame(14),
    },
    "inbox": {
        "walk": bytes(range(256)),
        "arrivals": bytes([0, 1, 2, 5, 0, 2, 1, 1, 1, 1, 0] * 40),
        "eager-beyond-credit": bytes([0, 0, 1, 5, 1, 2, 0, 1, 2, 1, 1] * 90),
        "sends-and-grants": bytes([1, 1, 1, 1, 3, 1, 1, 1, 5, 2, 0, 0, 1, 3, 1, 1] * 20),
    },
}


def main() -> None:
    for target, seeds in SEEDS.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
