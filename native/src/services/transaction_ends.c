/* transaction_ends.c: the way of ends of transactions to write. Twin of the rules: services/transactions/ends_twin.py. */
#include "services/transaction_ends.h"

#include <string.h>

#include "base/number_text.h"
#include "services/copy_targets.h"

_Static_assert(RMQ_OP_ROOM == RMQ_OP_BYTES_MAX + sizeof(((struct rmq_end_chains *)0)->op_properties), "an op record fits");
_Static_assert(RMQ_END_CHAIN_ITEMS + 1 == RMQ_CHAIN_MAX, "a chain has an op record");
_Static_assert(RMQ_END_ROWS == RMQ_END_WAITING_MAX + RMQ_END_CHAINS * RMQ_END_CHAIN_ITEMS, "all ends of chains may wait again");

#define CODE_FSYNC_FAILED 14 /* the record has bytes, but the disk may lack it */

enum step { WAITS, SENT, LEFT, NO_ROOM };

/* The chain that is being made. */
struct draft {
    struct rmq_end_chain *chain;
    uint32_t number;             /* of the chain in tokens */
    uint32_t requests;           /* so far, copies of commits */
    uint32_t op_bytes;
    uint8_t op[RMQ_OP_BYTES_MAX];
    struct rmq_copy_batch batch;
    struct rmq_request request[RMQ_CHAIN_MAX];
};

static uint32_t row_of(struct rmq_end_chains *c)
{
    uint32_t row = c->unused_count ? c->unused[--c->unused_count] : c->used_rows++;
    RMQ_INVARIANT(row < RMQ_END_ROWS, row, c->waiting_count, c->unused_count, c->used_rows);
    return row;
}

uint32_t rmq_end_chains_take(struct rmq_plane *plane, struct rmq_end_chains *c, uint32_t room)
{
    uint32_t taken = 0;
    for (; taken < room && c->waiting_count < RMQ_END_WAITING_MAX; taken++) {
        uint32_t row = row_of(c);
        if (!rmq_plain_end_take(plane, c->answerer, &c->rows[row])) {
            c->unused[c->unused_count++] = row;
            break;
        }
        c->rows[row].why = RMQ_END_NEW;
        c->waiting[c->waiting_count++] = row;
    }
    return taken;
}

struct rmq_plain_end *rmq_end_chains_add(struct rmq_end_chains *c)
{
    uint32_t row = row_of(c);
    c->rows[row].why = RMQ_END_NEW;
    c->waiting[c->waiting_count++] = row;
    return &c->rows[row];
}

int rmq_end_readiness(const struct rmq_half_marks *m, const struct rmq_end_fields *end)
{
    if (end->position >= m->append_end)
        return RMQ_END_MISSING;
    if (end->position >= m->dispatched)
        return -1;
    if (end->queue_offset < m->arrived || end->queue_offset >= m->end)
        return 0;
    return m->is_full ? RMQ_END_FULL : -1;
}

/* 1 if an end may be added to a chain now. */
static int has_room(struct rmq_plane *plane, const struct rmq_end_chains *c, const struct draft *d)
{
    const struct rmq_ring *ring = &rmq_port_at(plane, c->port)->request;
    if (d->chain)
        return 1;
    return c->busy_chains < RMQ_END_CHAINS && ring->capacity - (ring->head - rmq_load(&ring->tail)) >= RMQ_CHAIN_MAX;
}

static int begin(struct rmq_plane *plane, struct rmq_end_chains *c, struct draft *d)
{
    if (d->chain || !has_room(plane, c, d))
        return d->chain != NULL;
    for (uint32_t i = 0; i < RMQ_END_CHAINS; i++) {
        if (c->chains[i].count)
            continue;
        d->chain = &c->chains[i];
        d->number = c->first_chain + i;
        d->requests = d->op_bytes = 0;
        memset(&d->batch, 0, sizeof d->batch);
        d->batch.arena = c->arena;
        d->batch.arena_at = d->number * c->chain_bytes;
        d->batch.arena_end = d->batch.arena_at + c->chain_bytes - RMQ_OP_ROOM;
        d->batch.body_bytes_max = c->body_bytes_max;
        d->batch.properties_bytes_max = c->properties_bytes_max;
        return 1;
    }
    return 0;
}

