# SPDX-License-Identifier: Apache-2.0
"""Loads the native part that fits the torch which is running, and builds it if there is none."""

from __future__ import annotations

import atexit
import importlib.util
import sys
import threading
from types import ModuleType

MODULE = "hfreduce_adapter"

_lock = threading.Lock()
_module: ModuleType | None = None


def load() -> ModuleType:
    global _module
    if _module is None:
        with _lock:
            if _module is None:
                _module = _load()
    return _module


def loaded() -> ModuleType | None:
    """The native part if some group or option has needed it already."""
    return _module


def _load() -> ModuleType:
    import torch.distributed  # brings the classes that the native part derives from

    if not torch.distributed.is_available():
        raise RuntimeError("hfreduce: this build of torch has no torch.distributed")
    from hfreduce.build import adapter_path

    path = adapter_path()
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"hfreduce: {path} is not a Python extension")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[MODULE]
        raise
    # Groups that are still open end before the interpreter does, while callbacks can still run.
    atexit.register(module.leave)
    return module
