/* eviction.h: closes connections that hold scarce memory, so that other connections get it at once.
 * Receive buffers: the last eighth is for connections that are not stalled. Bytes that wait because the client does not
 * read its answers, or because no block is free, give their buffers back with their connection.
 * Blocks: frames that are behind their pace make room for frames that wait for a block.
 * Answers: the largest ones go while all together exceed their limit.
 * Places of the table: silent and idle connections make room for the next one.
 *
 * The order of victims is a rule (eviction_rules.h).
 *
 * What stays true: a connection that this part closes is settled at once, so its memory is free behind the call. The two places
 * are where a look goes on; any value of theirs is sound.
 */
#ifndef RMQ_EVICTION_H
#define RMQ_EVICTION_H

#include "reader/frames.h"

struct rmq_eviction {
    struct rmq_read_context *context;
    struct rmq_arena *arena;
    struct rmq_connections *connections;
    struct rmq_outputs *outputs;
    struct rmq_closings *closings;
    struct rmq_frames *frames;
    int64_t next_ms;       /* of a look at the blocks */
    uint32_t hung_up_next; /* the place in the list of stalled connections where the last look at sockets ended */
    uint32_t place_next;   /* the place of the table that is looked at next when places run short */
};

void rmq_eviction_open(struct rmq_eviction *eviction, struct rmq_frames *frames);
void rmq_eviction_of_places(struct rmq_eviction *eviction); /* one more connection was accepted */
void rmq_eviction_of_answers(struct rmq_eviction *eviction);
void rmq_eviction_poll(struct rmq_eviction *eviction); /* after the stalled have had their turn */
#endif
