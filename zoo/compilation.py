"""Compiled programs kept between runs of the command line."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path

from .catalog import cache_folder


def keep_compiled_programs() -> None:
    """Lets a later run of the same model start without compiling: a private folder of the user holds the programs.

    They are machine code, so the folder is named after the library and the processor they were made for.
    """
    import jax

    name = f"{version('jaxlib')}-{jax.default_backend()}-{_processor()}"
    folder = cache_folder() / "compiled" / name
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # By default only programs that took a second or more are kept; a small model has none.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _processor() -> str:
    """A name for the kind of processor, its instruction sets included."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    described = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256("\n".join([platform.machine(), *described]).encode()).hexdigest()[:16]
