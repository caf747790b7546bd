"""docs/families.md, made from the families that are there: `python benchmarks/families.py`."""

from __future__ import annotations

from pathlib import Path

from zoo.converters import families as package
from zoo.converters.family import families

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "families.md"


def page() -> str:
    """The page: a family's name, what is unusual about it, and the lines of its file."""
    folder = Path(package.__path__[0])
    rows = [
        f"| `{family.model_type}` | {family.summary} | {lines(folder / (family.model_type + '.py'))} |"
        for family in families()
    ]
    return "\n".join(
        [
            "# Families",
            "",
            "Made by `python benchmarks/families.py`; a test compares it with what is there. Each family's logits are",
            "compared with those of `transformers` in float32 at every position, in every variant that its file names,",
            "short and beyond windows and original lengths, padded on either side, packed, in chunks and token by",
            "token; and its files come back from a store with their sha256.",
            "",
            "| `model_type` | what it is | lines |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
