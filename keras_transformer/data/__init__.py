"""From text to batches: sources -> cleaning -> corpus -> batches; `prepare` does it all for one run."""
