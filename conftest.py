"""For tests/ and parity_tests/ alike, and before any of them imports jax."""

from __future__ import annotations

import os

from hypothesis import settings

# The tolerances are those of float32 on the CPU; an accelerator would compute in fewer bits.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time goes into compiling small programs that run once: their code need not be fast.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# Nothing here needs a hub; a name that would be looked up there is a mistake, and fails at once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# The same examples in each run, and no deadline: compiling and a loaded machine take the time they take.
settings.register_profile("zoo", derandomize=True, deadline=None)
settings.load_profile("zoo")
