#include "services/record_copy.h"

#include "base/bytes.h"
#include "base/number_text.h"
#include "codec/answer.h"
#include "codec/pair_separators.h"
#include "codec/property_pairs.h"

#define HOST_SYS_FLAGS (RMQ_SYS_BORN_HOST_V6 | RMQ_SYS_STORE_HOST_V6)
#define NUL 0

/* Bytes that are written as far as there is room, and counted beyond. */
struct sink {
    uint8_t *to;
    uint64_t room;
    uint64_t length;
};

static inline void put(struct sink *sink, const void *bytes, uint64_t length)
{
    if (sink->length + length <= sink->room)
        memcpy(sink->to + sink->length, bytes, length);
    sink->length += length;
}

static inline void put_byte(struct sink *sink, uint8_t byte) { put(sink, &byte, 1); }

/* --- edits ------------------------------------------------------------------------------------------------ */

/* The checked edits of one copy. */
struct edits {
    const struct rmq_pair_edit *all;
    const uint8_t *texts;
    uint32_t from, count;
    int known;
    uint64_t names; /* a bit for each hint of a name: most pairs meet no edit */
    uint32_t cause; /* RMQ_COPY_EDIT, or RMQ_COPY_MADE */
    int64_t detail;
};

/* The values of stored pairs for the edits that append. */
struct found {
    uint32_t seen;                /* bit of a DEFAULT or ADD whose name was there */
    int32_t numbers[RMQ_EDITS_MAX]; /* of ADD */
};

static inline uint64_t name_hint(const uint8_t *name, uint32_t length) { return 1ull << ((name[0] ^ length * 5) & 63); }

static int text_is_sound(const struct rmq_copy_batch *batch, uint32_t at, uint32_t length, int may_hold_split)
{
    if (!length || at > batch->texts_bytes || length > batch->texts_bytes - at)
        return 0;
    const uint8_t *text = batch->texts + at, *end = text + length;
    while ((text = rmq_find_mark(text, end)) < end && *text == RMQ_NAME_VALUE && may_hold_split)
        text++;
    return text == end;
}

static int edit_is_sound(const struct rmq_copy_batch *batch, const struct rmq_pair_edit *edit)
{
    if (edit->kind < RMQ_EDIT_REMOVE || edit->kind > RMQ_EDIT_ADD || edit->value_from > RMQ_FROM_MESSAGE_ID ||
        !text_is_sound(batch, edit->name_at, edit->name_length, 0))
        return 0;
    if (edit->kind == RMQ_EDIT_RENAME)
        return text_is_sound(batch, edit->value_at, edit->value_length, 0);
    int has_text = (edit->kind == RMQ_EDIT_SET || edit->kind == RMQ_EDIT_DEFAULT) && edit->value_from == RMQ_FROM_TEXT;
    return !has_text || text_is_sound(batch, edit->value_at, edit->value_length, 1);
}

/* Number of the first edit with this name, or e->count. */
static inline uint32_t edit_of(const struct edits *e, const uint8_t *name, uint32_t length)
{
    uint32_t i = 0;
    if (!(e->names & name_hint(name, length)))
        return e->count;
    while (i < e->count && (e->all[i].name_length != length || memcmp(e->texts + e->all[i].name_at, name, length)))
        i++;
    return i;
}

/* Neighbours mostly have the same edits: they are checked once. */
static void take_edits(struct edits *e, const struct rmq_copy_batch *batch, const struct rmq_record_copy *copy)
{
    if (e->known && e->from == copy->edits_from && e->count == copy->edits_count)
        return;
    *e = (struct edits){.all = batch->edits, .texts = batch->texts, .from = copy->edits_from, .count = copy->edits_count,
                        .known = 1};
    if (e->count > RMQ_EDITS_MAX || e->from > batch->edits_count || e->count > batch->edits_count - e->from) {
        e->cause = RMQ_COPY_EDIT;
        e->detail = RMQ_EDITS_MAX;
        return;
    }
    e->all += e->from;
    for (uint32_t i = 0; i < e->count; i++) {
        const struct rmq_pair_edit *edit = &e->all[i];
        if (!edit_is_sound(batch, edit) || edit_of(e, e->texts + edit->name_at, edit->name_length) < i) {
            e->cause = RMQ_COPY_EDIT;
            e->detail = i;
            return;
        }
        e->names |= name_hint(e->texts + edit->name_at, edit->name_length);
    }
}

