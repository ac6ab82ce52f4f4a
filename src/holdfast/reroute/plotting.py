"""plotly, loaded when a picture is asked for: it is optional and slow to import."""

from __future__ import annotations

from typing import Any

from holdfast.errors import PlanError


def plotly_parts() -> tuple[Any, Any]:
    """plotly's graph objects and make_subplots."""
    try:
        import plotly.graph_objects as graph_objects
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise PlanError("Pictures need plotly.", what_to_try="pip install 'holdfast[plan]'") from error
    return graph_objects, make_subplots
