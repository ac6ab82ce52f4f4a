"""Arguments nobody should give: numbers, tensors, settings and states, mostly wrong."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st

from holdfast.config import Config

ranks = st.sampled_from([0, 1, 2])
strange_integers = st.sampled_from([0, 1, 2, 3, 63, 65_535, 65_536, 2**31, 2**32 - 1, 2**32, 2**64, -1])
# A wait may last as long as it is told to, so what is told is either short or no duration at all.
waits_s = st.sampled_from([0.0, 0.001, 0.05, 0.2, -0.0, -1.0, -1e300, math.nan, math.inf, -math.inf, 1e-300])
waits_ms = waits_s.map(lambda seconds: seconds * 1e3)
not_numbers = st.sampled_from([None, "1", b"1", [], object()])
notes = st.sampled_from([b"", b"x", b"y" * 3_000, b"z" * 200_000])
# By name: hypothesis prints what it draws from.
WRONG_CONTENTS: dict[str, Any] = {
    "nothing": None,
    "text": "text",
    "a list": [1, 2],
    "a number": 5,
    "too long": bytes((64 << 20) + 1),
}


def _tensors() -> dict[str, Any]:
    """Made anew for every call: an operation writes into its tensor."""
    return {
        "good": lambda: torch.ones(5_000),
        "another size": lambda: torch.ones(4_999),
        "bf16": lambda: torch.ones(300, dtype=torch.bfloat16),
        "f16": lambda: torch.ones(1, dtype=torch.float16),
        "f64": lambda: torch.ones(7, dtype=torch.float64),
        "nan": lambda: torch.full((64,), math.nan),
        "infinite": lambda: torch.full((64,), math.inf),
        "empty": lambda: torch.empty(0),
        "no dimension": lambda: torch.tensor(1.0),
        "needs a gradient": lambda: torch.ones(10, requires_grad=True),
        "not contiguous": lambda: torch.ones(8, 8).t()[1:],
        "every other": lambda: torch.ones(20)[::2],
        "a view": lambda: torch.ones(100)[3:90],
        "integers": lambda: torch.ones(10, dtype=torch.int64),
        "booleans": lambda: torch.ones(10, dtype=torch.bool),
        "complex": lambda: torch.ones(10, dtype=torch.complex64),
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
        "meta": lambda: torch.empty(10, device="meta"),
        "huge and nowhere": lambda: torch.empty(1 << 40, device="meta"),
        "huge by stride": lambda: torch.ones(1).expand(1 << 36),
        "sparse": lambda: torch.ones(4, 4).to_sparse(),
        "sparse rows": lambda: torch.ones(4, 4).to_sparse_csr(),
        "large": lambda: torch.ones(1 << 20),
    }


TENSORS = _tensors()
tensor_names = st.one_of(st.just("good"), st.sampled_from(sorted(TENSORS)))

states = st.sampled_from(
    [
        None,
        [],
        "state",
        {},
        {"version": 1},
        {"version": 2, "deadline_ms": 1.0},
        {"version": 1, "deadline_ms": None},
        {"version": 1, "deadline_ms": 50.0},
        {"version": 1, "deadline_ms": "50"},
        {"version": 1, "deadline_ms": "soon"},
        {"version": 1, "deadline_ms": math.nan},
        {"version": 1, "deadline_ms": math.inf},
        {"version": 1, "deadline_ms": -1.0},
        {"version": 1, "deadline_ms": []},
    ]
)

_values = st.one_of(
    st.sampled_from([0, 1, -1, 2**31, 2**64, 0.5, -0.5, 1e-9, 1e12, math.nan, math.inf, None, "", "x", True, b"x", []]),
    st.integers(-(2**40), 2**40),
    st.floats(),
)
_names = [*Config.__dataclass_fields__, "no_such_setting"]
settings = st.dictionaries(st.sampled_from(_names), _values, max_size=3)
