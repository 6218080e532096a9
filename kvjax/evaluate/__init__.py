"""What a compressed cache does to answers: probes, perplexity, retrieval; every difference with its error bar."""

from kvjax.evaluate.metrics import agreement, kl, log_softmax, nll
from kvjax.evaluate.needle import NeedlePrompt, NeedleResult, NeedleTask, needle, needle_prompt, retrieve
from kvjax.evaluate.perplexity import perplexity, token_nll
from kvjax.evaluate.probe import Probe, continuation_logits, probe
from kvjax.evaluate.statistics import (
    Interval,
    bootstrap_mean,
    bootstrap_ratio,
    mean_difference,
    relative_change,
    wilson,
)
from kvjax.evaluate.text import default_text, default_tokens, fingerprint

__all__ = [
    "Interval",
    "NeedlePrompt",
    "NeedleResult",
    "NeedleTask",
    "Probe",
    "agreement",
    "bootstrap_mean",
    "bootstrap_ratio",
    "continuation_logits",
    "default_text",
    "default_tokens",
    "fingerprint",
    "kl",
    "log_softmax",
    "mean_difference",
    "needle",
    "needle_prompt",
    "nll",
    "perplexity",
    "probe",
    "relative_change",
    "retrieve",
    "token_nll",
    "wilson",
]
