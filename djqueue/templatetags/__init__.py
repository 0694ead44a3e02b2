"""Template tags of djqueue."""