/* --- pairs ------------------------------------------------------------------------------------------------ */

/* Records the value of the pair `name 01 value` for the edit. 1 if the pair's bytes stay. */
static int meet(const struct edits *e, uint32_t edit, const uint8_t *value, uint32_t length, struct found *found)
{
    if (edit == e->count)
        return 1;
    found->seen |= 1u << edit;
    if (e->all[edit].kind == RMQ_EDIT_ADD)
        found->numbers[edit] = rmq_small_number(value, length);
    return e->all[edit].kind == RMQ_EDIT_DEFAULT;
}

/* The stored pairs that stay, in runs of untouched bytes. Returns the NUL that the properties hold, or NULL. */
static const uint8_t *put_stored(struct sink *sink, const struct edits *e, const uint8_t *at, uint32_t length, struct found *found)
{
    const uint8_t *run = at, *end = at + length;
    while (at < end) {
        const uint8_t *split = rmq_find_mark(at, end), *stop = split;
        while (stop < end && *stop == RMQ_NAME_VALUE)
            stop = rmq_find_mark(stop + 1, end); /* a value may hold 01 */
        if (stop < end && *stop == NUL)
            return stop;
        const uint8_t *next = stop < end ? stop + 1 : end;
        int is_pair = split > at && split + 1 < stop;
        uint32_t edit = is_pair ? edit_of(e, at, (uint32_t)(split - at)) : e->count;
        if (!is_pair || !meet(e, edit, split + 1, (uint32_t)(stop - split - 1), found)) {
            put(sink, run, (uint64_t)(at - run));
            if (is_pair && e->all[edit].kind == RMQ_EDIT_RENAME) {
                put(sink, e->texts + e->all[edit].value_at, e->all[edit].value_length);
                put(sink, split, (uint64_t)(stop - split));
                put_byte(sink, RMQ_PAIR_END);
            }
            run = next;
        }
        at = next;
    }
    if (run < end) {
        put(sink, run, (uint64_t)(end - run));
        if (end[-1] != RMQ_PAIR_END)
            put_byte(sink, RMQ_PAIR_END);
    }
    return NULL;
}

static void put_number(struct sink *sink, int64_t number)
{
    uint8_t text[RMQ_DECIMAL_MAX];
    put(sink, text, (uint64_t)(rmq_put_decimal(text, number) - text));
}

static void put_message_id(struct sink *sink, const uint8_t *record, const struct rmq_record_view *view)
{
    uint8_t raw[28], text[2 * sizeof raw];
    uint32_t host = view->sys_flag & RMQ_SYS_STORE_HOST_V6 ? 20 : 8;
    memcpy(raw, record + view->store_host_at, host);
    rmq_put64(raw + host, (uint64_t)view->physical_offset);
    rmq_hex_put(text, raw, host + 8);
    put(sink, text, 2 * (uint64_t)(host + 8));
}

static int topic_is_value(const uint8_t *topic, uint32_t length)
{
    return length && !memchr(topic, NUL, length) && !memchr(topic, RMQ_PAIR_END, length);
}

/* 0 if the record has no such value. */
static int put_value(struct sink *sink, const struct edits *e, const struct rmq_pair_edit *edit, const uint8_t *record,
                     const struct rmq_record_view *view)
{
    switch (edit->value_from) {
    case RMQ_FROM_TEXT: put(sink, e->texts + edit->value_at, edit->value_length); break;
    case RMQ_FROM_NUMBER: put_number(sink, edit->number); break;
    case RMQ_FROM_QUEUE_ID: put_number(sink, view->queue_id); break;
    case RMQ_FROM_QUEUE_OFFSET: put_number(sink, view->queue_offset); break;
    case RMQ_FROM_MESSAGE_ID: put_message_id(sink, record, view); break;
    default:
        if (!topic_is_value(record + view->topic_at, view->topic_length))
            return 0;
        put(sink, record + view->topic_at, view->topic_length);
    }
    return 1;
}

