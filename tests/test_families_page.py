"""docs/families.md and the README's table say what is there."""

from benchmarks.families import PAGE, README, page, readme
from zoo.converters.family import families


def test_the_page_is_the_one_that_is_made() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_readme_has_the_table_that_is_made() -> None:
    written = README.read_text(encoding="utf-8")
    assert written == readme(written), "run `make docs`"
    assert all(f"| `{family.model_type}` |" in written for family in families())
