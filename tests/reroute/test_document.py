from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pipeline_jobs import second_opinion

from holdfast.errors import InvalidPlan
from holdfast.reroute import check_plan, normalise, plan, plan_document, read_plan, uniform_job

OUTSIDE = """
import json, sys
from holdfast.reroute import check_plan
print(json.dumps([str(violation) for violation in check_plan(json.load(open(sys.argv[1])))]))
"""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    job = uniform_job(4, 3, 6, [(1, 2)], memory_limit=9)
    made: dict[str, Any] = json.loads(json.dumps(plan_document(plan(job), normalise(job))))
    return made


def test_what_the_json_promises(document: dict[str, Any]) -> None:
    slots = document["slots"]
    assert [slots[name] for name in ("fault_free", "rerouted", "decoupled", "staggered")] == [27, 36, 29, 27]
    assert slots["rerouted_best"] == 33
    assert (document["period"], document["lower_bound"]) == (30, 30)
    assert document["solver"]["status"] == "bound"
    assert {op["op"] for op in document["ops"]} == {"F", "I", "W", "B", "O"}
    assert set(document["ops"][0]) == {"worker", "op", "pipeline", "microbatch", "start", "duration"}
    assert [1, 2] not in [op["worker"] for op in document["ops"]]
    detours = {tuple(op["worker"]) for op in document["ops"] if op["pipeline"] != op["worker"][0]}
    assert detours == {(0, 2), (2, 2)}


def test_a_program_outside_the_package_can_check_the_file(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    ran = subprocess.run(
        [sys.executable, "-c", OUTSIDE, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(ran.stdout) == []
    assert second_opinion(document) == []


def test_a_second_opinion_and_the_validator_reject_the_same_broken_file(document: dict[str, Any]) -> None:
    for index in (0, 17, 60, 100):
        broken = json.loads(json.dumps(document))
        broken["ops"][index]["start"] += 1
        assert bool(second_opinion(broken)) == bool([one for one in check_plan(broken) if one.rule != "claim"])
        del broken["ops"][index]
        assert second_opinion(broken)
        assert check_plan(broken)


def test_a_false_claim_is_found(document: dict[str, Any]) -> None:
    lied = document | {"slots": document["slots"] | {"staggered": 26}}
    assert [violation.rule for violation in check_plan(lied)] == ["claim"]


def test_the_job_survives_the_way_through_json(document: dict[str, Any]) -> None:
    assert read_plan(document).job == uniform_job(4, 3, 6, [(1, 2)], memory_limit=9)


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {},
        {"format": "holdfast-plan", "version": 2},
        {"format": "holdfast-plan", "version": 1},
        {"format": "holdfast-plan", "version": 1, "shape": {"stages": 1}, "costs": [], "failed": []},
    ],
)
def test_files_that_are_no_plans_are_named(broken: Any) -> None:
    with pytest.raises(InvalidPlan, match="Try:"):
        read_plan(broken)


@pytest.mark.parametrize(
    ("field", "value"), [("start", "1"), ("start", 1.5), ("worker", [1]), ("worker", None), ("microbatch", True)]
)
def test_operations_of_the_wrong_kind_are_named(document: dict[str, Any], field: str, value: Any) -> None:
    broken = json.loads(json.dumps(document))
    broken["ops"][3][field] = value
    with pytest.raises(InvalidPlan, match=r"whole numbers|cannot be read"):
        read_plan(broken)
