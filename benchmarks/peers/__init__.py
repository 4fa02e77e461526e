"""Parts of benchmarks that run beside peers."""
