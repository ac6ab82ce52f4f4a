"""The sentence must be true whoever wins."""

from __future__ import annotations

import dataclasses
import math

from holdfast.lab.race.headline import Remark, by_arrival, headline, remarks
from holdfast.lab.race.result import Evaluation, Event, RaceResult, Run, SwitchLateness
from lab.race.made_up_races import made_up_race, on_loopback, without_training

PLAIN = made_up_race("holdfast", num_steps=30)


def race(*runs: Run, target: float = 0.95) -> RaceResult:
    return dataclasses.replace(PLAIN, runs=runs, target=target)


def run(peer: str, seconds: float | None, *, steps: int = 400, delivered: float = 1.0, final: float = 0.96) -> Run:
    """Evaluated every 20 steps; reaches the target at the last evaluation, if at all."""
    total = 60.0 if seconds is None else seconds
    last = final if seconds is not None else min(final, 0.94)
    points = [Evaluation(step, total * step / steps, 0.5, 1.0, 0.0) for step in range(20, steps, 20)]
    return dataclasses.replace(
        PLAIN.runs[0],
        peer=peer,
        steps=steps,
        seconds_to_target=seconds,
        final_metric=last,
        delivered_ratio=delivered,
        seconds=total,
        evaluations=(*points, Evaluation(steps, total, last, 0.2, 0.0)),
    )


def test_holdfast_wins() -> None:
    result = race(run("gloo-tuned", 62.8), run("holdfast", 41.2, delivered=0.99871))
    assert headline(result) == (
        "Holdfast reached 95% accuracy in 41.2 s, 1.52 times as fast as gloo-tuned (62.8 s), with 99.87% of the "
        "gradients delivered."
    )


def test_the_fastest_of_several_rivals_is_the_one_to_beat() -> None:
    result = race(run("gloo-cubic", 400.0), run("holdfast", 41.2), run("gloo-tuned", 62.8))
    assert "1.52 times as fast as gloo-tuned, the fastest rival (62.8 s)" in headline(result)


def test_holdfast_loses() -> None:
    result = race(run("gloo-tuned", 41.2), run("holdfast", 52.5, delivered=0.999996))
    assert headline(result) == (
        "gloo-tuned reached 95% accuracy first, in 41.2 s. Holdfast took 52.5 s, 1.27 times as long, with 99.9996% of "
        "the gradients delivered."
    )


def test_two_per_cent_are_no_lead() -> None:
    result = race(run("gloo-tuned", 41.9), run("holdfast", 41.2, delivered=0.99))
    assert headline(result) == (
        "Too close to call: Holdfast reached 95% accuracy in 41.2 s, gloo-tuned in 41.9 s; Holdfast delivered 99.00% of "
        "the gradients."
    )


def test_one_evaluation_more_is_no_lead() -> None:
    """Both are looked at every 20 steps of 2 s in all: who arrives one look later may have arrived together."""
    result = race(run("gloo-tuned", 42.0, steps=420), run("holdfast", 40.0, steps=400))
    assert headline(result).startswith("Too close to call")
    clear = race(run("gloo-tuned", 44.1, steps=420), run("holdfast", 40.0, steps=400))
    assert "1.10 times as fast" in headline(clear)


def test_only_holdfast_arrives() -> None:
    result = race(run("gloo-tuned", None, final=0.92), run("holdfast", 41.2, delivered=0.9987))
    assert headline(result) == (
        "Holdfast reached 95% accuracy in 41.2 s; gloo-tuned did not (it ended at 92.00% after 60.0 s). Holdfast "
        "delivered 99.87% of the gradients."
    )


def test_only_a_rival_arrives() -> None:
    result = race(run("gloo-tuned", 41.2), run("holdfast", None, final=0.93, delivered=0.5))
    assert headline(result) == (
        "gloo-tuned reached 95% accuracy in 41.2 s; Holdfast did not (it ended at 93.00% after 60.0 s). Holdfast "
        "delivered 50.00% of the gradients."
    )


