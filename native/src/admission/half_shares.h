/* half_shares.h: the shares of open half messages (half_shares_layout.h). Twin: `ringmq.ipc.half_shares`.
 *
 * A half that is answered 0 can be ended, so a half beyond a share is refused at the send. Readers look at the counts and change
 * none: a share may be passed by the halves that were sent at the same time.
 */
#ifndef RMQ_HALF_SHARES_H
#define RMQ_HALF_SHARES_H

#include "plane/admission_layout.h"
#include "plane/plane.h"

/* cdef-begin */
/* The keys that a half counts for: its producer's host (of IPv6 the network of 64 bits), and its producer group (PGROUP). */
struct rmq_half_keys {
    uint32_t host;
    uint32_t group;
};

#define RMQ_HALF_FITS 0
#define RMQ_HALF_ALL_FULL 1
#define RMQ_HALF_HOST_FULL 2
#define RMQ_HALF_GROUP_FULL 3

#define RMQ_HALF_REMARK_MAX 256

/* The keys of a message with these properties. Of equal names the last one counts. A message without PGROUP has an empty one. */
struct rmq_half_keys rmq_half_keys_of(const uint64_t *secret, const uint8_t *host, int is_v6, const uint8_t *properties,
                                      uint32_t length);
/* The open halves of a key. */
uint32_t rmq_half_count(const struct rmq_half_cells *cells, uint32_t key);
/* Adds `by` (1 or -1) to the count of a key. Only `transactions`. */
void rmq_half_add(struct rmq_half_cells *cells, uint32_t key, int by);
/* RMQ_HALF_*: may one half more be sent? `end`: of the half queue. *found: the count of the share that is full. */
uint32_t rmq_half_room(const struct rmq_half_shares *shares, const struct rmq_admission_rule *rule, uint64_t end,
                       struct rmq_half_keys keys, uint64_t *found);
/* The text of a refusal, NUL-terminated, of at most RMQ_HALF_REMARK_MAX bytes. */
void rmq_half_remark(char *to, uint32_t full, const struct rmq_admission_rule *rule, uint64_t found);
/* cdef-end */

#endif
