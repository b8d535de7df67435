"""The demo's training job: torch's own tensor, pipeline and data parallelism on CPUs over gloo."""
