// Preloaded beside tcmalloc of gperftools: accuracy_dump() writes its heap sample to the file $ACCURACY_DUMP.N.heap,
// with N from 0. A program that does not call it gets one when it exits.
#include "dump.h"

#include <cstdio>
#include <cstdlib>
#include <gperftools/malloc_extension.h>
#include <string>

namespace
{

int dumped;

__attribute__((destructor)) void dump_at_exit()
{
    if (dumped == 0)
        accuracy_dump();
}

} // namespace

void accuracy_dump()
{
    const char *prefix = std::getenv("ACCURACY_DUMP");
    if (!prefix)
        return;
    std::string sample;
    MallocExtension::instance()->GetHeapSample(&sample);
    const std::string name = std::string(prefix) + "." + std::to_string(dumped++) + ".heap";
    if (FILE *file = std::fopen(name.c_str(), "w")) {
        std::fwrite(sample.data(), 1, sample.size(), file);
        std::fclose(file);
    }
}
