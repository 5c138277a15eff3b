#include "dispatch/dispatch_batch.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "plane/port.h"
#include "plane/ring.h"
#include "plane/settings_word.h"
#include "plane/worker_activation.h"

/* --- which queue ------------------------------------------------------------------------------------------ */

static int is_live(struct rmq_dispatcher *d, uint32_t topic_id)
{
    return rmq_topic_is_live(rmq_load(&rmq_topic_at(d->plane, topic_id)->config));
}

/* Slot of the record's queue, RMQ_NONE when topic or queue is not in the tables. The topic met last is tried first. */
static uint32_t slot_of(struct rmq_dispatcher *d, const uint8_t *name, const struct rmq_record_view *view)
{
    const struct rmq_topic *topic = rmq_topic_at(d->plane, d->topic_id);
    int same = d->topic_id && topic->name_length == view->topic_length && !memcmp(topic->name, name, view->topic_length) &&
               is_live(d, d->topic_id);
    if (!same) {
        uint32_t found = rmq_topic_find(d->plane, (const char *)name, view->topic_length);
        d->topic_id = found == RMQ_NONE ? 0 : found;
        d->queue_slot = RMQ_NONE;
        if (found == RMQ_NONE)
            return RMQ_NONE;
        d->topic_hash = (int32_t)((uint32_t)rmq_java_hash(name, view->topic_length) * 31u + '#');
    }
    if (d->queue_slot == RMQ_NONE || d->queue_id != (uint32_t)view->queue_id) {
        d->queue_id = (uint32_t)view->queue_id;
        uint32_t slot = rmq_queue_find(d->plane, d->topic_id, d->queue_id);
        RMQ_INVARIANT(slot == RMQ_NONE || slot < d->queue_capacity, slot, d->queue_capacity, d->topic_id, d->queue_id);
        d->queue_slot = slot;
    }
    return d->queue_slot;
}

/* --- index ------------------------------------------------------------------------------------------------ */

static int put_keys(struct rmq_dispatcher *d)
{
    uint64_t put = 0;
    int rc = 0;
    for (uint32_t i = 0; i < d->key_count && rc >= 0; i++) {
        const struct rmq_dispatch_key *key = &d->keys[i];
        rc = rmq_index_files_put(&d->index, key->hash, key->commit_log_offset, key->store_time_ms);
        RMQ_CRASH("dispatch-index-entry");
        put += rc > 0;
    }
    d->key_count = 0;
    d->role->counters[RMQ_DISPATCH_INDEX_ENTRIES] += put;
    return rc < 0 ? rc : 0;
}

static int add_key(struct rmq_dispatcher *d, const uint8_t *key, size_t length, const struct rmq_record_view *view)
{
    int32_t hash = rmq_java_hash_from(d->topic_hash, key, length);
    if (d->key_count == RMQ_DISPATCH_KEYS) {
        int rc = put_keys(d);
        if (rc < 0)
            return rc;
    }
    hash = hash == INT32_MIN ? 0 : hash < 0 ? -hash : hash;
    rmq_index_files_prefetch(&d->index, hash);
    d->keys[d->key_count++] = (struct rmq_dispatch_key){
        .commit_log_offset = view->physical_offset, .store_time_ms = view->store_time_ms, .hash = hash};
    return 0;
}

/* Notes the keys in the order of rmq_index_put_record; records that may be in already take the slow way. */
static int add_keys(struct rmq_dispatcher *d, const uint8_t *record, const struct rmq_record_view *view,
                    const struct rmq_dispatch_keys *keys)
{
    int rc = 0;
    if ((view->sys_flag & RMQ_SYS_TRANSACTION_MASK) == RMQ_SYS_TRANSACTION_ROLLBACK)
        return 0;
    if (view->physical_offset <= d->index.replay_end) {
        rc = rmq_index_files_put_record(&d->index, record + view->topic_at, view->topic_length, keys, view->sys_flag,
                                        view->physical_offset, view->store_time_ms);
        d->role->counters[RMQ_DISPATCH_INDEX_ENTRIES] += rc > 0 ? (uint64_t)rc : 0;
        return rc < 0 ? rc : 0;
    }
    if (keys->uniq_key)
        rc = add_key(d, keys->uniq_key, keys->uniq_key_length, view);
    const uint8_t *at = keys->keys, *end = at ? at + keys->keys_length : at;
    while (!rc && at < end) {
        const uint8_t *stop = memchr(at, ' ', (size_t)(end - at));
        stop = stop ? stop : end;
        if (stop > at)
            rc = add_key(d, at, (size_t)(stop - at), view);
        at = stop + 1;
    }
    return rc;
}

