/* completer.c: takes answers out of `parked` into `completed` of each port. A parked send is stored in the log, and its answer
 * waits for the disk or for replicas. completer.h has the conditions of an answer, and the code at a time-out or without
 * replicas. The message stays in the log whatever the answer is.
 *
 * `parked` lies in shared memory. The replacement of a dead flush goes on at parked.tail, and no answer is lost or comes twice
 * (layout.h, 4). If all processes die, the parked sends die with the plane: clients see a lost connection, and recovery keeps
 * the valid records.
 *
 * Entries leave `parked` in the order of the log: the first one that still waits stops the rest. All entries wait for the same
 * conditions, so none of the rest could be answered earlier. */
#include "flush/completer.h"

#include "flush/flusher.h"
#include "metrics/latency.h"
#include "plane/port.h"
#include "plane/ring.h"

enum {
    CODE_SYSTEM_BUSY = 2,
    CODE_FLUSH_DISK_TIMEOUT = 10,
    CODE_SLAVE_NOT_AVAILABLE = 11,
    CODE_FLUSH_SLAVE_TIMEOUT = 12,
    CODE_SERVICE_NOT_AVAILABLE = 14,
    GOES_ON = -1,
};

void rmq_completer_open(struct rmq_completer *c, struct rmq_plane *plane)
{
    c->plane = plane;
    c->header = rmq_header(plane);
    c->marks = plane->watermarks;
    c->role = &c->header->roles[RMQ_ROLE_FLUSH];
}

/* The conditions for which an entry still waits. */
struct missing {
    int flush, replicas;
};

static uint64_t end_of(const struct rmq_parked *entry)
{
    return entry->completion.commit_log_offset + entry->completion.bytes;
}

static struct missing missing_of(struct rmq_completer *c, const struct rmq_parked *entry)
{
    const struct rmq_settings *settings = &c->header->settings;
    uint64_t end = end_of(entry);
    return (struct missing){
        .flush = settings->sync_flush && end > c->marks->flushed_offset,
        .replicas = settings->sync_replication && end > rmq_load(&c->marks->replicated_offset),
    };
}

static int64_t slave_wait_ms(struct rmq_completer *c)
{
    int64_t timeout_ms = c->header->settings.slave_timeout_ms;
    int hurries = timeout_ms > RMQ_STOP_SLAVES_MS && rmq_load(&c->marks->stop_requested);
    return hurries ? RMQ_STOP_SLAVES_MS : timeout_ms;
}

/* The entry's answer: code 0, a refusal, or GOES_ON. */
static int verdict(struct rmq_completer *c, const struct rmq_parked *entry, int64_t now_ms)
{
    const struct rmq_settings *settings = &c->header->settings;
    struct missing missing = missing_of(c, entry);
    int64_t waited_ms = now_ms - entry->parked_mono_ms;
    if (missing.flush && rmq_load(&c->marks->store_fault) == RMQ_FAULT_FSYNC)
        return CODE_SERVICE_NOT_AVAILABLE;
    if ((missing.flush || missing.replicas) && !rmq_is_master(c->marks))
        return CODE_SYSTEM_BUSY;
    uint32_t state = missing.replicas ? rmq_load(&c->marks->replication_state) : RMQ_REPLICATION_OK;
    if (state)
        return state == RMQ_REPLICATION_LOST ? CODE_SLAVE_NOT_AVAILABLE : CODE_FLUSH_SLAVE_TIMEOUT;
    if (missing.replicas && waited_ms >= slave_wait_ms(c))
        return CODE_FLUSH_SLAVE_TIMEOUT;
    if (missing.flush && waited_ms >= settings->sync_flush_timeout_ms)
        return CODE_FLUSH_DISK_TIMEOUT;
    return missing.flush || missing.replicas ? GOES_ON : 0;
}

static void fill_answer(struct rmq_completer *c, struct rmq_completion *out, const struct rmq_parked *entry, int code)
{
    uint64_t *counters = c->role->counters;
    *out = entry->completion;
    out->code = (int16_t)code;
    switch (code) {
    case 0:
        return;
    case CODE_SYSTEM_BUSY:
        out->cause = RMQ_CAUSE_YIELDED;
        counters[RMQ_FLUSH_YIELDED]++;
        return;
    case CODE_FLUSH_DISK_TIMEOUT:
        out->cause = RMQ_CAUSE_FLUSH_TIMEOUT;
        counters[RMQ_FLUSH_TIMEOUTS]++;
        return;
    case CODE_SLAVE_NOT_AVAILABLE:
        out->cause = RMQ_CAUSE_SLAVE_LOST;
        counters[RMQ_FLUSH_SLAVE_LOST]++;
        return;
    case CODE_FLUSH_SLAVE_TIMEOUT:
        out->cause = RMQ_CAUSE_SLAVE_TIMEOUT;
        counters[RMQ_FLUSH_SLAVE_TIMEOUTS]++;
        return;
    default:
        out->cause = RMQ_FAULT_FSYNC;
        out->cause_errno = c->marks->store_fault_errno;
        counters[RMQ_FLUSH_FAILED]++;
    }
}