static int put_appended(struct sink *sink, const struct edits *e, const struct found *found, const uint8_t *record,
                        const struct rmq_record_view *view)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const struct rmq_pair_edit *edit = &e->all[i];
        int seen = found->seen >> i & 1;
        if (edit->kind <= RMQ_EDIT_RENAME || (edit->kind == RMQ_EDIT_DEFAULT && seen))
            continue;
        put(sink, e->texts + edit->name_at, edit->name_length);
        put_byte(sink, RMQ_NAME_VALUE);
        if (edit->kind == RMQ_EDIT_ADD)
            put_number(sink, (int64_t)((uint64_t)edit->number + (uint64_t)(int64_t)(seen ? found->numbers[i] : 0)));
        else if (!put_value(sink, e, edit, record, view))
            return 0;
        put_byte(sink, RMQ_PAIR_END);
    }
    return 1;
}

/* --- the request ------------------------------------------------------------------------------------------ */

static uint32_t refuse(struct rmq_record_copy *copy, uint32_t cause, int64_t detail)
{
    copy->detail = detail;
    return copy->cause = cause;
}

static uint32_t copied_sys_flag(const struct rmq_record_copy *copy, const struct rmq_record_view *view)
{
    return ((uint32_t)view->sys_flag & ~copy->sys_flag_clear) | copy->sys_flag_set;
}

static uint32_t check(struct rmq_record_copy *copy, const struct edits *e, const struct rmq_copy_batch *batch,
                      struct rmq_record_view *view)
{
    if (e->cause)
        return refuse(copy, e->cause, e->detail);
    int result = rmq_record_parse(copy->record, copy->record_bytes, 0, view);
    if (result != RMQ_RECORD_OK)
        return refuse(copy, RMQ_COPY_DAMAGED, result);
    if (copy->queue_slot == RMQ_NONE)
        return copy->cause;
    if (copy->position >= 0 && copy->position != view->physical_offset)
        return refuse(copy, RMQ_COPY_PLACE, view->physical_offset);
    if (((uint32_t)view->sys_flag | copied_sys_flag(copy, view)) & RMQ_SYS_INNER_BATCH)
        return refuse(copy, RMQ_COPY_INNER_BATCH, 0);
    if (view->body_length > batch->body_bytes_max)
        return refuse(copy, RMQ_COPY_BODY, view->body_length);
    /* Last, because a record that a client has made up may claim a whole file of the log. */
    if (copy->flags & RMQ_COPY_CHECK_CRC && view->body_length &&
        rmq_crc32(copy->record + view->body_at, view->body_length) != view->body_crc)
        return refuse(copy, RMQ_COPY_DAMAGED, RMQ_RECORD_BAD_CRC);
    return refuse(copy, RMQ_COPY_MADE, 0);
}

/* Edited properties, behind the place of the body. */
static uint32_t put_properties(struct rmq_record_copy *copy, const struct edits *e, const struct rmq_copy_batch *batch,
                               const struct rmq_record_view *view, struct sink *sink)
{
    struct found found;
    found.seen = 0;
    const uint8_t *stored = copy->record + view->properties_at;
    const uint8_t *nul = put_stored(sink, e, stored, view->properties_length, &found);
    if (nul)
        return refuse(copy, RMQ_COPY_NUL, nul - stored);
    if (!put_appended(sink, e, &found, copy->record, view))
        return refuse(copy, RMQ_COPY_TOPIC, 0);
    uint32_t limit = batch->properties_bytes_max < RMQ_PROPERTIES_BYTES_MAX ? batch->properties_bytes_max : RMQ_PROPERTIES_BYTES_MAX;
    return sink->length > limit ? refuse(copy, RMQ_COPY_PROPERTIES, (int64_t)sink->length) : RMQ_COPY_MADE;
}

