"""What races are about: one module per task, named after it, with `begin(place)` that returns a `training.Training`.

Real data that every machine has or one package brings; models small enough that a step is communication above all.
"""
