"""Architectures of the tests, by their published dimensions, and an ideal device to do hand arithmetic on."""

from kvjax.hardware.device import Device

GPT_175B = dict(
    num_layers=96, hidden_size=12288, num_heads=96, num_kv_heads=96, head_dim=128, intermediate_size=49152,
    vocab_size=50257, gated_mlp=False, tie_embeddings=True, name="gpt-175b",
)  # fmt: skip
LLAMA_2_7B = dict(
    num_layers=32, hidden_size=4096, num_heads=32, num_kv_heads=32, head_dim=128, intermediate_size=11008,
    vocab_size=32000, name="llama-2-7b",
)  # fmt: skip
LLAMA_2_13B = dict(
    num_layers=40, hidden_size=5120, num_heads=40, num_kv_heads=40, head_dim=128, intermediate_size=13824,
    vocab_size=32000, name="llama-2-13b",
)  # fmt: skip
LLAMA_2_70B = dict(
    num_layers=80, hidden_size=8192, num_heads=64, num_kv_heads=8, head_dim=128, intermediate_size=28672,
    vocab_size=32000, name="llama-2-70b",
)  # fmt: skip
SMOLLM2_135M = dict(
    num_layers=30, hidden_size=576, num_heads=9, num_kv_heads=3, head_dim=64, intermediate_size=1536,
    vocab_size=49152, tie_embeddings=True, name="smollm2-135m",
)  # fmt: skip

IDEAL = Device(
    usable_memory=72e9,
    weight_bandwidth=2e12,
    kv_bandwidth=2e12,
    flops=float("inf"),
    layer_overhead=0.0,
    minimum_zone=0.0,
    reread=1.0,
    link_bandwidth=float("inf"),
    link_latency=0.0,
)
"""2 TB/s, 80 GB of which 90 % are usable, and nothing else that costs time."""

AT_92_PERCENT = IDEAL._replace(weight_bandwidth=1.84e12, kv_bandwidth=1.84e12)
