/* Options that the cases are run with. */
#include "config/config.h"

#include <stdlib.h>

void sheaf_configure(struct sheaf_config *config)
{
    const char *rseq = getenv("SHEAF_RSEQ");
    if (rseq && rseq[0] == 'o')
        config->rseq = RSEQ_OFF;
}
