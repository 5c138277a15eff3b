/* For drivers that include sources of the core without plane/invariant.c: a broken invariant ends them with its line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "plane/invariant.h"

void rmq_invariant_broken(const char *file, uint32_t line, const char *condition, const char *names, const int64_t *values, uint32_t count)
{
    fprintf(stderr, "%s:%" PRIu32 ": not %s; %s =", file, line, condition, names);
    for (uint32_t i = 0; i < count; i++)
        fprintf(stderr, " %" PRId64, values[i]);
    fputc('\n', stderr);
    abort();
}
