# SPDX-License-Identifier: Apache-2.0
"""How torch finds this backend: the two entry points.

`torch.backends` is run by every `import torch`, and an exception there would make torch itself
unusable; so nothing may escape from it, and it does next to nothing. `torch.distributed.backends`
(newer torch) is run only when somebody asks for a backend called "hfreduce".
"""

from __future__ import annotations

import sys
from typing import Any


def torch_backends() -> None:
    try:
        c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
        if c10d is None:
            return  # a torch that was built without distributed
        if hasattr(c10d.Backend, "_ensure_backend_registered"):
            return  # asks by the other entry point, when the backend is wanted
        distributed_backends()
    except Exception as error:  # noqa: BLE001 - torch must start whatever is wrong here
        import warnings

        warnings.warn(f"hfreduce could not register its backend: {error}", stacklevel=2)


def distributed_backends() -> None:
    from hfreduce._backend import register

    register()
