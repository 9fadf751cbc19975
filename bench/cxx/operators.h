/* The functions that are compiled as C++. None of them throws. */
#ifndef BENCH_CXX_OPERATORS_H
#define BENCH_CXX_OPERATORS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint64_t new_and_delete(size_t size, uint64_t ops);
uint64_t new_and_sized_delete(uint64_t ops);
uint64_t new_batches(size_t count, uint64_t ops);
uint64_t aligned_new_and_delete(uint64_t ops);
uint64_t build_index(unsigned threads, uint64_t words);

#ifdef __cplusplus
}
#endif

#endif