/* --- impossible values ------------------------------------------------------------------------------------ */

/* Notes a record that stays in the log and gets neither unit nor index entry. */
static void leave_out(struct rmq_dispatcher *d, int64_t commit_log_offset, int field)
{
    if (!d->left_out++) {
        d->left_out_at = commit_log_offset;
        d->left_out_field = field;
    }
}

/* Counts those of the batch; the shell names the first one of a run. */
static void count_left_out(struct rmq_dispatcher *d)
{
    uint64_t *counters = d->role->counters;
    counters[RMQ_DISPATCH_NOT_INDEXED] += d->left_out;
    if (!d->left_out || counters[RMQ_DISPATCH_IMPOSSIBLE_FIELD])
        return;
    counters[RMQ_DISPATCH_IMPOSSIBLE_OFFSET] = (uint64_t)d->left_out_at;
    rmq_store(&counters[RMQ_DISPATCH_IMPOSSIBLE_FIELD], (uint64_t)d->left_out_field);
}

/* The record's impossible field. A name in the tables is sound: control puts no other there. */
static int impossible_field(const struct rmq_record_view *view, const uint8_t *topic, uint64_t at, uint32_t slot)
{
    int why = rmq_record_numbers(view, (int64_t)at);
    return !why && slot == RMQ_NONE && !rmq_is_topic_name(topic, view->topic_length) ? RMQ_VALUE_TOPIC : why;
}

/* --- reading ---------------------------------------------------------------------------------------------- */

static void add_row(struct rmq_dispatcher *d, uint32_t slot, const struct rmq_record_view *view, int64_t tags_code,
                    int32_t messages)
{
    struct rmq_dispatch_row *row = &d->rows[d->row_count++];
    struct rmq_dispatch_touch *touch = &d->touches[slot];
    row->unit = (struct rmq_cq_unit){
        .commit_log_offset = view->physical_offset, .tags_code = tags_code, .size = (int32_t)view->total_size};
    row->queue_offset = (uint64_t)view->queue_offset;
    row->store_time_ms = view->store_time_ms;
    row->next = 0;
    row->messages = messages;
    if (touch->first)
        d->rows[touch->last - 1].next = d->row_count;
    else {
        touch->first = d->row_count;
        d->touched[d->touched_count++] = slot;
    }
    touch->last = d->row_count;
}

/* Takes one whole record into the batch. 0, 1 = it waits for its queue's entry, or -errno. */
static int take(struct rmq_dispatcher *d, const uint8_t *record, const struct rmq_record_view *view, uint64_t at)
{
    struct rmq_dispatch_keys keys;
    const uint8_t *topic = record + view->topic_at;
    uint32_t slot = slot_of(d, topic, view);
    int transaction = view->sys_flag & RMQ_SYS_TRANSACTION_MASK, impossible = impossible_field(view, topic, at, slot);
    if (impossible) {
        d->records++;
        leave_out(d, (int64_t)at, impossible);
        return 0;
    }
    if (slot != RMQ_NONE)
        d->question.open = 0;
    else if (rmq_follows_master(d->marks) && rmq_dispatch_ask(&d->question, d->plane, topic, view))
        return 1;
    d->records++;
    if (view->store_time_ms > d->batch_store_time_ms)
        d->batch_store_time_ms = view->store_time_ms;
    if (slot == RMQ_NONE) {
        d->role->counters[RMQ_DISPATCH_UNKNOWN_TOPIC]++;
        return 0;
    }
    uint32_t flags = rmq_topic_flags(rmq_load_relaxed(&rmq_topic_at(d->plane, d->topic_id)->config));
    rmq_dispatch_keys_find(record + view->properties_at, view->properties_length, &keys);
    int64_t tags_code = rmq_tags_code(topic, view->topic_length, &keys, view->store_time_ms, &d->levels);
    int32_t messages = flags & RMQ_TOPIC_BATCH_QUEUE ? rmq_message_count(&keys, view->sys_flag, 1) : 0;
    if (transaction != RMQ_SYS_TRANSACTION_PREPARED && transaction != RMQ_SYS_TRANSACTION_ROLLBACK &&
        (uint64_t)view->physical_offset >= rmq_queue_at(d->plane, slot)->replay_from) /* below: for the index only */
        add_row(d, slot, view, tags_code, messages);
    if (!d->header->settings.message_index_enable)
        return 0;
    return add_keys(d, record, view, &keys);
}

