# SPDX-License-Identifier: Apache-2.0
"""Builds libhfreduce with CMake into the package, and the adapter too when torch is there.

Metadata stands in pyproject.toml. Without torch (build isolation, or torch installed later) the
package carries the adapter's sources alone, and it is compiled at first use.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from hfreduce import _compile

# What CMakeLists.txt needs, and Debian's packages that bring it.
PROGRAMS = {"cmake": "cmake"}
HEADERS = {
    "tl/expected.hpp": "libexpected-dev",
    "fmt/format.h": "libfmt-dev",
    "spdlog/spdlog.h": "libspdlog-dev",
}


def missing() -> list[str]:
    found = [
        f"the program {program} (Debian: {package})"
        for program, package in PROGRAMS.items()
        if shutil.which(program) is None
    ]
    if shutil.which("ninja") is None and shutil.which("make") is None:
        found.append("the program ninja (Debian: ninja-build)")
    try:
        cxx = _compile.compiler()
        _compile.check_cxx20(cxx)
    except _compile.BuildError as error:
        return [*found, str(error)]
    for header, package in HEADERS.items():
        command = [*cxx, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
        program = f"#if !__has_include(<{header}>)\n#error\n#endif\n"
        if subprocess.run(command, input=program.encode(), capture_output=True).returncode != 0:
            found.append(f"the header {header} (Debian: {package})")
    return found


class BuildPackage(build_py):
    """The Python files, and what is compiled for them."""

    def run(self) -> None:
        if not self.editable_mode:  # an earlier build may have left what is no longer there
            shutil.rmtree(Path(self.build_lib) / "hfreduce", ignore_errors=True)
        super().run()
        if self.editable_mode:  # the tree is used as it is: ./run dev puts the library there
            return
        if lacking := missing():
            sys.exit("hfreduce cannot be built here; missing:\n  " + "\n  ".join(lacking))
        package = Path(self.build_lib).resolve() / "hfreduce"
        self.build_library(package.parent)
        self.copy_sources(package / "include")
        self.build_adapter(package)

    def build_library(self, prefix: Path) -> None:
        work = Path(self.get_finalized_command("build").build_temp).resolve()
        generator = "Ninja" if shutil.which("ninja") else "Unix Makefiles"
        cxx = _compile.compiler()[0]
        configure = ["cmake", "-S", str(ROOT), "-B", str(work), "-G", generator]
        configure += ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={cxx}"]
        jobs = str(len(os.sched_getaffinity(0)))
        compile_ = ["cmake", "--build", str(work), "--target", "hfreduce", "--parallel", jobs]
        install = ["cmake", "--install", str(work), "--prefix", str(prefix), "--strip"]
        for command in (configure, compile_, install):
            subprocess.run(command, check=True)

    def copy_sources(self, out: Path) -> None:
        root = ROOT / "csrc"
        for path in _compile.sources(root):
            copy = out / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)

    def build_adapter(self, package: Path) -> None:
        try:
            torch = _compile.Torch.running()
        except ImportError:
            print("hfreduce: torch is not visible here; the adapter will be built at first use")
            return
        root, adapters = package / "include", package / "adapters"
        adapters.mkdir()
        try:
            out = adapters / _compile.adapter_name(torch, root)
            _compile.compile_adapter(torch, root, out, package / "lib" / "libhfreduce.so")
        except _compile.BuildError as error:  # what is installed may serve another torch
            print(f"hfreduce: no adapter for {torch}: {error}", file=sys.stderr)


class Wheel(bdist_wheel):
    """Bound to the platform and not to a Python: the adapter, which is, is one of several."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class NativeDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildPackage, "bdist_wheel": Wheel}, distclass=NativeDistribution)
