# SPDX-License-Identifier: Apache-2.0
"""What the documentation names must exist, and what exists must be named there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[3]
DOCS = [TREE / "README.md", *sorted((TREE / "docs").rglob("*.md"))]


def variables_read() -> set[str]:
    """Names of variables as string literals in the sources of the product."""
    found = set()
    for folder, suffixes in (("csrc", (".cc", ".h", ".cu")), ("hfreduce", (".py",))):
        for path in (TREE / folder).rglob("*"):
            if path.suffix in suffixes:
                found |= set(re.findall(r'"(HFREDUCE_[A-Z_0-9]+)"', path.read_text()))
    return found


def test_every_variable_is_documented() -> None:
    documented = set(re.findall(r"HFREDUCE_[A-Z_0-9]+", (TREE / "docs/options.md").read_text()))
    read = variables_read()
    assert "HFREDUCE_ALGO" in read  # the search finds something
    assert read - documented == set(), "read by the product, but not in docs/options.md"
    assert documented - read == set(), "in docs/options.md, but nothing reads it"


def test_every_error_is_documented() -> None:
    source = (TREE / "hfreduce/errors.py").read_text()
    errors = set(re.findall(r"^class (\w*Error)\(", source, re.MULTILINE))
    text = (TREE / "docs/errors.md").read_text()
    assert "PeerError" in errors
    assert {name for name in errors if f"`{name}`" not in text} == set()


def test_every_option_is_documented() -> None:
    stub = (TREE / "hfreduce/_options.pyi").read_text()
    options = set(re.findall(r"^    (\w+): ", stub, re.MULTILINE))
    text = (TREE / "docs/options.md").read_text()
    assert "timeout" in options
    assert {name for name in options if f"| `{name}` |" not in text} == set()


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(TREE)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
