# SPDX-License-Identifier: Apache-2.0
"""What is particular about one of torch's stores."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch.distributed as dist
from harness import Place, run_fine


def miss_all(place: Place) -> float:
    import hfreduce

    seconds = 0.0
    if place.rank == 0:
        start = time.monotonic()
        with pytest.raises(hfreduce.TimeoutError) as caught:
            dist.monitored_barrier(timeout=timedelta(milliseconds=100), wait_all_ranks=True)
        seconds = time.monotonic() - start
        assert caught.value.ranks == list(range(1, place.size))
    place.meet("end")
    return seconds


def test_a_wait_on_a_file_store_ends_in_time() -> None:
    """torch's own wait there takes a second more, and that for each missing rank."""
    assert run_fine(miss_all, 4)[0] < 1.0
