/* parking.h: pulls that wait for messages, with copies of their frames. Dispatch sees the flag byte of (reader, queue slot)
 * and pushes the slot when its queue grows. A scan every 5 s finds pulls that would otherwise be held for ever, because of a
 * lost wake-up or a filter. Stock does the same, without a check of tags. parked_runs.c runs the pulls.
 *
 * What stays true:
 * - An entry with a frame is in the list of its queue slot and in that of its connection; others are free.
 * - Every queue slot is below `slot_count`, whatever the tables of control say later.
 * - The flag of a slot is set exactly as long as its list has entries. Dispatch reads it, this reader alone writes it.
 * - `count` and `bytes` are those of the entries with a frame, parked_count of a connection of its own.
 * - The next look at deadlines is at next_ms: no later than the earliest of them, or 20 ms ahead.
 */
#ifndef RMQ_PARKING_H
#define RMQ_PARKING_H

#include "reader/connections.h"

#define RMQ_PARKED_SCAN_MS 5000
#define RMQ_PARKED_POSTPONE_MS 20

struct rmq_parked_pull {
    uint32_t connection, connection_generation;
    uint32_t queue_slot;
    uint32_t frame_length;
    int64_t offset;
    int64_t scanned;         /* units below do not match */
    int64_t deadline_ms;
    uint8_t *frame;          /* private copy; NULL = unused entry */
    uint32_t slot_next, slot_previous;             /* same queue; index + 1 */
    uint32_t connection_next, connection_previous; /* same connection */
    uint32_t next_free;
};

struct rmq_parking {
    struct rmq_read_context *context;
    struct rmq_connections *connections;
    struct rmq_parked_pull *table;
    uint32_t capacity, used, free, count, bytes;
    uint32_t *slots;         /* first parked pull per queue slot, index + 1 */
    uint32_t slot_count;     /* as the table of queues had it when they were made */
    uint8_t *flags;          /* shared, this reader's row */
    int64_t next_ms, scan_next_ms;
    uint32_t long_polling;   /* as the last tick has seen it */
    int was_master;          /* as the last round has seen it */
};

int rmq_parking_open(struct rmq_parking *parking, struct rmq_read_context *context, struct rmq_connections *connections);
void rmq_parking_close(struct rmq_parking *parking);

static inline struct rmq_parked_pull *rmq_parked_at(const struct rmq_parking *parking, uint32_t name)
{
    return &parking->table[name - 1];
}

static inline uint32_t rmq_parked_count(const struct rmq_connection *c) { return c->parked.count; }

/* 0, or -ENOMEM if no entry is free. The caller looks at the queue once more afterwards. */
int rmq_park(struct rmq_parking *parking, struct rmq_connection *c, uint32_t queue_slot, int64_t offset, const uint8_t *frame,
             uint32_t length, int64_t hold_ms);
void rmq_unpark(struct rmq_parking *parking, struct rmq_parked_pull *p);
void rmq_unpark_last(struct rmq_parking *parking, struct rmq_connection *c); /* takes back the connection's newest */
void rmq_park_forget(struct rmq_parking *parking, struct rmq_connection *c); /* all of the connection */
void rmq_park_postpone(struct rmq_parking *parking, struct rmq_parked_pull *p);
/* Long polling was switched off: dispatch rings no reader any more, so a held pull ends as a new one would. */
void rmq_park_apply_settings(struct rmq_parking *parking);
/* Each round. When this broker is no master any more, the deadlines of all pulls are over: messages come to another one. */
void rmq_park_watch_side(struct rmq_parking *parking);
#endif
