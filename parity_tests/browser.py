"""A headless browser, where one is installed."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
MORE_FLAGS = ("--disable-component-update", "--disable-sync", "--disable-quic", "--virtual-time-budget=4000")
WRAPPER = """<!doctype html><html><body><iframe id="page" width="{width}" height="{height}" srcdoc="{page}"></iframe>
<pre id="result"></pre><script>onload = () => {{
  const page = document.getElementById("page").contentDocument;
  const result = ({script})(page);
  document.getElementById("result").textContent = JSON.stringify(result);
}}</script></body></html>"""


def browser() -> str:
    """Its path; skips the test where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no browser: install chromium")
    return found


def measured(page: Path, script: str, folder: Path, width: int = 390, height: int = 844) -> str:
    """What a JavaScript function makes of a page's document in a window of that size, as JSON."""
    wrapper = folder / "wrapper.html"
    content = html.escape(page.read_text(encoding="utf-8"), quote=True)
    wrapper.write_text(WRAPPER.format(width=width, height=height, page=content, script=script), encoding="utf-8")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [browser(), *FLAGS, *MORE_FLAGS, profile, "--dump-dom", wrapper.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    [result] = re.findall(r'<pre id="result">(.*?)</pre>', ran.stdout, re.DOTALL)
    return html.unescape(result)
