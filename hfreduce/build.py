# SPDX-License-Identifier: Apache-2.0
"""Finds the adapter for the torch that is running, and builds it when there is none.

    python -m hfreduce.build              build it now, into the cache of this user
    python -m hfreduce.build --package    build it into the package: for images, where the user at
                                          run time may be another, or has no compiler
    python -m hfreduce.build --list       what is there, and what of it fits

An adapter fits one build of torch, one Python, one processor architecture and one set of sources;
its file name carries all of them, so nothing else is ever loaded. It is looked for in the package
(hfreduce/adapters) and then in the cache: HFREDUCE_CACHE_DIR, or hfreduce in $XDG_CACHE_HOME, or
~/.cache/hfreduce. What lies in the cache is run as code, so the folder must be its user's own.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hfreduce import _compile
from hfreduce._compile import BuildError, Torch

__all__ = ["BuildError", "adapter_path"]

PREBUILT = _compile.PACKAGE / "adapters"
LOCK_TIMEOUT_S = 2 * _compile.TIMEOUT_S
LOCK_POLL_S = 0.1


def adapter_path() -> Path:
    """The adapter for the running torch, built first if need be. Its library is then loaded."""
    torch = Torch.running()
    name = _compile.adapter_name(torch, _compile.include_root())
    path = PREBUILT / name
    if not path.is_file():
        path = cached(torch, name)
    load_library()
    return path


def load_library() -> None:
    """The adapter asks the loader for "libhfreduce.so"; this makes it the one of this package."""
    ctypes.CDLL(str(_compile.LIBRARY))


def cache_folder() -> Path:
    """The folder of the cache; made if it is missing, refused if others could write into it."""
    folder = _cache_location()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = [folder.lstat(), folder.stat()]  # a link must be ours as well as where it leads
    except OSError as error:
        raise BuildError(f"{_cannot(folder)}: {error.strerror}; {_ELSEWHERE}") from error
    me = os.geteuid()
    for entry in found:
        if entry.st_uid != me:
            raise BuildError(
                f"{_cannot(folder)}: it belongs to user {entry.st_uid}, and this is user {me}; "
                f"{_ELSEWHERE}"
            )
    mode = stat.S_IMODE(found[1].st_mode)
    if mode & 0o022:
        raise BuildError(
            f"{_cannot(folder)}: others may write into it (mode {mode:04o}); look at what is in it "
            "and then chmod 700 it"
        )
    if mode != 0o700:
        folder.chmod(0o700)
    return folder


_ELSEWHERE = "set HFREDUCE_CACHE_DIR to a folder of your own"


def _cannot(folder: Path) -> str:
    return f"hfreduce: the cache folder {folder} cannot be used"


def _cache_location() -> Path:
    if own := os.environ.get("HFREDUCE_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # relative: to be ignored, says its standard
    if not base.is_absolute():
        try:
            base = Path.home() / ".cache"
        except RuntimeError as error:
            raise BuildError(f"hfreduce: this user has no home folder; {_ELSEWHERE}") from error
    return base / "hfreduce"


def cached(torch: Torch, name: str, *, force: bool = False) -> Path:
    """The adapter in the cache. Whoever comes first builds it, the others wait for it."""
    folder = cache_folder()
    path = folder / name
    if path.is_file() and not force:
        return path
    with only_one(folder / f"{name}.lock"):
        if not path.is_file() or force:
            build(torch, path)
    return path


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """A lock that the kernel takes back when its holder ends, in whatever way."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd, path)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, path: Path) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    told = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BuildError(
                    f"hfreduce: another process has been building the adapter for more than "
                    f"{LOCK_TIMEOUT_S:.0f} s; it holds {path}"
                ) from None
            if not told:
                told = True
                say("another process is building the adapter; waiting for it")
            time.sleep(LOCK_POLL_S)
        else:
            return


def build(torch: Torch, path: Path) -> None:
    """Builds the adapter and publishes it as `path`, whole or not at all."""
    for left in path.parent.glob(f"{path.name}.*/"):  # by a builder that was killed
        shutil.rmtree(left, ignore_errors=True)
    say(f"building the adapter for torch {torch.version}, once; this takes about 20 s")
    start = time.monotonic()
    try:
        _compile.compile_adapter(torch, _compile.include_root(), path)
    except (BuildError, OSError) as error:
        raise BuildError(_no_adapter(torch, str(error))) from error
    say(f"built in {time.monotonic() - start:.0f} s: {path}")


def _no_adapter(torch: Torch, reason: str) -> str:
    there = [path.name for path in present()]
    return (
        f"hfreduce: no adapter for {torch}, and none can be built here: {reason}\n"
        f"Adapters that are here: {', '.join(there) or 'none'}.\n"
        "Either make the build possible (Debian: apt-get install g++ python3-dev), or build where "
        "it is possible, for this torch and this Python, with `python -m hfreduce.build --package` "
        "when the image is made."
    )


def present() -> list[Path]:
    """All adapters, those of the package first."""
    return [
        path
        for folder in (PREBUILT, _cache_location())
        for path in sorted(folder.glob("torch-*.so"))
        if path.is_file()
    ]


def say(text: str) -> None:
    print(f"hfreduce: {text}", file=sys.stderr, flush=True)


def _list() -> None:
    torch = Torch.running()
    fitting = _compile.adapter_name(torch, _compile.include_root())
    print(f"running: {torch}")
    for path in present():
        print(f"{'fits ' if path.name == fitting else 'other'}  {path}")
    if all(path.name != fitting for path in present()):
        print("none fits: it is built at first use, or now by `python -m hfreduce.build`")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hfreduce.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--force", action="store_true", help="build even if there is one that fits")
    parser.add_argument("--package", action="store_true", help="build into the package")
    parser.add_argument("--list", action="store_true", help="show the adapters, build nothing")
    args = parser.parse_args(arguments)
    try:
        if args.list:
            _list()
            return 0
        torch = Torch.running()
        name = _compile.adapter_name(torch, _compile.include_root())
        path = PREBUILT / name
        if args.package:
            PREBUILT.mkdir(exist_ok=True)
            with only_one(PREBUILT / f"{name}.lock"):
                if args.force or not path.is_file():
                    build(torch, path)
        elif args.force or not path.is_file():
            path = cached(torch, name, force=args.force)
        print(path)
    except (BuildError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
