/* Only in the static library: marks the program, so that `sheaf run` knows that it uses Sheaf without preloading. */
__asm__(".pushsection .note.sheaf, \"a\", %note\n\t"
        ".balign 4\n\t"
        ".long 6, 0, 1\n\t"
        ".asciz \"Sheaf\"\n\t"
        ".balign 4\n\t"
        ".popsection\n");
