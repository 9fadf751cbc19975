#include "platform/rseq/membarrier.h"
#include "platform/os/syscall.h"

#include <errno.h>

enum { /* linux/membarrier.h, Linux 5.10 */
       CMD_PRIVATE_EXPEDITED_RSEQ = 1 << 7,
       CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ = 1 << 8,
};

/*
 * A process must register before its first use, and may have to again after exec or fork. The command itself
 * reports that with EPERM.
 */
bool membarrier_rseq(void)
{
    long ret = sys_call3(SYS_membarrier, CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0);
    if (ret == -EPERM && sys_call3(SYS_membarrier, CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0) == 0)
        ret = sys_call3(SYS_membarrier, CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0);
    return ret == 0;
}
