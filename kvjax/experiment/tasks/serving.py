"""Task `serving`: predicted speed of the experiment's deployment; nothing is run."""

from dataclasses import dataclass
from typing import Any

from kvjax.compressor import Compressor
from kvjax.experiment.config import Serving as Deployment
from kvjax.experiment.prediction import predict_serving
from kvjax.models import ModelConfig


@dataclass(frozen=True)
class Serving:
    """Predicted TTFT, TPOT and tokens/s of a deployment, from the cost model."""

    config: ModelConfig
    name: str
    deployment: Deployment

    def prepare(self, index: int) -> None:
        """Nothing is shared."""

    def measure(self, shared: None, compressor: Compressor) -> dict[str, Any]:
        """The prediction's figures, in seconds, tokens/s and bytes."""
        d = self.deployment
        predicted = predict_serving(
            self.config,
            compressor,
            name=self.name,
            hardware=d.hardware,
            devices=d.devices,
            batch=d.batch,
            input_tokens=d.input_tokens,
            output_tokens=d.output_tokens,
        )
        names = ("ttft", "tpot", "decode_tokens_per_second", "tokens_per_second", "kv_stored_bytes", "max_batch")
        return {name: getattr(predicted, name) for name in names}
