"""docs/families.md and the README's list say what is there."""

import re
from pathlib import Path

from benchmarks.families import PAGE, page
from zoo.converters.family import families

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_page_is_the_one_that_is_made() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python benchmarks/families.py`"


def test_the_readme_names_every_family_and_no_other() -> None:
    found = re.search(r"^Families: (.*?)\.$", README, re.DOTALL | re.MULTILINE)
    assert found is not None
    assert re.findall(r"\w+", found.group(1)) == [family.model_type for family in families()]
