"""The task `text`: a transformer learns one half of Python's standard library from nothing."""

from __future__ import annotations

from holdfast.lab.race.tasks.language import BATCH_SIZE, LanguageTraining
from holdfast.lab.race.tasks.training import Place

LEARNING_RATE = 2e-3


def begin(place: Place) -> LanguageTraining:
    return LanguageTraining(0, place, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE)
