#include "fuzz_memory.h"

#include "fuzz.h"

#define ALLOCATIONS 200

static int fails;
static uint64_t faults;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *at, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);

void fuzz_memory_fails(int is_on) { fails = is_on; }

uint64_t fuzz_memory_faults(void) { return faults; }

static int is_fault(void)
{
    int now = fails && !fuzz_dice(ALLOCATIONS);
    faults += (uint64_t)now;
    return now;
}

void *__wrap_malloc(size_t bytes) { return is_fault() ? NULL : __real_malloc(bytes); }
void *__wrap_calloc(size_t count, size_t bytes) { return is_fault() ? NULL : __real_calloc(count, bytes); }
void *__wrap_realloc(void *at, size_t bytes) { return is_fault() ? NULL : __real_realloc(at, bytes); }
