"""Files that agents keep: one interface, and the places where the bytes can be."""
