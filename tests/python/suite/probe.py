# SPDX-License-Identifier: Apache-2.0
"""What a test really did: collective calls, groups by backend, operations of our engine.

Installed in the process that forks the ranks. Each rank appends one line of JSON when its test
ends, however it ends, so that a test cannot pass on another engine unnoticed.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

# Calls that move data or wait for others; making and splitting groups is counted by creations.
_NOT_COMMUNICATION = {"SPLIT", "NEW_WINDOW", "UNKNOWN"}


class Probe:
    def __init__(self, folder: Path, ours: bool) -> None:
        self._folder = folder
        self._ours = ours
        self._hook_ids = itertools.count(1 << 40)  # far from the identifiers that torch uses
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.monitored_barriers = 0
        self.gloo = 0
        self._operations_before = 0

    def install(self) -> None:
        self._count_gloo()
        self._count_calls()
        self._count_monitored_barriers()

    def begin(self) -> None:
        """In a rank, before its group exists."""
        self.calls.clear()
        self.gloo = self.monitored_barriers = 0
        self._operations_before = self._operations()

    def end(self, test: str, rank: int) -> None:
        """In a rank, when its test is over."""
        record = {
            "test": test,
            "rank": rank,
            "calls": sum(self.calls.values()),
            "monitored_barriers": self.monitored_barriers,
            "gloo": self.gloo,
            "operations": self._operations() - self._operations_before,
        }
        path = self._folder / f"{test}.{rank}.{os.getpid()}.json"
        path.write_text(json.dumps(record))

    def _operations(self) -> int:
        if not self._ours:
            return 0
        import hfreduce

        return int(hfreduce.counters()["operations"])

    def _count_gloo(self) -> None:
        """Every ProcessGroupGloo that Python makes."""
        probe = self
        plain: Any = c10d.ProcessGroupGloo

        class CountedGloo(plain):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                probe.gloo += 1
                super().__init__(*args, **kwargs)

        c10d.ProcessGroupGloo = CountedGloo
        dist.ProcessGroupGloo = CountedGloo

    def _count_calls(self) -> None:
        """Calls at the level of ProcessGroup, which DDP's C++ half passes through as well."""
        plain = c10d._new_process_group_helper

        def counted(*args: Any, **kwargs: Any) -> Any:
            group, store = plain(*args, **kwargs)
            if isinstance(group, dist.ProcessGroup):
                group.register_pre_hook(next(self._hook_ids), self._on_call)
            return group, store

        c10d._new_process_group_helper = counted

    def _count_monitored_barriers(self) -> None:
        """torch calls no hook for these."""
        probe = self
        group: Any = dist.ProcessGroup
        plain = group.monitored_barrier

        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            probe.monitored_barriers += 1
            return plain(self, *args, **kwargs)

        group.monitored_barrier = counted

    def _on_call(self, args: Any) -> None:
        if args.name.name not in _NOT_COMMUNICATION:
            with self._lock:
                self.calls[args.name.name] += 1
