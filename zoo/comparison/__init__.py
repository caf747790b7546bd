"""Whether a model computes what another implementation of it computes, and where not.

Both sides go through the network together, one block at a time, so that neither is ever in memory as a whole:

    probe.py          what is given to both: documents, and how ours lie in a batch
    reference.py      the reference: `transformers`, in float32 on a CPU
    recording.py      what happens inside its blocks
    native.py         our side; also the other side, where two of our models are compared
    lockstep.py       both, block by block, and every difference on the way
    statistics.py     what is measured of two sets of logits
    tolerance.py      how much may differ, by compute dtype
    culprit.py        the first value that differs, and the tensors behind it
    sides.py          what `zoo parity` is given, opened
    greedy.py         continuations through the real decode path
    checks.py         the conditions
    records.py        what was measured, in the form of
    report.py         the result; report_folder.py writes it, page.py is its `report.html`
    check.py          all of it, for `zoo parity`
"""

from .lockstep import Comparison, compare_layers
from .native import Native
from .probe import Probe, make_probe
from .reference import Reference
from .tolerance import TOLERANCES, Tolerance

__all__ = ["TOLERANCES", "Comparison", "Native", "Probe", "Reference", "Tolerance", "compare_layers", "make_probe"]
