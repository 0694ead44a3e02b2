"""What other tools of a project get from djqueue: metrics for Prometheus, spans for OpenTelemetry, events for Sentry."""
