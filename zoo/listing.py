"""What `zoo list` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.converters.family import families
from zoo.converters.gguf_config import ARCHITECTURES as GGUF_ARCHITECTURES

from .catalog import catalog


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
                    "gguf": family.model_type in GGUF_ARCHITECTURES,
                }
                for family in families()
            ],
            [entry.as_json() for entry in catalog().values()],
        )

    def as_json(self) -> dict[str, Any]:
        return {"families": self.families, "catalog": self.catalog}

    def lines(self) -> list[str]:
        formats = {True: "Hugging Face, GGUF", False: "Hugging Face"}
        return [
            "families",
            *(f"  {f['model_type']:<24} {f['summary']} ({formats[f['gguf']]})" for f in self.families),
            "catalog",
            *(f"  {e['name']:<24} {e['description']}, {e['bytes'] / 1e6:.0f} MB, {e['licence']}" for e in self.catalog),
        ]
