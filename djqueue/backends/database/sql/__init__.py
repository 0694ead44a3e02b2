"""Every statement of the database backend: what vendors share, and a module per vendor."""
