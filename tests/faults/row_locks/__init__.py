"""An app of its own: async commands of which some wait for a row that another process has locked."""
