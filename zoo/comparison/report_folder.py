"""The folder of a report: `report.json`, `report.md` and `report.html`."""

from __future__ import annotations

import json
from pathlib import Path

from zoo.models.checkpoint import is_store
from zoo.models.errors import ZooError
from zoo.models.json_file import read_json

from .page import page
from .report import Report

FILES = ("report.json", "report.md", "report.html")


def write_report(report: Report, folder: Path) -> None:
    """Writes report.json, report.md and report.html into a folder, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = (
        json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n",
        report.markdown(),
        page(report),
    )
    for name, content in zip(FILES, contents, strict=True):
        temporary = folder / f".{name}.tmp"
        try:
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(folder / name)
        finally:
            temporary.unlink(missing_ok=True)


def check_report_folder(folder: Path) -> None:
    """Refuses, before the work is done, a folder that the report could not be written to."""
    if folder.exists() and not folder.is_dir():
        raise ZooError(f"--report {folder}: expected a folder, found a file")
    for name in FILES:
        if (folder / name).is_dir():
            raise ZooError(f"--report {folder}: {name} is a folder; name another one")
    if is_store(folder) or (folder / "config.json").is_file():
        raise ZooError(f"--report {folder}: a model is there; name another folder")
    existing = folder / "report.json"
    if existing.is_file() and "schema_version" not in read_json(existing):
        raise ZooError(f"--report {folder}: its report.json is none of zoo's; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
