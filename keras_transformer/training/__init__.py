"""Training: one compiled step that `fit` drives, and what stands around it."""