static void fill_born(const struct rmq_record_copy *copy, const struct rmq_record_view *view, struct rmq_request *q)
{
    int v6 = view->sys_flag & RMQ_SYS_BORN_HOST_V6;
    const uint8_t *host = copy->record + view->born_host_at;
    uint32_t bytes = v6 ? 16 : 4;
    q->born_port = rmq_get32(host + bytes);
    if (copy->flags & RMQ_COPY_SET_BORN_HOST) {
        v6 = copy->flags & RMQ_COPY_BORN_V6;
        host = copy->born_host;
        bytes = v6 ? 16 : 4;
        q->born_port = copy->born_port;
    }
    memcpy(q->born_host, host, bytes);
    q->flags |= v6 ? RMQ_APPEND_FLAG_BORN_V6 : 0;
    q->born_time_ms = copy->flags & RMQ_COPY_SET_BORN_TIME ? copy->born_time_ms : view->born_time_ms;
}

static void fill_request(const struct rmq_record_copy *copy, const struct rmq_record_view *view, uint64_t at,
                         uint64_t properties_length, struct rmq_request *q)
{
    int32_t set = copy->flags & RMQ_COPY_SET_RECONSUME_TIMES ? 0 : view->reconsume_times;
    int32_t add = copy->flags & (RMQ_COPY_SET_RECONSUME_TIMES | RMQ_COPY_ADD_RECONSUME_TIMES) ? copy->reconsume_times : 0;
    q->body_at = at;
    q->body_length = view->body_length;
    q->properties_at = at + view->body_length;
    q->properties_length = (uint16_t)properties_length;
    q->topic_id = copy->topic_id;
    q->queue_slot = copy->queue_slot;
    q->queue_id = copy->queue_id;
    q->flag = copy->flags & RMQ_COPY_SET_FLAG ? copy->flag : view->flag;
    q->sys_flag = (int32_t)(copied_sys_flag(copy, view) & ~(uint32_t)HOST_SYS_FLAGS);
    q->reconsume_times = (int32_t)((uint32_t)set + (uint32_t)add);
    q->prepared_transaction_offset = copy->prepared_transaction_offset;
    q->kind = RMQ_APPEND_SINGLE;
    q->flags = RMQ_APPEND_FLAG_COPY | (copy->flags & RMQ_COPY_NO_WAIT ? RMQ_APPEND_FLAG_NO_WAIT : 0);
    fill_born(copy, view, q);
}

/* 0 if the arena has no room. */
static int make(struct rmq_record_copy *copy, const struct edits *e, struct rmq_copy_batch *batch, struct rmq_request *q)
{
    struct rmq_record_view view;
    memset(q, 0, sizeof *q);
    if (check(copy, e, batch, &view))
        return 1;
    uint64_t room = batch->arena_end > batch->arena_at ? batch->arena_end - batch->arena_at : 0;
    uint8_t *to = batch->arena + batch->arena_at;
    struct sink sink = {to + view.body_length, room > view.body_length ? room - view.body_length : 0, 0};
    if (put_properties(copy, e, batch, &view, &sink))
        return 1;
    if (view.body_length + sink.length > room) {
        batch->needed = view.body_length + sink.length;
        return 0;
    }
    memcpy(to, copy->record + view.body_at, view.body_length);
    fill_request(copy, &view, batch->arena_at, sink.length, q);
    batch->arena_at += view.body_length + sink.length;
    return 1;
}

void rmq_record_copies_read(struct rmq_record_copy *copies, const struct rmq_queue_unit *units,
                            const struct rmq_held_record *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        copies[i].record = records[i].at;
        copies[i].record_bytes = (uint32_t)units[i].size;
        copies[i].position = units[i].commit_log_offset;
    }
}

uint32_t rmq_record_copies_mark(struct rmq_request *requests, const struct rmq_queue_unit *units, uint32_t count, uint64_t mark)
{
    uint32_t made = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!requests[i].kind)
            continue;
        if (made != i)
            requests[made] = requests[i];
        requests[made].token = mark + (uint64_t)units[i].queue_offset;
        requests[made].prepared_transaction_offset = (int64_t)requests[made].token;
        made++;
    }
    return made;
}

uint32_t rmq_record_copies(struct rmq_record_copy *copies, uint32_t count, struct rmq_copy_batch *batch,
                           struct rmq_request *requests)
{
    struct edits edits = {.known = 0};
    uint32_t done = 0;
    batch->needed = 0;
    for (; done < count; done++) {
        take_edits(&edits, batch, &copies[done]);
        if (!make(&copies[done], &edits, batch, &requests[done]))
            break;
    }
    return done;
}
