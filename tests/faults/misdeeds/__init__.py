"""An app of its own: async commands that harm the event loop that they share, and what runs next to them."""
