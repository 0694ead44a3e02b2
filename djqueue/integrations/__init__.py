"""What djqueue reports to other tools: metrics for Prometheus, spans for OpenTelemetry, events for Sentry."""