void rmq_end_chains_op(const struct rmq_end_chains *c, uint32_t number, const uint8_t *list, uint32_t length,
                       struct rmq_request *request)
{
    uint64_t at = (number + 1) * c->chain_bytes - RMQ_OP_ROOM;
    memcpy(c->arena + at, list, length);
    memcpy(c->arena + at + length, c->op_properties, c->op_properties_length);
    memset(request, 0, sizeof *request);
    request->body_at = at;
    request->body_length = length;
    request->properties_at = at + length;
    request->properties_length = (uint16_t)c->op_properties_length;
    request->topic_id = c->op_topic_id;
    request->queue_slot = c->op_slot;
    request->queue_id = c->op_queue_id;
    memcpy(request->born_host, c->host, c->host_length);
    request->born_port = c->host_port;
    request->born_time_ms = c->wall_ms;
    request->flags = (uint16_t)(RMQ_APPEND_FLAG_COPY | (c->host_length == 16 ? RMQ_APPEND_FLAG_BORN_V6 : 0));
    request->kind = RMQ_APPEND_SINGLE;
    request->prepared_transaction_offset = c->op_mark;
}

/* Submits the draft. Its halves are open again if the ring takes nothing. */
static void submit(struct rmq_plane *plane, struct rmq_end_chains *c, struct draft *d)
{
    struct rmq_end_chain *chain = d->chain;
    d->chain = NULL;
    if (!chain || !chain->count)
        return;
    rmq_end_chains_op(c, d->number, d->op, d->op_bytes, &d->request[d->requests]);
    uint32_t count = d->requests + 1;
    for (uint32_t i = 0; i < count; i++) {
        d->request[i].token = (uint64_t)d->number << 8 | i;
        d->request[i].flags = (uint16_t)(d->request[i].flags & ~RMQ_APPEND_FLAG_WITH_NEXT);
        if (i + 1 < count)
            d->request[i].flags |= RMQ_APPEND_FLAG_WITH_NEXT;
    }
    uint32_t taken = rmq_port_submit(plane, c->port, d->request, count);
    RMQ_INVARIANT(taken == count, taken, count, d->number, c->port);
    chain->waiting = count;
    chain->refused = chain->done = 0;
    chain->end = 0;
    c->busy_chains++;
}

/* Adds the copy of a commit. */
static enum step add_copy(struct rmq_plane *plane, struct rmq_end_chains *c, struct draft *d, const struct rmq_plain_end *end,
                          const struct rmq_held_record *record, uint32_t size)
{
    struct rmq_record_copy copy = {
        .record = record->at, .record_bytes = size, .position = end->fields.position,
        .sys_flag_clear = RMQ_SYS_TRANSACTION_MASK, .sys_flag_set = RMQ_SYS_TRANSACTION_COMMIT,
        .prepared_transaction_offset = end->fields.position,
    };
    if (rmq_copy_targets(plane, &copy, 1, c->half_topic_id))
        return LEFT;
    if (!rmq_record_copies(&copy, 1, &d->batch, &d->request[d->requests]))
        return d->requests ? NO_ROOM : LEFT;
    if (copy.cause != RMQ_COPY_MADE)
        return LEFT;
    d->requests++;
    return SENT;
}

static enum step add(struct rmq_plane *plane, struct rmq_end_chains *c, struct rmq_half_table *halves, struct draft *d,
                     const struct rmq_plain_end *end, const struct rmq_held_record *record, uint32_t size)
{
    int64_t place = rmq_half_table_place(halves, end->first);
    if (place < 0 || halves->rows[place].state == RMQ_HALF_HELD)
        return LEFT;
    if (halves->rows[place].state == RMQ_HALF_SENT)
        return WAITS; /* a second end, whose answer is known when the chain of the first is stored */
    if (!begin(plane, c, d))
        return WAITS;
    uint8_t text[24];
    uint32_t digits = (uint32_t)(rmq_put_decimal(text, halves->rows[place].newest) - text);
    text[digits++] = ',';
    if (d->chain->count == RMQ_END_CHAIN_ITEMS || (d->chain->count && d->op_bytes + digits > c->op_bytes_max))
        return NO_ROOM;
    if (end->fields.commit_or_rollback == RMQ_END_COMMIT) {
        enum step step = add_copy(plane, c, d, end, record, size);
        if (step != SENT)
            return step;
    }
    memcpy(d->op + d->op_bytes, text, digits);
    d->op_bytes += digits;
    halves->rows[place].state = RMQ_HALF_SENT;
    d->chain->ends[d->chain->count] = *end;
    d->chain->ends[d->chain->count++].record.received_mono_ns = 0; /* its time is counted, or told, when it is sent */
    return SENT;
}

