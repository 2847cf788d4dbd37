# SPDX-License-Identifier: Apache-2.0
"""Lightning, accelerate and transformers train over the backend as over Gloo.

Needs `pip install -r tests/python/long/requirements.txt`. Each runs under torchrun, as its users
do; the weights at the end must be Gloo's, and our engine's counter must have moved.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

BACKEND = os.environ.get("HFREDUCE_TEST_BACKEND", "hfreduce")

PRELUDE = """
import json, os, sys
from pathlib import Path
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

folder, backend = Path(sys.argv[1]), sys.argv[2]
torch.manual_seed(1)

class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        x = torch.randn(16, generator=torch.Generator().manual_seed(index))
        return x, x.roll(1)

def net():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))

def finish(model):
    import torch.distributed as dist
    operations = None
    if backend == "hfreduce":
        import hfreduce
        operations = hfreduce.counters()["operations"]
    total = [p.detach().double().sum().item() for p in model.parameters()]
    (folder / f"rank{dist.get_rank()}.json").write_text(
        json.dumps({"weights": total, "operations": operations, "backend": dist.get_backend()})
    )
"""

# Unmodified: the strategy takes any backend's name.
LIGHTNING = """
import lightning
from lightning.pytorch.strategies import DDPStrategy

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net()
    def training_step(self, batch, _):
        x, y = batch
        loss = F.mse_loss(self.net(x), y)
        self.log("loss", loss, sync_dist=True)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def on_train_end(self):
        finish(self)

trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=backend),
    max_epochs=2, logger=False, enable_checkpointing=True, enable_progress_bar=False,
    enable_model_summary=False, default_root_dir=folder,
)
trainer.fit(Module(), DataLoader(Numbers(), batch_size=8))
"""

# One line more than usual: accelerate only knows the names of torch's own backends, but takes a
# group that is there already.
ACCELERATE = """
from accelerate import Accelerator
torch.distributed.init_process_group(backend)

accelerator = Accelerator(cpu=True)
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(
    model, optimizer, DataLoader(Numbers(), batch_size=8)
)
for _ in range(2):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
gathered = accelerator.gather_for_metrics(loss.detach().reshape(1))
assert gathered.numel() == 2, gathered
finish(accelerator.unwrap_model(model))
accelerator.end_training()
"""

# The same added line, ahead of TrainingArguments.
TRANSFORMERS = """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
torch.distributed.init_process_group(backend)

class Tokens(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        ids = torch.randint(64, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}

torch.manual_seed(2)
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
))
arguments = TrainingArguments(
    output_dir=str(folder / "out"), use_cpu=True, max_steps=6, per_device_train_batch_size=2,
    report_to=[], logging_steps=2, save_steps=3, seed=3, disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=Tokens())
trainer.train()
finish(model)
torch.distributed.destroy_process_group()
"""


def run(folder: Path, script: str, backend: str) -> list[dict[str, Any]]:
    folder.mkdir()
    path = folder / "train.py"
    path.write_text(PRELUDE + script)
    done = subprocess.run(
        [
            *[sys.executable, "-m", "torch.distributed.run", "--standalone"],
            *["--nproc-per-node", "2", str(path), str(folder), backend],
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    ("library", "script"),
    [("lightning", LIGHTNING), ("accelerate", ACCELERATE), ("transformers", TRANSFORMERS)],
)
def test_trains_as_over_gloo(library: str, script: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    ours = run(tmp_path / "ours", script, BACKEND)
    gloo = run(tmp_path / "gloo", script, "gloo")
    for mine, theirs in zip(ours, gloo, strict=True):
        assert mine["backend"] == BACKEND
        assert mine["operations"] is None or mine["operations"] > 0
        assert mine["weights"] == pytest.approx(theirs["weights"], rel=1e-6, abs=1e-6)
    assert ours[0]["weights"] == ours[1]["weights"]