static int map_at(struct rmq_dispatcher *d, uint64_t at)
{
    uint64_t bytes = d->header->settings.segment_bytes, start = at - at % bytes;
    if (d->segment.base && d->segment.offset == start)
        return 0;
    rmq_segment_unmap(&d->segment);
    return rmq_segment_map(&d->segment, d->header->settings.commit_log_path, start, bytes, 0);
}

static int has_room(const struct rmq_dispatcher *d)
{
    uint32_t wanted = d->touched_count * RMQ_DISPATCH_ROWS_OF_A_QUEUE;
    return d->row_count < RMQ_DISPATCH_ROWS_FEW || (d->row_count < RMQ_DISPATCH_ROWS && d->row_count < wanted);
}

int64_t rmq_dispatch_read(struct rmq_dispatcher *d, uint64_t end)
{
    uint64_t first = d->marks->dispatched_offset, at = first, segment_bytes = d->header->settings.segment_bytes;
    uint64_t low = rmq_load(&d->marks->min_offset);
    uint64_t appended = rmq_load(&d->marks->append_offset);
    at = at < low ? low : at;
    while (at < end && has_room(d) && at - first < RMQ_DISPATCH_BATCH_BYTES) {
        struct rmq_record_view view;
        int rc = map_at(d, at);
        if (rc < 0)
            return rc;
        uint64_t limit = d->segment.offset + segment_bytes;
        const uint8_t *record = (const uint8_t *)d->segment.base + (at - d->segment.offset);
        rc = rmq_record_parse(record, (appended < limit ? appended : limit) - at, 0, &view);
        if (rc == RMQ_RECORD_OK) {
            if (view.total_size > end - at || (rc = take(d, record, &view, at)) == 1)
                break;
            if (rc < 0)
                return rc;
            at += view.total_size;
        } else if (rc == RMQ_RECORD_BLANK) {
            if (limit > end && appended >= limit)
                break;
            at = limit;
        } else {
            d->role->counters[RMQ_DISPATCH_BAD_RECORDS]++; /* stock gives up the rest of the file */
            int64_t next = rmq_log_next_record((const uint8_t *)d->segment.base, at - d->segment.offset,
                                               (end < limit ? end : limit) - d->segment.offset, (int64_t)d->segment.offset);
            at = next >= 0 ? d->segment.offset + (uint64_t)next : limit < end ? limit : end;
        }
    }
    int rc = put_keys(d);
    d->position = at;
    return rc < 0 ? rc : (int64_t)(at - first);
}

/* --- units ------------------------------------------------------------------------------------------------ */

/* 1 when the gap between the queue's end and this offset is longer than a file of units, 0 otherwise. */
static int is_far_behind(const struct rmq_dispatcher *d, const struct rmq_dispatch_touch *touch, uint64_t first)
{
    return touch->max_offset && first > touch->max_offset &&
           first - touch->max_offset > d->queues.file_bytes / RMQ_CQ_UNIT_BYTES;
}

