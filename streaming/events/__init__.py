"""Records become events or rejections: JSON lines and the bytes of `__consumer_offsets`."""
