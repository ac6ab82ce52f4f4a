"""Where the buffers of a module lie: found once, read in every step.

torch walks over all modules and parameters to list buffers, which takes longer than to average them. They may be put in
another's place at any time; modules seldom are, and whoever has become part of the model, or has gained a buffer, is
noticed.
"""

from __future__ import annotations

import torch


class BufferPlaces:
    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._modules: list[torch.nn.Module] = []
        self._shape: list[object] | None = None
        self._places: list[tuple[str, torch.nn.Module, str]] = []

    def named_buffers(self) -> list[tuple[str, torch.Tensor]]:
        """What `torch.nn.Module.named_buffers` gives."""
        if self._shape_now() != self._shape:
            self._find()
        unique: dict[int, tuple[str, torch.Tensor]] = {}
        for name, module, key in self._places:
            if (buffer := module._buffers[key]) is not None:
                unique.setdefault(id(buffer), (name, buffer))
        return list(unique.values())

    def _find(self) -> None:
        named = list(self._module.named_modules())
        self._modules = [module for _, module in named]
        self._places = [
            (f"{prefix}.{key}" if prefix else key, module, key) for prefix, module in named for key in module._buffers
        ]
        self._shape = self._shape_now()

    def _shape_now(self) -> list[object]:
        """Changes where modules or buffers come or go."""
        return [(*map(id, module._modules.values()), *module._buffers) for module in self._modules]
