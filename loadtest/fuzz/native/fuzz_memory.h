/* Allocations that fail. A driver that uses them is linked with --wrap=malloc, calloc and realloc. */
#ifndef RMQ_FUZZ_MEMORY_H
#define RMQ_FUZZ_MEMORY_H

#include <stdint.h>

/* 1: from now on one allocation in 200 fails, as the dice fall. */
void fuzz_memory_fails(int is_on);
uint64_t fuzz_memory_faults(void); /* number of failed ones */
#endif
