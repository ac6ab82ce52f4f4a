from __future__ import annotations

from itertools import pairwise

from holdfast.lab.race.page.step_charts import MAX_SHOWN_STEPS, distribution, over_training
from lab.race.made_up_races import PACES, made_up_race


def test_all_strips_have_one_scale_and_do_not_overlap() -> None:
    chart = over_training(made_up_race(*PACES, num_steps=300))
    assert chart.figure is not None
    axes = [axis for name, axis in chart.figure["layout"].items() if name.startswith("yaxis")]
    assert len(axes) == len(PACES)
    assert len({tuple(axis["range"]) for axis in axes}) == 1
    tops_first = [axis["domain"] for axis in axes]
    assert all(below[1] < above[0] + 1e-9 for above, below in pairwise(tops_first))
    assert all(0 <= low < high <= 1 for low, high in tops_first)


def test_the_caption_says_that_steps_were_left_out() -> None:
    few, many = made_up_race("holdfast", num_steps=MAX_SHOWN_STEPS), made_up_race("holdfast", num_steps=5000)
    assert "At most" not in over_training(few).caption
    assert f"At most {MAX_SHOWN_STEPS} steps" in over_training(many).caption
    figure = over_training(many).figure
    assert figure is not None
    assert len(figure["data"][0]["x"]) <= MAX_SHOWN_STEPS
    assert max(figure["data"][0]["y"]) == max(many.runs[0].step_ms)


def test_percentiles_are_the_ones_of_the_table() -> None:
    result = made_up_race("gloo-tuned", "holdfast", num_steps=1000)
    figure = distribution(result).figure
    assert figure is not None
    marks = [trace for trace in figure["data"] if "markers" in trace["mode"]]
    assert [trace["y"] for trace in marks] == [[run.step_p50_ms, run.step_p99_ms] for run in result.runs]
    assert [trace["x"] for trace in marks] == [[2, 100]] * 2


def test_a_long_tail_is_drawn_logarithmically() -> None:
    long = distribution(made_up_race("gloo-cubic", "holdfast")).figure
    short = distribution(made_up_race("holdfast")).figure
    assert long is not None
    assert short is not None
    assert long["layout"]["yaxis"]["type"] == "log"
    assert "type" not in short["layout"]["yaxis"]
