/* eviction_rules.h: the memory and time of half frames, and the order in which connections are closed when a reader's
 * receive buffers or blocks run short. Rules without state or clock; eviction.c applies them.
 * Twin: tests/native/eviction_twin.py. */
#ifndef RMQ_EVICTION_RULES_H
#define RMQ_EVICTION_RULES_H

#include <stdint.h>

/* cdef-begin */
#define RMQ_FRAME_FLOOR_MS 250 /* no shortage gives a half frame less time */
#define RMQ_FRAME_GRACE_MS 100 /* of a frame, before its pace is looked at */
#define RMQ_FRAME_PACE 1024    /* bytes a millisecond: a frame that comes at this pace is never late or behind */
#define RMQ_FRAME_ON_TIME 0
#define RMQ_FRAME_SHORT 1      /* late only because memory is short */
#define RMQ_FRAME_LATE 2       /* later than the configured time */

#define RMQ_BUFFER_RANK_UNREAD 0x2000000000000000 /* the ranks of clients that do not read their answers begin here */

/* Bytes of memory that a frame of `total` bytes gets at first, when `there` of them have come: little more than those, so
 * that announcing a large frame costs the reader next to nothing. `many`: more than half of the blocks is free. The frame
 * gets all of its room at once when the first part is full: two such frames cannot wait for each other. */
uint32_t rmq_frame_first_bytes(uint32_t total, uint32_t there, int many);
/* The time for a half frame while `free` of `all` blocks are free: the configured one while half of them is, then the cube of
 * the share, at least RMQ_FRAME_FLOOR_MS. */
uint32_t rmq_frame_time_ms(uint32_t timeout_ms, uint32_t free, uint32_t all);
/* RMQ_FRAME_*, of a frame that began `taken_ms` ago and of which `there` bytes have come. Bytes that have come give time. */
int rmq_frame_lateness(uint32_t timeout_ms, uint32_t time_ms, uint32_t there, uint64_t taken_ms);
/* The share of the bytes due by now that is missing, in thousandths; 0 = the frame is on its pace. */
uint32_t rmq_frame_behind(uint32_t total, uint32_t there, uint64_t taken_ms);
/* The rank of a half frame when a frame waits for `wanted` pages in a row: the greatest is closed first, 0 = never.
 * `run`: free pages in a row without this frame's memory, at most `wanted`. `crumb`: they are too few to help alone. */
uint64_t rmq_block_victim_rank(uint32_t behind, uint32_t run, int crumb);
/* The rank of a frame that has itself waited `waited_ms` for memory, below all frames that are behind. The heaviest is
 * closed first: without that, all could wait for one another. */
uint64_t rmq_waiting_victim_rank(uint32_t weight, uint64_t waited_ms, uint32_t run);
/* The weight of a connection that waits for memory: the heaviest gives way. A connection that has never sent a whole
 * frame is heavier than all others. Then the time since its last whole frame counts, and the wanted bytes. */
uint32_t rmq_waiting_weight(uint32_t wanted, int has_sent, uint64_t since_ms);
/* The rank of a connection when receive buffers run short: the greatest is closed first, 0 = never.
 * `buffers`: held by its waiting bytes. `weight`: rmq_waiting_weight when it waits for a block, 0 when its client does
 * not read answers. `idle_ms`: since its last progress. Connections of weight 0 go first, then the heaviest. */
uint64_t rmq_buffer_victim_rank(uint32_t buffers, uint32_t weight, uint64_t idle_ms);
/* The rank of a connection when all answers take too much memory. `idle_ms`: since its client last took bytes. */
uint64_t rmq_answer_victim_rank(uint64_t memory, uint64_t idle_ms);
/* cdef-end */
#endif
