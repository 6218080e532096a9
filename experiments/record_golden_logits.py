"""Record logits of tiny random checkpoints, one an architecture, from transformers: what tests/models compares with.

Runs in an environment with torch and transformers (recorded with 5.2.0), which kvjax itself never imports:

    python experiments/record_golden_logits.py [folder, default tests/data/golden]

Each folder gets config.json and safetensors as transformers writes them, and golden.npz with `tokens` i32 [B, T] and
`logits` f32 [B, T, V]. Weights are stored in float16 and both sides compute in float32, so the files stay small and
nothing is lost. Random norm weights and biases (not ones and zeros) and a large epsilon make every factor visible;
sequences are longer than every sliding window; head_dim differs from hidden_size / heads where the architecture allows.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

SIZES = {"vocab_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
SMALL = {**SIZES, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "rms_norm_eps": 0.01}

# Scaled RoPE with a short pretraining context, so that low, middle and high frequencies all occur.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}

CONFIGS = {
    "llama": transformers.LlamaConfig(**SMALL, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "llama3": transformers.LlamaConfig(**SMALL, rope_parameters=LLAMA3),
    "llama-linear": transformers.LlamaConfig(**SMALL, rope_parameters=LINEAR, head_dim=16),
    "mistral": transformers.MistralConfig(**SMALL, sliding_window=7),
    "qwen2": transformers.Qwen2Config(**SMALL, rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0}),
    "qwen2-sliding": transformers.Qwen2Config(
        **{**SMALL, "num_hidden_layers": 3}, use_sliding_window=True, sliding_window=6, max_window_layers=1
    ),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=16),
    "gemma3": transformers.Gemma3TextConfig(
        **{**SMALL, "num_hidden_layers": 7},
        head_dim=16,
        sliding_window=6,
        query_pre_attn_scalar=24,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    ),
}
SHARDED = "llama3"


def record(name: str, config: transformers.PreTrainedConfig, folder: Path) -> None:
    """Make the checkpoint, run it, write both."""
    torch.manual_seed(list(CONFIGS).index(name))
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            spread = 0.3 if weight.ndim == 1 else weight.shape[-1] ** -0.5
            center = 1.0 if key.endswith("norm.weight") and "gemma3" not in name else 0.0
            weight.copy_((center + spread * torch.randn_like(weight)).half().float())
        tokens = torch.randint(0, config.vocab_size, (2, 24))
        logits = model(tokens).logits
    model.half().save_pretrained(folder, max_shard_size="30KB" if name == SHARDED else "5GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    np.savez(folder / "golden.npz", tokens=tokens.numpy().astype(np.int32), logits=logits.numpy())
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: logits' standard deviation {logits.std():.3f}, {size} bytes")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "tests" / "data" / "golden"
    print("transformers", transformers.__version__, "torch", torch.__version__)
    for name, config in CONFIGS.items():
        (target / name).mkdir(parents=True, exist_ok=True)
        record(name, config, target / name)
