"""What the documentation says about families, made from the registry: docs/families.md and a table in README.md.

`make docs` writes both; a test fails where they are not what would be written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from zoo.catalog import listed
from zoo.converters import families as package
from zoo.converters.family import Family, families
from zoo.listing import PROOFS, proven

ROOT = Path(__file__).parent.parent
README, PAGE = ROOT / "README.md", ROOT / "docs" / "families.md"
START, END = "<!-- families: `make docs` writes this -->", "<!-- end of families -->"
PAGE_TEXT = """# Families

Made from the registry by `make docs`. A family is one file in `converters/families/`; *lines* are that file's. What is
proven is what the tests in `parity_tests/` prove of every file in there, each in several small configurations with
random parameters: *import* and *export* are logits equal to those of `transformers` at every position, and files that
come back with their sha256; *decode* is reading in parts and token by token with equal results. *gguf* is that GGUF
files of the architecture are read.

{families}

{count} files, {lines} lines. Names in the catalog, by family:

{names}
"""


def readme(text: str) -> str:
    """The README with its table made anew."""
    head = ["family", "models", *PROOFS]
    rows = [[f"`{family.model_type}`", _models(family), *_ticks(family)] for family in families()]
    table = "\n".join(_markdown(head, rows))
    return re.sub(rf"(?s)(?<={re.escape(START)}\n).*?(?={re.escape(END)})", lambda _: table + "\n", text)


def page() -> str:
    """docs/families.md."""
    head = ["family", "lines", *PROOFS, "what is unusual"]
    rows = [[f"`{f.model_type}`", str(_lines(f)), *_ticks(f), f.summary] for f in families()]
    names = {
        family.model_type: [name for name, e in listed().items() if e.family == family.model_type]
        for family in families()
    }
    return PAGE_TEXT.format(
        families="\n".join(_markdown(head, rows)),
        count=len(rows),
        lines=sum(map(_lines, families())),
        names="\n".join(f"- `{family}`: {', '.join(found)}" for family, found in names.items() if found),
    )


def main() -> None:
    """Writes both."""
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return [lines[0], "|---" * len(head) + "|", *lines[1:]]


def _models(family: Family) -> str:
    """Which models these are: the summary says so before it says what is unusual."""
    return family.summary.split(":")[0].rstrip(".")


def _ticks(family: Family) -> list[str]:
    return ["✓" if whether else "-" for whether in proven(family).values()]


def _lines(family: Family) -> int:
    path = Path(package.__path__[0], f"{family.model_type}.py")
    return len(path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