/* 1 when an older record has the row's place in a queue that is in order up to that place, 0 otherwise, or -errno.
 * A unit whose predecessor names a newer record is left of a deleted topic of the same name. So is a unit in the first
 * place on a slave. The new record replaces such a unit. A master gives a topic that is made again other queues. */
static int is_taken(struct rmq_dispatcher *d, uint32_t slot, const struct rmq_dispatch_row *row)
{
    struct rmq_cq_unit unit, before;
    uint64_t min = rmq_queue_at(d->plane, slot)->min_offset;
    if (row->queue_offset < min)
        return 0;
    int rc = rmq_queue_files_read(&d->queues, slot, row->queue_offset, &unit);
    if (rc <= 0 || unit.commit_log_offset >= row->unit.commit_log_offset)
        return rc < 0 ? rc : 0;
    if (!row->queue_offset)
        return !rmq_follows_master(d->marks);
    if (row->queue_offset == min && rmq_queue_files_file_start(&d->queues, min) == min)
        return 0; /* the file before it is gone */
    rc = rmq_queue_files_read(&d->queues, slot, row->queue_offset - 1, &before);
    return rc <= 0 ? rc : before.commit_log_offset < unit.commit_log_offset;
}

/* A unit beyond the queue's end: filler units go before it, as stock puts them before the first unit of a queue.
 * 0 or -errno. */
static int bridge(struct rmq_dispatcher *d, uint32_t slot, struct rmq_dispatch_touch *touch, uint64_t first)
{
    uint64_t from = touch->max_offset;
    if (!from) {
        from = rmq_queue_files_file_start(&d->queues, first);
        touch->min_offset = first;
    }
    d->role->counters[RMQ_DISPATCH_FILLED_UNITS] += first - from;
    return rmq_queue_files_fill(&d->queues, slot, from, first);
}

/* One run of consecutive queue offsets from row `*number` on; moves `*number` behind it. */
static int write_run(struct rmq_dispatcher *d, uint32_t slot, struct rmq_dispatch_touch *touch, uint32_t *number)
{
    const struct rmq_dispatch_row *row = &d->rows[*number - 1];
    uint64_t first = row->queue_offset, count = 0;
    int rc = first < touch->max_offset ? is_taken(d, slot, row) : is_far_behind(d, touch, first);
    if (rc) {
        *number = row->next;
        if (rc > 0)
            leave_out(d, row->unit.commit_log_offset, RMQ_VALUE_QUEUE_PLACE);
        return rc < 0 ? rc : 0;
    }
    for (; *number && d->rows[*number - 1].queue_offset == first + count; count++) {
        rmq_cq_encode(d->units + count * RMQ_CQ_UNIT_BYTES, &d->rows[*number - 1].unit, 1);
        *number = d->rows[*number - 1].next;
    }
    rc = first > touch->max_offset ? bridge(d, slot, touch, first) : 0;
    if (rc < 0)
        return rc;
    rc = rmq_queue_files_write(&d->queues, slot, first, d->units, count, touch->max_offset);
    if (!rc && first + count > touch->max_offset)
        touch->max_offset = first + count;
    return rc;
}

/* A record of a batch queue (INNER_NUM messages), one unit at the queue's physical end. */
static int write_batch_unit(struct rmq_dispatcher *d, uint32_t slot, struct rmq_dispatch_touch *touch, uint32_t *number)
{
    const struct rmq_dispatch_row *row = &d->rows[*number - 1];
    if (is_far_behind(d, touch, row->queue_offset)) {
        leave_out(d, row->unit.commit_log_offset, RMQ_VALUE_QUEUE_PLACE);
        *number = row->next;
        return 0;
    }
    struct rmq_cq_batch_unit unit = {
        .commit_log_offset = row->unit.commit_log_offset, .tags_code = row->unit.tags_code,
        .store_time_ms = row->store_time_ms, .base_offset = (int64_t)row->queue_offset, .size = row->unit.size,
        .batch_size = row->messages};
    int rc = rmq_batch_queues_append(&d->batch_queues, slot, &unit);
    uint64_t end = row->queue_offset + (uint64_t)row->messages;
    if (rc >= 0 && end > touch->max_offset)
        touch->max_offset = end;
    *number = row->next;
    return rc < 0 ? rc : 0;
}

