/* write_request.h: the record that a request asks for, as planning measures it and encoding writes it. C only. */
#ifndef RMQ_WRITE_REQUEST_H
#define RMQ_WRITE_REQUEST_H

#include <string.h>

#include "codec/property_pairs.h"
#include "codec/send_decode.h"
#include "write/write_batch.h"

static inline int is_v6(const struct rmq_request *request) { return request->flags & RMQ_APPEND_FLAG_BORN_V6; }

/* Everything but body, properties and offsets. */
static inline void fill_common(struct rmq_writer *w, const struct rmq_request *request, struct rmq_record_in *in)
{
    const struct rmq_settings *settings = &w->header->settings;
    const struct rmq_topic *topic = rmq_topic_at(w->plane, request->topic_id);
    memset(in, 0, sizeof *in);
    in->born_time_ms = request->born_time_ms;
    in->store_time_ms = (int64_t)w->next.store_time_ms;
    in->topic = (const uint8_t *)topic->name;
    in->topic_length = topic->name_length;
    in->queue_id = (int32_t)request->queue_id;
    in->flag = request->flag;
    in->sys_flag = request->sys_flag & ~(RMQ_SYS_BORN_HOST_V6 | RMQ_SYS_STORE_HOST_V6);
    in->sys_flag |= is_v6(request) ? RMQ_SYS_BORN_HOST_V6 : 0;
    in->sys_flag |= settings->store_host_bytes == 16 ? RMQ_SYS_STORE_HOST_V6 : 0;
    in->reconsume_times = request->reconsume_times;
    in->born_port = (int32_t)request->born_port;
    in->store_port = (int32_t)settings->store_port;
    memcpy(in->born_host, request->born_host, sizeof in->born_host);
    memcpy(in->store_host, settings->store_host, sizeof in->store_host);
}

static inline void fill_single(struct rmq_writer *w, const struct rmq_request *request, const char *arena,
                        struct rmq_record_in *in)
{
    const struct rmq_settings *settings = &w->header->settings;
    fill_common(w, request, in);
    in->prepared_transaction_offset = request->prepared_transaction_offset;
    in->body = (const uint8_t *)arena + request->body_at;
    in->body_length = request->body_length;
    in->properties[0] = (const uint8_t *)arena + request->properties_at;
    in->properties_length[0] = request->properties_length;
    in->properties[1] = (const uint8_t *)arena + request->extra_at;
    in->properties_length[1] = request->extra_length;
    in->properties[2] = (const uint8_t *)settings->additions;
    in->properties_length[2] = request->flags & RMQ_APPEND_FLAG_COPY ? 0 : settings->additions_length;
}

static inline uint32_t join(uint8_t *to, uint32_t at, const void *piece, uint32_t length)
{
    if (!length)
        return at;
    memcpy(to + at, piece, length);
    at += length;
    if (to[at - 1] != RMQ_PAIR_END)
        to[at++] = RMQ_PAIR_END;
    return at;
}

/* The pairs that every record of a batch carries around the message's own. Of equal names the last one counts, so the header's pairs
 * stand in front: stock appends them, and all messages of a Java batch then have the UNIQ_KEY of the batch. Behind stand the header's
 * reserved pairs, which admission has followed (a time for the whole batch), and what the broker adds. */
static inline void fill_batch(struct rmq_writer *w, const struct rmq_request *request, const char *arena,
                       struct rmq_record_in *in)
{
    const struct rmq_settings *settings = &w->header->settings;
    const uint8_t *at = (const uint8_t *)arena + request->properties_at, *end = at + request->properties_length;
    uint32_t head = 0, tail = 0;
    struct rmq_pair pair;
    fill_common(w, request, in);
    in->prepared_transaction_offset = request->prepared_transaction_offset;
    while (rmq_next_pair(&at, end, &pair)) {
        uint32_t length = pair.name.length + 1 + pair.value.length;
        if (rmq_send_reserves(pair.name.at, pair.name.length))
            tail = join(w->tail, tail, pair.name.at, length);
        else
            head = join(w->head, head, pair.name.at, length);
    }
    tail = join(w->tail, tail, arena + request->extra_at, request->extra_length);
    tail = join(w->tail, tail, settings->additions, settings->additions_length);
    in->properties[0] = w->head;
    in->properties_length[0] = head;
    in->properties[2] = w->tail;
    in->properties_length[2] = tail;
}

static inline uint8_t *arena_at(struct rmq_writer *w, const struct rmq_write_plan *plan, uint64_t at)
{
    return (uint8_t *)w->plane->arenas[plan->port] + at;
}

/* The request is answered when disk or replicas have its records. */
static inline int waits(const struct rmq_request *request, uint32_t policy)
{
    return policy && !(request->flags & RMQ_APPEND_FLAG_NO_WAIT);
}
#endif
