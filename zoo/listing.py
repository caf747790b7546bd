"""What `zoo list` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zoo.converters.family import Family, families

from .catalog import listed
from .sizes import count

PROOFS = ("import", "export", "gguf", "decode", "train")
# What parity tests that run over the whole registry prove, so of whatever is in it. Their marks say what that is, and a
# test compares.
OF_EVERY_FAMILY = frozenset({"import", "export", "decode"})


def proven(family: Family) -> dict[str, bool]:
    """What tests prove of a family: nothing here is claimed by hand."""
    return {proof: proof in OF_EVERY_FAMILY or (proof == "gguf" and family.gguf is not None) for proof in PROOFS}


@dataclass(frozen=True)
class Listing:
    """The model families and the named checkpoints."""

    families: list[dict[str, Any]]
    catalog: list[dict[str, Any]]

    @classmethod
    def of_everything(cls) -> Listing:
        return cls(
            [
                {
                    "model_type": family.model_type,
                    "summary": family.summary,
                    "architectures": list(family.architectures),
                    "gguf": proven(family)["gguf"],
                    "proven": proven(family),
                }
                for family in families()
            ],
            [entry.as_json() for entry in listed().values()],
        )

    def as_json(self) -> dict[str, Any]:
        return {"families": self.families, "catalog": self.catalog}

    def lines(self) -> list[str]:
        return [
            *table(
                ["family", *PROOFS, "what it is"],
                [[f["model_type"], *map(_tick, f["proven"].values()), f["summary"]] for f in self.families],
            ),
            "",
            *table(
                ["name", "family", "parameters", "weights", "licence", "hub"],
                [
                    [e["name"], e["family"], count(e["parameters"]), _weights(e), e["licence"], e["hub_id"]]
                    for e in self.catalog
                ],
            ),
            "",
            "Weights of a size are fetched when the name is used; the others must be downloaded from the hub first.",
        ]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines in which the columns are as wide as what is in them."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (head, *rows)]


def _tick(whether: bool) -> str:
    return "yes" if whether else "-"


def _weights(entry: dict[str, Any]) -> str:
    return "hub" if entry["bytes"] is None else f"{entry['bytes'] / 1e6:.0f} MB"
