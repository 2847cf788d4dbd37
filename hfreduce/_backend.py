# SPDX-License-Identifier: Apache-2.0
"""Registration with torch.distributed, and the creator that it calls for every new group.

Imported by `import torch` on older versions of torch, so this module must not need anything that is
expensive; the native part is loaded when the first group is made.
"""

from __future__ import annotations

from functools import partial
from typing import Any

DEVICES = ["cpu", "cuda"]


def register(name: str = "hfreduce", backend_type: Any = None) -> None:
    """Makes this backend known to torch.distributed as `name`. Done for "hfreduce" by itself.

    Under a name that torch knows already ("gloo") it takes the place of that backend in this
    process; `backend_type` is then torch's own BackendType for it.
    """
    from torch.distributed import distributed_c10d as c10d

    if name == "hfreduce" and name.upper() in c10d.Backend._plugins:
        return
    more = {} if backend_type is None else {"_backend_type": backend_type}
    c10d.Backend.register_backend(
        name, partial(create, name), extended_api=True, devices=DEVICES, **more
    )


def create(name: str, dist_options: Any, options: Any) -> Any:
    """Makes the backend of one group. torch calls this, on all ranks of the group."""
    from hfreduce._adapter import load

    adapter = load()
    # One pg_options is handed to all backends of a group ("cpu:hfreduce,cuda:nccl"): options of
    # another backend are not ours to refuse.
    own = options if isinstance(options, adapter.Options) else None
    return adapter.create(
        store=dist_options.store,
        rank=dist_options.group_rank,
        size=dist_options.group_size,
        timeout=dist_options.timeout,
        group_name=dist_options.group_id,
        global_ranks=dist_options.global_ranks_in_group,  # empty: the default group, all ranks
        options=own,
        name=name,
    )
