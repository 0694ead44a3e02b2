"""The run side of a call: from a lease to a verdict, and from verdicts back to the queue."""
