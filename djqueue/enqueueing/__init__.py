"""The enqueue side of a call: commands, batch commands, and the producer."""
