/* dispatch_ask.h: dispatch on a slave, at a record whose queue is in no table. C only.
 *
 * The log of a slave may be ahead of its topics, which come by synchronisation. So dispatch asks control to make the queue's
 * entry (RMQ_INBOX_QUEUE), and waits in front of the record until the entry is there. Control's answer rings. If control has
 * not made the entry within 10 s (its tables are full), dispatch leaves out records of unknown queues for a minute. A master
 * leaves out records of deleted topics in the same way. Otherwise all other queues would wait.
 *
 * What stays true: an open question is about the record in front of which dispatch waits, and no answer counts but the entry.
 * So what another process writes can make dispatch wait or leave out, and no more.
 */
#ifndef RMQ_DISPATCH_ASK_H
#define RMQ_DISPATCH_ASK_H

#include "codec/record.h"
#include "plane/plane.h"

struct rmq_dispatch_question {
    int64_t given_up_ms, again_ms, silent_until_ms;
    uint32_t queue_id, topic_length;
    uint32_t is_batch;
    int open;
    uint8_t topic[RMQ_NAME_MAX + 1];
};

/* 1 = wait in front of the record, 0 = leave it out. */
int rmq_dispatch_ask(struct rmq_dispatch_question *question, struct rmq_plane *plane, const uint8_t *topic,
                     const struct rmq_record_view *view);
#endif
