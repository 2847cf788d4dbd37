# SPDX-License-Identifier: Apache-2.0
"""Translation units with all that they read: those that CMake knows, and the adapter."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from counting import ROOT, STATE

from hfreduce import _compile

WARNINGS = ["-Wall", "-Wextra", "-Werror"]


@dataclass(frozen=True)
class Unit:
    name: str
    source: Path
    command: list[str]  # the compiler and its flags, without source and output
    files: list[Path]  # of this tree


def cmake_units(build: Path) -> list[Unit]:
    """The units of the product, as built in `build`: tests are left out."""
    units = []
    read = _read_files(build)
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        name = str(source.relative_to(ROOT))
        if name.startswith("tests/"):
            continue
        words = [word for word in shlex.split(entry["command"]) if Path(word).name != "ccache"]
        out = words[words.index("-o") + 1]
        drop = {"-o", out, "-c", str(source)}
        command = [word for word in words if word not in drop]
        units.append(Unit(name, source, command, sorted(read[out])))
    return units


def _read_files(build: Path) -> dict[str, set[Path]]:
    """What the compiler read of this tree for each object, from ninja's own record."""
    text = subprocess.run(
        ["ninja", "-C", str(build), "-t", "deps"], check=True, capture_output=True, text=True
    ).stdout
    read: dict[str, set[Path]] = {}
    out = ""
    for line in text.splitlines():
        if line.startswith("    "):
            path = (build / line.strip()).resolve()
            if path.is_relative_to(ROOT):
                read[out].add(path)
        elif ":" in line:
            out = line.split(":")[0]
            read[out] = set()
    return read


def adapter_unit(compiler: str) -> Unit:
    root = _compile.include_root()
    source = STATE / "adapter" / "adapter.cc"
    source.parent.mkdir(parents=True, exist_ok=True)
    text = _compile.unity_source(root)
    if not source.is_file() or source.read_text() != text:
        source.write_text(text)
    torch = _compile.Torch.running()
    path = shutil.which(compiler)
    if path is None:
        raise RuntimeError(f"{compiler} is not installed")
    command = _compile.command_to_compile([path], torch, root)
    # torch is part of the command by its folder alone; its build is what counts.
    command += [f"-DTORCH_BUILD={torch.git_version}", *WARNINGS]
    return Unit("csrc/bindings/torch", source, command, [source, *_compile.sources(root)])
