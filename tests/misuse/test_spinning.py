"""Misuse: the public API called in random order with random arguments neither hangs nor crashes, and refuses by name.

The calls are made by `spinner.py` in a process of its own, so that a crash is a failed test with the calls that led to
it. SPIN_SECONDS in the environment makes it longer (5 if unset), SPIN_SEED draws other calls.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SECONDS = float(os.environ.get("SPIN_SECONDS", "5"))
SEED = int(os.environ.get("SPIN_SEED", "1"))
# Start-up, the last round, and one call that hangs until its limit.
SLACK_S = 200.0

pytestmark = pytest.mark.xdist_group("programs")


def run_python(*arguments: str, limit_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
        check=False,
    )


def last_calls(output: str) -> str:
    return "\n".join(output.splitlines()[-120:])


@pytest.mark.timeout(SECONDS + SLACK_S + 20)
def test_calls_in_any_order_neither_hang_nor_crash() -> None:
    ended = run_python("spinner.py", "--seed", str(SEED), "--seconds", str(SECONDS), limit_s=SECONDS + SLACK_S)
    if ended.returncode != 0:
        pytest.fail(f"seed {SEED}, ended with {ended.returncode}:\n{last_calls(ended.stdout)}", pytrace=False)
    summary = ended.stdout.splitlines()[-1]
    answered, refused = (int(word) for word in summary.split() if word.isdigit())
    assert answered > 50, summary  # calls that were all refused would prove nothing
    assert refused > 20, summary


# ------------------------------------------------------------------------------------- the judge can condemn


def judged(call: str) -> subprocess.CompletedProcess[str]:
    program = f"""
        import os, time, caller
        caller.CALL_LIMIT_S = 0.5
        def raises(error): raise error
        calls = caller.Caller()
        {call}
        calls.join()
        print("condemned nothing")
    """
    return run_python("-c", textwrap.dedent(program), limit_s=60)


@pytest.mark.parametrize("how", ["call", "spawn"])
def test_what_is_documented_may_be_raised(how: str) -> None:
    ended = judged(f"calls.{how}('named', lambda: raises(ValueError('an argument')))")
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "condemned nothing")


@pytest.mark.parametrize("how", ["call", "spawn"])
@pytest.mark.parametrize("error", ["KeyError('x')", "RuntimeError('x')", "SystemExit(0)"])
def test_what_is_not_documented_is_a_finding(how: str, error: str) -> None:
    ended = judged(f"calls.{how}('strange', lambda: raises({error}))")
    assert ended.returncode == 1
    assert "Undocumented" in ended.stdout
    assert "strange" in ended.stdout


@pytest.mark.parametrize("how", ["call", "spawn"])
def test_a_call_that_hangs_ends_the_process_with_its_stack(how: str) -> None:
    ended = judged(f"calls.{how}('endless', lambda: time.sleep(100))")
    assert ended.returncode == 1
    assert "Timeout" in ended.stdout
    assert "endless" in ended.stdout


def test_a_crash_leaves_the_call_that_caused_it() -> None:
    ended = judged("calls.call('fatal', os.abort)")
    assert ended.returncode < 0
    assert "fatal" in ended.stdout
