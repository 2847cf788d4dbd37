# SPDX-License-Identifier: Apache-2.0
"""Checks that passed are not repeated on the same content: what they read is hashed, and the hashes
of those that passed are kept in .state/checked."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

from counting import STATE

CHECKED = STATE / "checked"


def key(what: Iterable[str], files: Iterable[Path]) -> str:
    digest = hashlib.sha256(repr(list(what)).encode())
    for file in sorted(files):
        content = file.read_bytes()
        digest.update(f"{file} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def passed_before(name: str) -> bool:
    return (CHECKED / name).exists()


def remember(name: str) -> None:
    CHECKED.mkdir(parents=True, exist_ok=True)
    (CHECKED / name).touch()


@functools.cache
def version(program: str) -> str:
    return subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
