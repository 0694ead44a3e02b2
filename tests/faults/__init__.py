"""Faults: real consumers killed, stopped and cut off from their stores. Also an app, whose commands they run."""
