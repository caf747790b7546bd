"""Training, on the same models: empty until fine-tuning is built."""
