"""What is Redis's own about the Redis backend; what it shares with all others is under tests/backends/contract."""
