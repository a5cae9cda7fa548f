"""From text to batches: sources -> cleaning -> corpus -> batches; `prepare` does all of it for a run's configuration."""
