"""A small client that moves raw batches."""
