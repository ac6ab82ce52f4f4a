"""Holdfast keeps PyTorch training at its pace when the network and the machines do not keep theirs.

    handle = holdfast.attach(ddp_model)

The public names, and nothing else. They are loaded on first use, so that the command line starts without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.bridge.ddp import attach
    from holdfast.bridge.handle import Handle
    from holdfast.bridge.summary import Summary
    from holdfast.config import Config
    from holdfast.errors import HoldfastError
    from holdfast.outcome import Outcome, PeerOutcome
    from holdfast.strategy import OptiReduce

__version__ = "0.1.0"

__all__ = ["Config", "Handle", "HoldfastError", "OptiReduce", "Outcome", "PeerOutcome", "Summary", "attach"]

_HOME_OF = {
    "Config": "holdfast.config",
    "Handle": "holdfast.bridge.handle",
    "HoldfastError": "holdfast.errors",
    "OptiReduce": "holdfast.strategy",
    "Outcome": "holdfast.outcome",
    "PeerOutcome": "holdfast.outcome",
    "Summary": "holdfast.bridge.summary",
    "attach": "holdfast.bridge.ddp",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
