# SPDX-License-Identifier: Apache-2.0
"""Compiles the adapter: the one part of this package that is bound to a build of torch.

What it needs of a torch is read from the torch that is there: where its headers and libraries lie.
What that torch can do is found out by the C++ sources themselves, never from its version.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
LIBRARY = PACKAGE / "lib" / "libhfreduce.so"
MODULE = "hfreduce_adapter"

COMPILERS = ("g++", "c++", "clang++")
# -Wl,-z,now: what a torch lacks shows when the adapter is loaded, not in the middle of a training.
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-pipe"]
LINK_FLAGS = ["-shared", "-Wl,-z,now", "-Wl,-z,relro"]
TORCH_LIBRARIES = ["c10", "torch", "torch_cpu", "torch_python"]
FREE_BYTES = 64 << 20  # an object file, its library and the compiler's temporary files
TIMEOUT_S = 1200.0


class BuildError(RuntimeError):
    """The adapter cannot be built here; the message says what is missing and what to do."""


@dataclass(frozen=True)
class Torch:
    """The facts about a torch that an adapter is bound to."""

    version: str
    git_version: str
    folder: Path
    cxx11_abi: bool

    @staticmethod
    def running() -> Torch:
        import torch

        if torch.__file__ is None:
            raise BuildError("hfreduce: torch has no folder; is it installed?")
        git: Any = torch.version.git_version
        return Torch(
            version=str(torch.__version__),
            git_version=str(git),
            folder=Path(torch.__file__).resolve().parent,
            cxx11_abi=bool(torch.compiled_with_cxx11_abi()),
        )

    @property
    def include_folders(self) -> list[Path]:
        include = self.folder / "include"
        return [include, include / "torch" / "csrc" / "api" / "include"]

    def __str__(self) -> str:
        return f"torch {self.version} ({self.folder})"


def include_root() -> Path:
    """Where the adapter's sources and the library's public headers lie, by the names that
    #include gives them: in the package, or in the source tree that the package is a part of."""
    installed = PACKAGE / "include"
    return installed if installed.is_dir() else PACKAGE.parent / "csrc"


def sources(root: Path) -> list[Path]:
    """Everything that goes into the adapter, headers included."""
    waiting = sorted((root / "bindings" / "torch").glob("*.cc"))
    if not waiting:
        raise BuildError(f"hfreduce: the adapter's sources are missing in {root}")
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        names = re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)
        waiting += [root / name for name in names]
    return sorted(found)


def source_digest(root: Path) -> str:
    digest = hashlib.sha256(repr((FLAGS, LINK_FLAGS, TORCH_LIBRARIES)).encode())
    for path in sources(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def adapter_name(torch: Torch, root: Path) -> str:
    """The file name of the adapter for this torch, this Python, this processor, these sources."""
    soabi = str(sysconfig.get_config_var("SOABI"))
    facts = (torch.version, torch.git_version, torch.cxx11_abi, soabi, platform.machine())
    key = hashlib.sha256(repr((*facts, source_digest(root))).encode()).hexdigest()[:16]
    return f"torch-{torch.version}-{soabi}-{key}.so"


def compiler() -> list[str]:
    """The C++ compiler: $CXX if that is set, or the first of the usual ones."""
    named = shlex.split(os.environ.get("CXX", ""))
    for words in [named] if named else [[name] for name in COMPILERS]:
        path = shutil.which(words[0])
        if path is not None:
            return [path, *words[1:]]
    if named:
        raise BuildError(f"there is no C++ compiler: CXX is {named[0]!r}, which is not found")
    raise BuildError(
        f"there is no C++ compiler on the PATH: none of {', '.join(COMPILERS)} (Debian: g++)"
    )


def check_python_headers() -> None:
    python_h = Path(sysconfig.get_path("include")) / "Python.h"
    if not python_h.is_file():
        raise BuildError(
            f"Python's headers are missing: there is no {python_h} (Debian: python3-dev)"
        )


def check_cxx20(cxx: list[str]) -> None:
    program = "#include <concepts>\n#include <span>\nstatic_assert(std::integral<int>);\n"
    check = subprocess.run(
        [*cxx, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"],
        input=program,
        capture_output=True,
        text=True,
        check=False,
    )
    if check.returncode != 0:
        raise BuildError(
            f"{shlex.join(cxx)} does not compile C++20 (Debian: g++, version 11 or newer):\n"
            f"{check.stderr.strip()[-500:]}"
        )


def check_space(folder: Path) -> None:
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < FREE_BYTES:
        raise BuildError(
            f"{folder} has {free >> 20} MB free, the build needs {FREE_BYTES >> 20} MB; "
            "free some, or set HFREDUCE_CACHE_DIR to a folder elsewhere"
        )


def command_to_compile(cxx: list[str], torch: Torch, root: Path) -> list[str]:
    folders = [*torch.include_folders, Path(sysconfig.get_path("include"))]
    return [
        *cxx,
        *FLAGS,
        f"-DTORCH_EXTENSION_NAME={MODULE}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
        f"-I{root}",
        *[word for folder in folders for word in ("-isystem", str(folder))],
    ]


def unity_source(root: Path) -> str:
    """All of the adapter as one translation unit: nearly all the time goes into torch's headers."""
    own = [path for path in sources(root) if path.suffix == ".cc"]
    return "".join(f'#include "{path.relative_to(root)}"\n' for path in own)


def compile_adapter(torch: Torch, root: Path, out: Path, library: Path = LIBRARY) -> None:
    """Compiles and links the adapter into the file `out`, by way of its folder."""
    cxx = compiler()
    check_cxx20(cxx)
    check_python_headers()
    check_space(out.parent)
    if not library.is_file():
        raise BuildError(f"hfreduce's own library is missing: {library}")
    with tempfile.TemporaryDirectory(prefix=f"{out.name}.", dir=out.parent) as name:
        work = Path(name)
        unity = work / "adapter.cc"
        unity.write_text(unity_source(root))
        torch_lib = torch.folder / "lib"
        compile_ = [*command_to_compile(cxx, torch, root), "-c", str(unity)]
        _run([*compile_, "-o", str(work / "adapter.o")], work)
        # No path to libhfreduce is written down: it is loaded from the package that asks, before
        # the adapter is, and found by its name. An adapter so serves any environment.
        link = [*cxx, *LINK_FLAGS, str(work / "adapter.o"), f"-L{library.parent}", "-lhfreduce"]
        link += [f"-L{torch_lib}", *[f"-l{lib}" for lib in TORCH_LIBRARIES]]
        _run([*link, "-o", str(work / "adapter.so")], work)
        os.replace(work / "adapter.so", out)


def _run(command: list[str], work: Path) -> None:
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            env={**os.environ, "TMPDIR": str(work)},
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"the compiler took more than {TIMEOUT_S:.0f} s: {command[0]}") from error
    if done.returncode != 0:
        raise BuildError(
            f"the adapter did not compile (exit code {done.returncode}):\n"
            f"{shlex.join(command)}\n{done.stderr.strip()[-4000:]}"
        )
