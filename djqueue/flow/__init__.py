"""Flow control as pure rules: windows, gates, and the limits that users write. No I/O; the time comes in."""
