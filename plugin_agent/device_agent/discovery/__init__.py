"""Finding devices: one module per source, and the kernel's word that something changed."""