def test_none_of_several_rivals_arrives() -> None:
    result = race(run("gloo-bbr", None, final=0.6), run("gloo-tuned", None, final=0.9), run("holdfast", 41.2))
    assert "none of 2 rivals did (gloo-tuned came closest with 90.00% after 60.0 s)" in headline(result)


def test_nobody_arrives() -> None:
    result = race(run("gloo-tuned", None, final=0.9), run("holdfast", None, final=0.939999, delivered=0.97))
    assert headline(result) == (
        "Nobody reached 95% accuracy. Holdfast came closest with 93.99% after 60.0 s; it delivered 97.00% of the "
        "gradients."
    )


def test_nobody_arrives_but_some_are_equally_close() -> None:
    result = race(run("gloo-tuned", None, final=0.91389), run("holdfast", None, final=0.91388, delivered=0.995))
    assert headline(result) == (
        "Nobody reached 95% accuracy. gloo-tuned and Holdfast came closest with 91.38%; Holdfast delivered 99.50% of the "
        "gradients."
    )


def test_a_run_that_broke_off_is_an_alarm() -> None:
    broken = dataclasses.replace(run("gloo-tuned", None), events=(Event(3.0, "broke off: rank 2 was killed"),))
    (remark,) = remarks(race(broken, run("holdfast", 41.2)))
    assert remark == Remark("gloo-tuned broke off: rank 2 was killed", is_alarm=True)


def test_nobody_was_even_evaluated() -> None:
    result = race(without_training("holdfast", PLAIN), without_training("gloo", PLAIN))
    assert headline(result) == "Nobody reached 95% accuracy, and nobody got as far as an evaluation."
    assert [remark.text for remark in remarks(result)] == ["No step was trained by holdfast and gloo."]


def test_a_run_that_never_began_does_not_hide_the_winner() -> None:
    result = race(without_training("gloo-tuned", PLAIN), run("holdfast", 41.2))
    assert headline(result).startswith("Holdfast reached 95% accuracy in 41.2 s; gloo-tuned did not. ")


def test_one_peer_alone() -> None:
    assert headline(race(run("gloo", 41.2))) == (
        "Gloo reached 95% accuracy in 41.2 s, with 100% of the gradients delivered."
    )
    assert headline(race()) == "No peer ran."


def test_peers_of_one_camp() -> None:
    result = race(run("gloo-tuned", 30.0), run("gloo-cubic", 60.0))
    assert "gloo-tuned reached 95% accuracy in 30.0 s, 2.00 times as fast as gloo-cubic (60.0 s)" in headline(result)


def test_a_lower_loss_is_better() -> None:
    result = made_up_race("gloo-tuned", "holdfast", metric="loss", target=1.0)
    assert headline(result).startswith("Holdfast reached a loss of 1 in ")
    missed = made_up_race("gloo-tuned", "holdfast", metric="loss", target=0.01)
    closest = min(missed.runs, key=lambda run: run.final_metric)
    assert by_arrival(missed)[0] is closest
    assert headline(missed).startswith("Nobody reached a loss of 0.01.")


def test_a_late_switch_is_an_alarm() -> None:
    result = made_up_race("gloo-tuned", "holdfast")
    assert remarks(result) == []
    late = SwitchLateness(30.0, 400.0, 2001.0, 9000.0, {})
    noisy = dataclasses.replace(result, runs=(result.runs[0], dataclasses.replace(result.runs[1], lateness=late)))
    (remark,) = remarks(noisy)
    assert remark.is_alarm
    assert remark.text.startswith("Not to be trusted: the lab's switch was late during holdfast (p99.9 up to 2.00 ms")


def test_loopback_is_said() -> None:
    (remark,) = remarks(on_loopback(PLAIN))
    assert remark.text.startswith("Plain loopback loses nothing")


def test_not_a_number_is_last() -> None:
    broken = dataclasses.replace(run("gloo", None), final_metric=math.nan)
    result = race(broken, run("holdfast", None, final=0.2))
    assert [run.peer for run in by_arrival(result)] == ["holdfast", "gloo"]
