"""The checker flags none of the models that are right: every family in every variant, block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zoo.comparison import check
from zoo.converters.family import Family

from .reference import write_checkpoint
from .test_families import CASES


@pytest.mark.parametrize(("family", "changes"), CASES)
def test_a_model_that_is_right_is_not_flagged(
    tmp_path: Path, family: Family, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, family.tiny, **changes)
    # The reports that CI publishes decode with one model of each family.
    monkeypatch.setattr(check, "continue_greedily", lambda *_: [])
    report = check.parity(tmp_path, longest=96)
    assert report.passed, "\n".join(report.lines())
    assert report.culprit is None
