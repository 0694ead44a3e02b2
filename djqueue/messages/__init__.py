"""Messages: the signed envelope, its codecs, its metadata, and the errors that travel with it."""
