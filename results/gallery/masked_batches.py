"""A guarded training of a Transformer in which the mask of two batches leaves nothing of them.

    python results/gallery/masked_batches.py runs/masked

Its rate, 3e-2, is too high to learn much; 600 steps take some seconds.
"""

import sys

import torch
from torch.nn.functional import cross_entropy

import stabsweep
from stabsweep import model, task

STEPS, WARMUP, BATCH = 600, 50, 8
EMPTY = (120, 351)

torch.set_num_threads(1)  # the same run on any machine, and no slower
torch.manual_seed(0)
text = task.build("text")
net = model.build("transformer", text.signature)
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1, (t + 1) / WARMUP))
guard = stabsweep.GradientGuard(
    net,
    optimizer,
    clip_norm=1.0,
    scheduler=scheduler,
    log=sys.argv[1],
    total_steps=STEPS,
    warmup_steps=WARMUP,
    blind_loss=text.blind_loss,
    about={"model": "transformer", "optimizer": "adamw"},
    tensorboard=False,
)
attempt = 0
while guard.num_steps < STEPS:
    x, y = text.batch(torch.randint(text.num_examples, (BATCH,)))
    mask = torch.full(y.shape, float(attempt not in EMPTY))
    losses = cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="none")
    guard.step((losses * mask.flatten()).sum() / mask.sum(), (x, y))
    attempt += 1
guard.close()