/* Counts the time of parked entries that end at or below `mark`; answered ones that had not come so far are passed over. */
static void count_times(struct rmq_completer *c, uint64_t *seen, uint64_t mark, int place, int64_t now_ns)
{
    const struct rmq_ring *parked = &c->header->ports.parked;
    uint64_t head = parked->tail + rmq_ring_waiting(parked, parked->tail), at = *seen < parked->tail ? parked->tail : *seen;
    struct rmq_latency *latency = &c->header->latency[RMQ_ROLE_FLUSH][place];
    struct rmq_latency_run run = {0, 0};
    for (; at < head; at++) {
        const struct rmq_parked *entry = rmq_ring_slot(c->plane->base, parked, at);
        if (end_of(entry) > mark)
            break;
        rmq_latency_run_add(latency, &run, entry->received_mono_ns, now_ns);
    }
    rmq_latency_run_end(latency, &run, now_ns);
    *seen = at;
}

/* An entry with an answer (a predecessor died before it released the entry) is only released. */
uint64_t rmq_completer_run(struct rmq_completer *c)
{
    struct rmq_plane_header *h = c->header;
    struct rmq_ports *ports = &h->ports;
    uint64_t tail = ports->parked.tail, first = tail, parked = tail + rmq_ring_waiting(&ports->parked, tail);
    uint64_t heads[RMQ_PORTS_MAX];
    if (tail == parked)
        return 0;
    int64_t now_ns = rmq_mono_ns(), now_ms = now_ns / 1000000;
    if (h->settings.sync_flush)
        count_times(c, &c->flushed_seen, c->marks->flushed_offset, RMQ_FLUSH_LATENCY_FLUSHED, now_ns);
    if (h->settings.sync_replication)
        count_times(c, &c->replicated_seen, rmq_load(&c->marks->replicated_offset), RMQ_FLUSH_LATENCY_REPLICATED, now_ns);
    for (uint32_t p = 0; p < ports->count; p++)
        heads[p] = ports->port[p].completed.head;
    for (; tail < parked; tail++) {
        const struct rmq_parked *entry = rmq_ring_slot(c->plane->base, &ports->parked, tail);
        uint32_t p = entry->port;
        RMQ_INVARIANT(p < ports->count, p, ports->count, tail);
        if (entry->completed_position < heads[p])
            continue;
        RMQ_INVARIANT(entry->completed_position == heads[p], entry->completed_position, heads[p], p);
        int code = verdict(c, entry, now_ms);
        if (code == GOES_ON)
            break;
        uint64_t room = rmq_ring_room(&ports->port[p].completed, heads[p]); /* write has seen to it */
        RMQ_INVARIANT(room > 0, p, heads[p]);
        struct rmq_completion *answer = rmq_ring_slot(c->plane->base, &ports->port[p].completed, heads[p]);
        fill_answer(c, answer, entry, code);
        answer->durable_us = entry->received_mono_ns ? rmq_latency_us(now_ns - entry->received_mono_ns) : 0;
        RMQ_CRASH("flush-answer");
        heads[p]++;
    }
    for (uint32_t p = 0; p < ports->count; p++) {
        struct rmq_ring *completed = &ports->port[p].completed;
        if (heads[p] == completed->head)
            continue;
        rmq_store(&completed->head, heads[p]);
        RMQ_CRASH("flush-completed-head");
        rmq_role_wake(c->plane, rmq_port_role(h, p));
    }
    rmq_store(&ports->parked.tail, tail);
    RMQ_CRASH("flush-parked-tail");
    if (tail != first) {
        rmq_fence(); /* write reads these heads between its word and its sleep */
        if (rmq_load_relaxed(&ports->awaits_parked))
            rmq_role_wake(c->plane, RMQ_ROLE_WRITE);
    }
    c->role->counters[RMQ_FLUSH_COMPLETED] += tail - first;
    return tail - first;
}

/* Time for which the entry may wait for the missing condition. */
static int64_t wait_ms(struct rmq_completer *c, struct missing missing)
{
    int64_t flush_ms = missing.flush ? c->header->settings.sync_flush_timeout_ms : INT64_MAX;
    int64_t slave_ms = missing.replicas ? slave_wait_ms(c) : INT64_MAX;
    return slave_ms < flush_ms ? slave_ms : flush_ms;
}

static const struct rmq_parked *oldest(struct rmq_completer *c)
{
    const struct rmq_ring *parked = &c->header->ports.parked;
    return !rmq_ring_waiting(parked, parked->tail) ? NULL : rmq_ring_slot(c->plane->base, parked, parked->tail);
}

/* All entries wait for the same conditions, so the head is due first. A request that is parked for replicas alone rings no
 * bell. If it arrives while flush sleeps, flush sees it before its time is over. */
int rmq_completer_wait_ms(struct rmq_completer *c, int limit_ms)
{
    const struct rmq_settings *settings = &c->header->settings;
    if (settings->sync_replication && settings->slave_timeout_ms < (uint32_t)limit_ms)
        limit_ms = (int)settings->slave_timeout_ms;
    const struct rmq_parked *entry = oldest(c);
    if (!entry)
        return limit_ms;
    int64_t waited_ms = rmq_mono_ms() - entry->parked_mono_ms, left = wait_ms(c, missing_of(c, entry)) - waited_ms;
    return left < 1 ? 1 : left < limit_ms ? (int)left : limit_ms;
}

int rmq_completer_has_work(struct rmq_completer *c)
{
    const struct rmq_parked *entry = oldest(c);
    return entry && verdict(c, entry, rmq_mono_ms()) != GOES_ON;
}

/* With sync_flush the oldest entry decides: if it is not on disk, all entries behind it are not, and later ones neither. */
int rmq_completer_awaits_slaves(struct rmq_completer *c)
{
    const struct rmq_settings *settings = &c->header->settings;
    const struct rmq_parked *entry = oldest(c);
    return settings->sync_replication && (!settings->sync_flush || (entry && !missing_of(c, entry).flush));
}
