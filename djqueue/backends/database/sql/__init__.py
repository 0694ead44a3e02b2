"""Every statement of the database backend: a module per subject, and one per vendor."""
