"""Named configurations. BASE is the paper's base model; every other preset states what differs from it.

The rows of Table 3 are written as the paper prints them: only the cells that are not blank.
"""

from keras_transformer.config import Config, ConfigError, did_you_mean

BASE = Config()

# For small corpora (tens of thousands of pairs) on a small machine: network, optimizer, batches and rate of the best
# recipe for Multi30k (docs/results.md), without its cooldown, as no run may be shorter than its cooldown.
TINY = BASE.replace(
    model=dict(num_encoder_layers=4, num_decoder_layers=4, d_model=128, d_ff=256, num_heads=4, dropout=0.3, norm="pre"),
    data=dict(vocab_size=10_000),
    train=dict(
        steps=12_000,
        tokens_per_batch=2048,  # many small steps
        optimizer="muon",
        warmup_steps=1000,
        learning_rate_scale=1.5,  # peak 0.0042
        checkpoint_steps=250,
        checkpoint_minutes=None,
        keep_checkpoints=10,
        average_checkpoints=10,
    ),
)

PRESETS = {
    "base": BASE,
    "big": BASE.replace(
        model=dict(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
        train=dict(steps=300_000, average_checkpoints=20, keep_checkpoints=20),
    ),
    "small": BASE.replace(
        model=dict(num_encoder_layers=3, num_decoder_layers=3, d_model=256, d_ff=1024, num_heads=4),
    ),
    "tiny": TINY,
    # The built-in corpus, learnt within minutes on two cores.
    "demo": TINY.replace(
        model=dict(dropout=0.0, norm="post"),  # the grammar makes any number of sentences
        data=dict(train="demo", max_pairs=60_000, vocab_size=1000, buckets=3),
        train=dict(
            steps=600,
            tokens_per_batch=4096,
            optimizer="adam",
            warmup_steps=400,
            learning_rate_scale=1.0,
            checkpoint_steps=30,
            average_checkpoints=3,
            valid_steps=300,
            valid_sentences=100,
        ),
    ),
    "table3_a1": BASE.replace(model=dict(num_heads=1, d_k=512, d_v=512)),
    "table3_a2": BASE.replace(model=dict(num_heads=4, d_k=128, d_v=128)),
    "table3_a3": BASE.replace(model=dict(num_heads=16, d_k=32, d_v=32)),
    "table3_a4": BASE.replace(model=dict(num_heads=32, d_k=16, d_v=16)),
    "table3_b1": BASE.replace(model=dict(d_k=16)),
    "table3_b2": BASE.replace(model=dict(d_k=32)),
    "table3_c1": BASE.replace(model=dict(num_encoder_layers=2, num_decoder_layers=2)),
    "table3_c2": BASE.replace(model=dict(num_encoder_layers=4, num_decoder_layers=4)),
    "table3_c3": BASE.replace(model=dict(num_encoder_layers=8, num_decoder_layers=8)),
    "table3_c4": BASE.replace(model=dict(d_model=256, d_k=32, d_v=32)),
    "table3_c5": BASE.replace(model=dict(d_model=1024, d_k=128, d_v=128)),
    "table3_c6": BASE.replace(model=dict(d_ff=1024)),
    "table3_c7": BASE.replace(model=dict(d_ff=4096)),
    "table3_d1": BASE.replace(model=dict(dropout=0.0)),
    "table3_d2": BASE.replace(model=dict(dropout=0.2)),
    "table3_d3": BASE.replace(train=dict(label_smoothing=0.0)),
    "table3_d4": BASE.replace(train=dict(label_smoothing=0.2)),
    "table3_e": BASE.replace(model=dict(positions="learned")),
}


def preset(name: str) -> Config:
    """The configuration called `name`."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(f"Unknown preset `{name}`.{did_you_mean(str(name), PRESETS)}")
    return PRESETS[name]
