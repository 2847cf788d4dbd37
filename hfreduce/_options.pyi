# SPDX-License-Identifier: Apache-2.0
# The native class hfreduce.Options, for type checkers.
from datetime import timedelta

from torch._C._distributed_c10d import Backend

class Options(Backend.Options):
    timeout: timedelta
    algorithm: str | None
    chunk_bytes: int | None
    streams: int | None
    interfaces: str | None
    node: str | None
    zone: str | None
    shm: bool | None
    native_wire: bool | None
    arena_bytes: int | None
    def __init__(
        self,
        *,
        timeout: timedelta | None = None,
        algorithm: str | None = None,
        chunk_bytes: int | None = None,
        streams: int | None = None,
        interfaces: str | None = None,
        node: str | None = None,
        zone: str | None = None,
        shm: bool | None = None,
        native_wire: bool | None = None,
        arena_bytes: int | None = None,
    ) -> None: ...
