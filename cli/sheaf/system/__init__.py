"""What the system offers: processes, programs, ELF files, the loader and the preloaded object."""
