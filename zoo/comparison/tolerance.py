"""How much may differ, by the dtype that we compute in; the reference computes in float32."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Tolerance(BaseModel):
    """The most that each measure may be.

    Attributes:
        logits_largest: the largest difference of a logit, as a part of the largest logit.
        logits_rms: the root mean square of the differences, as a part of that of the logits.
        kl_largest: the largest divergence at any position, in nats.
        value_rms: a block by itself, given the reference's activations: the root mean square of the differences of each
            value in it, as a part of that of the value.
        ties: of a mixture of experts, the part of tokens that need not be compared. Where two experts are almost as
            likely, rounding decides which is chosen, and everything after it is another token's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    logits_largest: float
    logits_rms: float
    kl_largest: float
    value_rms: float
    ties: float = 0.0

    def of_values(self, reach: int) -> float:
        """The most that a value may differ in a document whose last position is about `reach`.

        The angle of a rotation is a position times a frequency in float32. Where frequencies differ in their last bit,
        angles differ by as much as the position times 2 ** -24, in the mean over frequencies by less than half of it.
        """
        return self.value_rms + reach * 2.0**-25


# Measured over every family, in every variant, with random parameters; see docs/parity.md.
TOLERANCES = {
    "float32": Tolerance(logits_largest=1e-4, logits_rms=2e-5, kl_largest=1e-6, value_rms=5e-6),
    "bfloat16": Tolerance(logits_largest=0.4, logits_rms=0.15, kl_largest=0.4, value_rms=0.04, ties=0.1),
    "float16": Tolerance(logits_largest=0.1, logits_rms=0.02, kl_largest=0.03, value_rms=8e-3, ties=0.1),
}
