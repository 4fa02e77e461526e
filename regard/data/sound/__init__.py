"""Sound: read from files, resampled, made into log-mel frames, kept, varied and batched."""
