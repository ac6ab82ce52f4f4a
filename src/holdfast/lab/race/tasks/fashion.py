"""The task `fashion`: Fashion-MNIST and a convolutional network with BatchNorm (0.9 MB)."""

from __future__ import annotations

import torch
from torch import nn

from holdfast.lab.race.tasks import idx_files
from holdfast.lab.race.tasks.classification import Classification, Images
from holdfast.lab.race.tasks.training import Place

# All 10,000 would take a shared core longer than the turn that they judge.
NUM_TEST_IMAGES = 2000


def begin(place: Place) -> Classification:
    idx_files.require()
    test = _load("t10k")
    return Classification(
        _network(),
        _load("train"),
        Images(test.pixels[:NUM_TEST_IMAGES], test.labels[:NUM_TEST_IMAGES]),
        place,
        batch_size=32,
        learning_rate=0.01,
    )


def _load(part: str) -> Images:
    images, labels = idx_files.images_and_labels(part)
    pixels = torch.from_numpy(images.copy()).unsqueeze(1).float().div_(255).sub_(0.286).div_(0.353)
    return Images(pixels, torch.from_numpy(labels.astype("int64")))


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 12, 5, stride=2, padding=2),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.Conv2d(12, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