/* 1 if the end was judged before, and its half is still in the chain of another end. */
static int waits_for_another(const struct rmq_half_table *halves, const struct rmq_plain_end *end)
{
    int64_t place = end->why == RMQ_END_DECIDE ? rmq_half_table_place(halves, end->first) : -1;
    return place >= 0 && halves->rows[place].state == RMQ_HALF_SENT;
}

static enum step process(struct rmq_plane *plane, struct rmq_queue_reader *q, struct rmq_end_chains *c,
                         struct rmq_half_table *halves, struct draft *d, struct rmq_plain_end *end)
{
    struct rmq_named_half half = {
        .queue_offset = end->fields.queue_offset, .position = end->fields.position, .group_length = end->fields.group.length,
    };
    struct rmq_held_record record;
    uint32_t size;
    if (!has_room(plane, c, d) || waits_for_another(halves, end))
        return WAITS;
    c->judged++;
    end->why = RMQ_END_UNSOUND;
    if (!rmq_named_half_hold(q, c->half_slot, &half, end->text + end->fields.group.at, &record, &size))
        return LEFT;
    end->why = RMQ_END_DECIDE;
    end->first = rmq_half_first(c->role, half.prepared_transaction_offset, half.queue_offset);
    enum step step = add(plane, c, halves, d, end, &record, size);
    if (step == NO_ROOM) {
        submit(plane, c, d);
        step = add(plane, c, halves, d, end, &record, size);
    }
    rmq_queue_reader_release(&record);
    return step == NO_ROOM ? LEFT : step;
}

static enum step step_of(struct rmq_plane *plane, struct rmq_queue_reader *q, struct rmq_end_chains *c, struct rmq_half_table *halves,
                         const struct rmq_half_marks *marks, struct draft *d, struct rmq_plain_end *end)
{
    int ready = rmq_end_readiness(marks, &end->fields);
    if (ready < 0)
        return WAITS;
    if (!ready)
        return process(plane, q, c, halves, d, end);
    end->why = (uint32_t)ready;
    return LEFT;
}

/* Leaves the ends of refused chains to Python. */
static uint32_t leave_refused(struct rmq_end_chains *c, struct rmq_plain_end *left, uint32_t room)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < RMQ_END_CHAINS; i++) {
        struct rmq_end_chain *chain = &c->chains[i];
        if (!chain->count || chain->waiting || !chain->refused)
            continue;
        while (chain->done < chain->count && count < room)
            left[count++] = chain->ends[chain->done++];
        if (chain->done == chain->count) {
            chain->count = 0;
            c->busy_chains--;
        }
    }
    return count;
}

uint32_t rmq_end_chains_send(struct rmq_plane *plane, struct rmq_queue_reader *q, struct rmq_end_chains *c,
                             struct rmq_half_table *halves, const struct rmq_half_marks *marks, int64_t now_ns, int64_t slow_ns,
                             struct rmq_latency *latency, struct rmq_plain_end *left, uint32_t room)
{
    struct draft draft = {.chain = NULL};
    uint32_t count = leave_refused(c, left, room), kept = 0;
    for (uint32_t i = 0; i < c->waiting_count; i++) {
        struct rmq_plain_end *end = &c->rows[c->waiting[i]];
        int64_t received_ns = (int64_t)end->record.received_mono_ns;
        int is_slow = received_ns && received_ns < slow_ns;
        enum step step = count == room ? WAITS : step_of(plane, q, c, halves, marks, &draft, end);
        if (step == WAITS) {
            c->waiting[kept++] = c->waiting[i];
            continue;
        }
        if (step == LEFT || is_slow) {
            left[count] = *end;
            left[count++].why = step == LEFT ? end->why : RMQ_END_SLOW;
        } else if (received_ns) {
            rmq_latency_count(latency, now_ns - received_ns, 1);
        }
        c->unused[c->unused_count++] = c->waiting[i];
    }
    c->waiting_count = kept;
    submit(plane, c, &draft);
    return count;
}

