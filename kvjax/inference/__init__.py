"""The one driver that joins model, compressor, cache and attention."""

from kvjax.inference.chat import ask, split_prompt
from kvjax.inference.decoding import Generation, decode, generate
from kvjax.inference.prefilling import forward, prefill
from kvjax.inference.sampling import GREEDY, Sampling

__all__ = ["GREEDY", "Generation", "Sampling", "ask", "decode", "forward", "generate", "prefill", "split_prompt"]
