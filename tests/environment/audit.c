/* An auditing library for LD_AUDIT. With it a program has two namespaces of objects, and so two mallocs. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>

unsigned int la_version(unsigned int version)
{
    free(malloc(100)); /* libc's own malloc: nothing is preloaded into this namespace */
    return version;
}

unsigned int la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie)
{
    (void)map, (void)lmid, (void)cookie;
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}