/* 0 if the ring of answers has no room. */
static int answer(struct rmq_plane *plane, const struct rmq_end_chains *c, const struct rmq_plain_end *end)
{
    return rmq_plain_answer(plane, c->answerer, &end->record, &end->asked, 0) != -ENOBUFS;
}

/* The chain has all completions. Ends it, unless some answer finds no room. */
static void finish(struct rmq_plane *plane, struct rmq_end_chains *c, struct rmq_end_chain *chain)
{
    while (chain->done < chain->count && answer(plane, c, &chain->ends[chain->done]))
        chain->done++;
    if (chain->done < chain->count)
        return;
    chain->count = 0;
    c->busy_chains--;
}

uint32_t rmq_finish_bucket(int64_t seconds)
{
    static const int64_t bounds[RMQ_FINISH_BUCKETS - 1] = {5, 60, 600, 3600, 43200, 86400};
    uint32_t at = 0;
    while (at < RMQ_FINISH_BUCKETS - 1 && seconds > bounds[at])
        at++;
    return at;
}

static void count_commit(struct rmq_end_chains *c, int64_t born_ms)
{
    int64_t seconds = c->wall_ms > born_ms ? (c->wall_ms - born_ms) / 1000 : 0;
    c->committed++;
    c->finish_counts[rmq_finish_bucket(seconds)]++;
    c->finish_seconds += (uint64_t)seconds;
}

static void settle(struct rmq_end_chains *c, struct rmq_half_table *halves, struct rmq_end_chain *chain)
{
    for (uint32_t i = 0; i < chain->count; i++) {
        int64_t first = chain->ends[i].first, place = rmq_half_table_place(halves, first);
        RMQ_INVARIANT(place >= 0 && halves->rows[place].state == RMQ_HALF_SENT, place, first, i, chain->count);
        if (chain->refused) {
            halves->rows[place].state = RMQ_HALF_OPEN;
            continue;
        }
        rmq_half_table_end(halves, (uint64_t)place);
        if (chain->ends[i].fields.commit_or_rollback == RMQ_END_COMMIT)
            count_commit(c, halves->rows[place].born_ms);
        else
            c->rolled_back++;
    }
    if (!chain->refused && chain->end > c->log_end)
        c->log_end = chain->end;
}

uint32_t rmq_end_chains_collect(struct rmq_plane *plane, struct rmq_end_chains *c, struct rmq_half_table *halves,
                                struct rmq_completion *others, uint32_t room)
{
    struct rmq_completion found;
    uint32_t count = 0;
    for (uint32_t i = 0; i < RMQ_END_CHAINS; i++) /* those whose answers had no room */
        if (c->chains[i].count && !c->chains[i].waiting && !c->chains[i].refused)
            finish(plane, c, &c->chains[i]);
    while (count < room && rmq_port_take(plane, c->port, &found)) {
        uint64_t number = found.token >> 8;
        if (number < c->first_chain || number >= c->first_chain + RMQ_END_CHAINS) {
            others[count++] = found;
            continue;
        }
        struct rmq_end_chain *chain = &c->chains[number - c->first_chain];
        chain->refused += !found.bytes || found.code == CODE_FSYNC_FAILED;
        if (found.commit_log_offset + found.bytes > chain->end)
            chain->end = found.commit_log_offset + found.bytes;
        if (--chain->waiting)
            continue;
        settle(c, halves, chain);
        if (!chain->refused)
            finish(plane, c, chain);
    }
    c->unfinished = 0;
    for (uint32_t i = 0; i < RMQ_END_CHAINS; i++)
        c->unfinished += c->chains[i].count && !c->chains[i].waiting;
    return count;
}
