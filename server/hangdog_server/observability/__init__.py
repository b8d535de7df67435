"""What the server tells of itself: Prometheus metrics, OpenTelemetry traces, counts of gRPC."""
