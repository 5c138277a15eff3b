/* invariant.h: conditions that hold unless memory or code is broken.
 *
 * RMQ_INVARIANT(condition, values...) ends the worker with one line that names file, line and values. The worker is
 * replaced, as after any death. If the same line ends a worker twice within 10 s, the supervisor closes the store and opens it
 * with a new plane (ipc/supervisor_core.py).
 *
 * The macro is for positions, slots and offsets that another process of this broker has written. It is never for bytes of
 * clients, of a master or of the disk, nor for values that a legal race may change (generations, deleted topics). These get an
 * error answer.
 *
 * Files with RMQ_INVARIANT run in workers, which arm it. A process that is no worker (a test, a fuzzer) ends by SIGABRT.
 */
#ifndef RMQ_INVARIANT_H
#define RMQ_INVARIANT_H
#include <stdint.h>

struct rmq_plane;

/* cdef-begin */
#define RMQ_EXIT_INVARIANT 79

/* This process is the worker with this role. */
void rmq_invariant_arm(struct rmq_plane *plane, uint32_t role);
/* Writes the line and records it in the role block. For Python, which ends its process itself. `names`: of the values. */
void rmq_invariant_report(const char *file, uint32_t line, const char *condition, const char *names,
                          const int64_t *values, uint32_t count);
/* cdef-end */

__attribute__((cold, noreturn)) void rmq_invariant_broken(const char *file, uint32_t line, const char *condition,
                                                          const char *names,
                                                    const int64_t *values, uint32_t count);

/* Values are integers, at most RMQ_INVARIANT_VALUES_MAX. */
#define RMQ_INVARIANT_VALUES_MAX 8
#define RMQ_INVARIANT(condition, ...)                                                                                          \
    do {                                                                                                                       \
        if (__builtin_expect(!(condition), 0)) {                                                                               \
            const int64_t rmq_values[] = {__VA_ARGS__};                                                                        \
            rmq_invariant_broken(__FILE__, __LINE__, #condition, #__VA_ARGS__, rmq_values,                                     \
                                 sizeof rmq_values / sizeof *rmq_values);                                                       \
        }                                                                                                                      \
    } while (0)
#endif