int rmq_dispatch_write_units(struct rmq_dispatcher *d)
{
    for (uint32_t i = 0; i < d->touched_count; i++) {
        uint32_t slot = d->touched[i];
        const struct rmq_queue *queue = rmq_queue_at(d->plane, slot);
        struct rmq_dispatch_touch *touch = &d->touches[slot];
        touch->max_offset = queue->max_offset;
        touch->min_offset = queue->min_offset;
        for (uint32_t number = touch->first; number;) {
            int is_batch = d->rows[number - 1].messages > 0;
            int rc = is_batch ? write_batch_unit(d, slot, touch, &number) : write_run(d, slot, touch, &number);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* --- publishing ------------------------------------------------------------------------------------------- */

static void count_size(struct rmq_queue *queue, uint32_t bytes)
{
    static const uint32_t limits[RMQ_SIZE_CLASSES] = {1024, 4096, 524288, 1048576, 2097152, 4194304};
    for (int i = 0; i < RMQ_SIZE_CLASSES; i++) {
        if (bytes <= limits[i]) {
            rmq_store_relaxed(&queue->sizes[i], queue->sizes[i] + 1);
            return;
        }
    }
    rmq_store_relaxed(&queue->huge_records, queue->huge_records + 1);
}

static void publish_queue(struct rmq_dispatcher *d, uint32_t slot)
{
    const struct rmq_dispatch_touch *touch = &d->touches[slot];
    const struct rmq_dispatch_row *last = &d->rows[touch->last - 1];
    struct rmq_queue *queue = rmq_queue_at(d->plane, slot);
    uint64_t bytes = 0;
    for (uint32_t number = touch->first; number; number = d->rows[number - 1].next) {
        bytes += (uint64_t)d->rows[number - 1].unit.size;
        count_size(queue, (uint32_t)d->rows[number - 1].unit.size);
    }
    rmq_store(&queue->last_store_time_ms, (uint64_t)last->store_time_ms);
    rmq_store(&queue->put_bytes, queue->put_bytes + bytes);
    rmq_store(&queue->max_physical_offset, (uint64_t)last->unit.commit_log_offset + (uint64_t)last->unit.size);
    RMQ_CRASH("dispatch-queue-times");
    if (touch->min_offset > queue->min_offset)
        rmq_store(&queue->min_offset, touch->min_offset);
    RMQ_CRASH("dispatch-queue-min");
    rmq_store(&queue->max_offset, touch->max_offset);
    RMQ_CRASH("dispatch-queue-max");
}

/* Keeps an arrival for a port whose ring is full, and sends it again: a parked pull may not sleep through it. */
static void keep_unsent(struct rmq_dispatcher *d, uint32_t port, uint32_t slot)
{
    if (!d->unsent[port])
        d->unsent[port] = calloc(d->queue_capacity, 1);
    if (!d->unsent[port] || d->unsent[port][slot])
        return;
    d->unsent[port][slot] = 1;
    d->unsent_count[port]++;
}

/* Held pulls wait only while long polling is on. */
static int hears_arrivals(const struct rmq_dispatcher *d, const struct rmq_port *port)
{
    return port->flags & RMQ_PORT_ARRIVALS &&
           (!(port->flags & RMQ_PORT_CONNECTIONS) || rmq_load(&d->header->settings.long_polling_enable));
}

/* A dormant owner has no process that would take arrivals. They start it. */
static int is_dormant(const struct rmq_dispatcher *d, const struct rmq_port *port)
{
    return (rmq_load(&d->header->roles[port->role].flags) & RMQ_ROLE_DORMANT) != 0;
}

static void tell_port(struct rmq_dispatcher *d, uint32_t number)
{
    int dormant = is_dormant(d, rmq_port_at(d->plane, number)), flagged = 0;
    struct rmq_port *port = &d->header->ports.port[number];
    const uint8_t *flags = (uint8_t *)d->plane->base + port->parked_flags_at;
    struct rmq_ring *ring = &port->arrived;
    uint64_t head = ring->head;
    for (uint32_t i = 0; i < d->touched_count; i++) {
        uint32_t slot = d->touched[i];
        if (!rmq_load_relaxed(&flags[slot]))
            continue;
        flagged = 1;
        if (dormant)
            break;
        if (rmq_ring_room(ring, head))
            *(uint32_t *)rmq_ring_slot(d->plane->base, ring, head++) = slot;
        else
            keep_unsent(d, number, slot);
    }
    if (flagged && !(port->flags & RMQ_PORT_CONNECTIONS))
        rmq_worker_activate(d->plane, port->role); /* behind max_offset: it may be about to rest */
    if (head == ring->head)
        return;
    RMQ_CRASH("dispatch-arrival");
    d->role->counters[RMQ_DISPATCH_ARRIVALS] += head - ring->head;
    rmq_store(&ring->head, head);
    RMQ_CRASH("dispatch-arrived-head");
    rmq_role_wake(d->plane, port->role);
}

void rmq_dispatch_resend(struct rmq_dispatcher *d)
{
    uint32_t queues = rmq_load(&d->header->tables.queue_count);
    RMQ_INVARIANT(queues <= d->queue_capacity, queues, d->queue_capacity);
    for (uint32_t p = 0; p < d->header->ports.count; p++) {
        struct rmq_ring *ring = &d->header->ports.port[p].arrived;
        uint64_t head = ring->head;
        if (d->unsent_count[p] && is_dormant(d, &d->header->ports.port[p])) {
            memset(d->unsent[p], 0, d->queue_capacity); /* its next process checks its queues first */
            d->unsent_count[p] = 0;
        }
        for (uint32_t slot = 0; d->unsent_count[p] && slot < queues; slot++) {
            if (!d->unsent[p][slot] || !rmq_ring_room(ring, head))
                continue;
            *(uint32_t *)rmq_ring_slot(d->plane->base, ring, head++) = slot;
            d->unsent[p][slot] = 0;
            d->unsent_count[p]--;
        }
        if (head == ring->head)
            continue;
        rmq_store(&ring->head, head);
        rmq_role_wake(d->plane, d->header->ports.port[p].role);
    }
}

void rmq_dispatch_publish(struct rmq_dispatcher *d)
{
    for (uint32_t i = 0; i < d->touched_count; i++)
        publish_queue(d, d->touched[i]);
    rmq_fence(); /* a reader sets its flag, fences and reads max_offset: one of the two sees the other */
    for (uint32_t p = 0; d->touched_count && p < d->header->ports.count; p++)
        if (hears_arrivals(d, &d->header->ports.port[p]))
            tell_port(d, p);
    uint64_t *counters = d->role->counters;
    counters[RMQ_DISPATCH_BATCHES]++;
    counters[RMQ_DISPATCH_RECORDS] += d->records;
    count_left_out(d);
    counters[RMQ_DISPATCH_BYTES] += d->position - d->marks->dispatched_offset;
    counters[RMQ_DISPATCH_OPEN_FILES] = d->queues.open_count;
    counters[RMQ_DISPATCH_QUEUE_WRITES] = d->queues.writes;
    d->newest_store_time_ms = d->batch_store_time_ms;
    d->dispatched = d->position;
    rmq_store(&d->marks->dispatched_offset, d->position);
    RMQ_CRASH("dispatch-dispatched-offset");
    rmq_dispatch_forget(d);
}

void rmq_dispatch_forget(struct rmq_dispatcher *d)
{
    for (uint32_t i = 0; i < d->touched_count; i++)
        memset(&d->touches[d->touched[i]], 0, sizeof d->touches[0]);
    d->touched_count = d->row_count = d->key_count = 0;
    d->records = d->left_out = 0;
    d->batch_store_time_ms = d->newest_store_time_ms;
}
