/* The programs link the core without the preloaded object, so only SHEAF_RSEQ=off is read from the environment. */
#include "platform/config/config.h"

#include <stdlib.h>

void sheaf_configure(struct sheaf_config *config)
{
    const char *rseq = getenv("SHEAF_RSEQ");
    if (rseq && rseq[0] == 'o')
        config->rseq = RSEQ_OFF;
}
