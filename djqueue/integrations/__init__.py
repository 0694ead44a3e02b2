"""What djqueue tells other tools: metrics for Prometheus, spans for OpenTelemetry, events for Sentry."""
