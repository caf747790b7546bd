"""The checker flags none of the models that are right: every family in every variant, block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zoo.comparison import check
from zoo.converters.family import families

from .reference import write_checkpoint

# The reports that CI publishes have the others.
VARIANTS = [
    pytest.param({**family.tiny, **changes}, id=f"{family.model_type}-{name}")
    for family in families()
    for name, changes in family.variants.items()
]


@pytest.mark.parametrize("fields", VARIANTS)
def test_a_model_that_is_right_is_not_flagged(
    tmp_path: Path, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, fields)
    # They decode, too.
    monkeypatch.setattr(check, "continue_greedily", lambda *_: [])
    report = check.parity(tmp_path, longest=96)
    assert report.passed, "\n".join(report.lines())
    assert report.culprit is None
