# SPDX-License-Identifier: Apache-2.0
"""torchrun: a rank is killed, the agent starts all of them again, and training ends well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ranks import BACKEND

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import torch
import torch.distributed as dist

folder, backend = Path(sys.argv[1]), sys.argv[2]
dist.init_process_group(backend)
rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
state = folder / "state.json"
step = json.loads(state.read_text())["step"] if state.exists() else 0
first = step
while step < 6:
    x = torch.full((1000,), float(step + rank))
    dist.all_reduce(x)
    assert x[0] == 2 * step + 1
    step += 1
    if rank == 0:
        state.with_suffix(".new").write_text(json.dumps({"step": step}))
        state.with_suffix(".new").rename(state)
    dist.barrier()
    if attempt == 0 and step == 3 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
operations = None
if backend == "hfreduce":
    import hfreduce
    operations = hfreduce.counters()["operations"]
(folder / f"done{rank}").write_text(json.dumps([attempt, first, step, operations]))
dist.destroy_process_group()
"""


def test_restart_after_a_kill(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "--max-restarts", "2", "--monitor-interval", "0.1"]
    # The ranks' second attempt meets in a store that still holds the first one's keys, which Gloo
    # takes for its peers' addresses; with this variable torchrun gives every attempt its own.
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if BACKEND == "gloo" else {}
    run = subprocess.Popen(
        [*command, str(script), str(tmp_path), BACKEND],
        env={**os.environ, **env},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, said = run.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        run.terminate()  # on which torchrun ends its ranks; killed, it would leave them behind
        _, said = run.communicate(timeout=60)
        raise AssertionError(f"torchrun did not end:\n{said[-3000:]}") from None
    assert run.returncode == 0, said[-3000:]
    for rank in range(2):
        attempt, first, step, operations = json.loads((tmp_path / f"done{rank}").read_text())
        assert (attempt, first, step) == (1, 3, 6), said
        assert operations is None or operations > 0
