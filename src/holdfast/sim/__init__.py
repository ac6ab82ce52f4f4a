"""The native core on a virtual clock: scenario files, seeds, invariants.

In: a `Scenario` (from `scenarios/*.toml` or a file of yours) and a seed. Out: a `SimRun` with the violations found.
Everything follows from the seed, so a failing one is a test. May import `holdfast._native` and `holdfast.errors`.

`topologies` is apart from that: it compares patterns of communication on the lab's switch in virtual time.
"""

from holdfast.sim.run import Steering, replay, run, run_many
from holdfast.sim.scenario import Scenario, load_scenario, parse_scenario, shipped_scenarios

__all__ = [
    "Scenario",
    "Steering",
    "load_scenario",
    "parse_scenario",
    "replay",
    "run",
    "run_many",
    "shipped_scenarios",
]
