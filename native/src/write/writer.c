#include "write/writer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/bytes.h"
#include "codec/record.h"
#include "dispatch/dispatch_batch.h"
#include "log/append_window.h"
#include "plane/journal.h"
#include "plane/port.h"
#include "plane/ring.h"
#include "write/write_batch.h"

enum {
    PARK_MS = 100,
    SEGMENT_POLL_MS = 5,
    SEGMENT_WAIT_MS = 5000, /* as stock waits for a new file */
    CLOCK_EVERY = 16,       /* busy batches between two reads of the clock */
    DISPATCH_NAP_NS = 200000,
    DISPATCH_NAPS = 25, /* of one batch: 5 ms */
};
#define DISPATCH_BEHIND_MAX ((uint64_t)64 << 20)

/* --- journal ------------------------------------------------------------------------------------------ */

/* Stores the words of a committed batch as absolute values, so that repetition changes nothing. */
static void redo(struct rmq_writer *w, const struct rmq_journal_entry *entry)
{
    struct rmq_ring *parked = &w->header->ports.parked;
    for (uint32_t p = 0; p < w->port_count; p++)
        if (w->ports[p].request.tail != entry->port[p].request_tail) {
            rmq_store(&w->ports[p].request.tail, entry->port[p].request_tail);
            RMQ_CRASH("write-request-tail");
        }
    for (uint32_t p = 0; p < w->port_count; p++)
        if (w->ports[p].appended.head != entry->port[p].completion_head) {
            rmq_store(&w->ports[p].appended.head, entry->port[p].completion_head);
            RMQ_CRASH("write-completion-head");
        }
    if (parked->head != entry->parked_head)
        rmq_store(&parked->head, entry->parked_head);
    RMQ_CRASH("write-parked-head");
    rmq_store(&w->plane->watermarks->append_offset, entry->append_offset);
    RMQ_CRASH("write-append-offset");
}

static void commit(struct rmq_writer *w)
{
    struct rmq_journal *journal = &w->header->ports.journal;
    uint64_t generation = journal->generation + 1;
    RMQ_INVARIANT(w->next.append_offset <= journal->intent_high, w->next.append_offset, journal->intent_high);
    struct rmq_journal_entry *entry = &journal->entry[generation & 1];
    w->next.generation = generation;
    __atomic_thread_fence(__ATOMIC_RELEASE); /* journal_of (port.c) may read the entry: it has to see that its number is old */
    memcpy(entry, &w->next, offsetof(struct rmq_journal_entry, port) + w->port_count * sizeof w->next.port[0]);
    RMQ_CRASH("write-journal-entry");
    rmq_store(&journal->generation, generation);
    RMQ_CRASH("write-journal");
    redo(w, entry);
}

/* The state as of the last commit; in a plane without one, rings and watermarks have it. */
static int load_journal(struct rmq_writer *w)
{
    struct rmq_plane_header *h = w->header;
    uint64_t generation = rmq_load(&h->ports.journal.generation);
    if (generation) {
        struct rmq_journal_entry *entry = &h->ports.journal.entry[generation & 1];
        RMQ_INVARIANT(entry->generation == generation, entry->generation, generation);
        redo(w, entry);
        w->next = *entry;
        return 0;
    }
    memset(&w->next, 0, sizeof w->next);
    w->next.append_offset = rmq_load(&w->plane->watermarks->append_offset);
    w->next.parked_head = h->ports.parked.head;
    for (uint32_t p = 0; p < w->port_count; p++)
        w->next.port[p] = (struct rmq_journal_port){
            .request_tail = w->ports[p].request.tail,
            .completion_head = w->ports[p].appended.head,
            .parked_count = w->ports[p].completed.head,
        };
    return 0;
}

/* --- opening ------------------------------------------------------------------------------------------ */

/* Wipes the bytes above the append position that the dead write has left in a batch, so that no process takes them for records. */
static int wipe_intent(struct rmq_writer *w)
{
    struct rmq_journal *journal = &w->header->ports.journal;
    uint64_t from = w->next.append_offset, high = rmq_load(&journal->intent_high);
    while (from < high) {
        struct rmq_segment segment;
        uint64_t start = from - from % w->segment_bytes, end = start + w->segment_bytes;
        uint64_t to = high < end ? high : end;
        int rc = rmq_segment_map(&segment, w->header->settings.commit_log_path, start, w->segment_bytes, 1);
        if (rc < 0)
            return rc;
        memset(segment.base + (from - start), 0, to - from);
        rmq_segment_unmap(&segment);
        from = to;
    }
    rmq_store(&journal->intent_high, w->next.append_offset);
    return 0;
}

/* A queue offset that dispatch leaves out (dispatch_batch.c, bridge) must not be followed here: everything behind it would
 * be left out, too. Such records are those of an earlier life of a topic that was deleted and made again, or damaged. */
static int is_dispatched(const struct rmq_writer *w, uint64_t next, int64_t queue_offset)
{
    uint64_t units = w->header->settings.queue_file_bytes / RMQ_CQ_UNIT_BYTES;
    if (queue_offset < 0 || queue_offset > INT64_MAX / RMQ_CQ_UNIT_BYTES - RMQ_DISPATCH_ROWS)
        return 0;
    return !next || (uint64_t)queue_offset <= next || (uint64_t)queue_offset - next <= units;
}

static void count_record(struct rmq_writer *w, const uint8_t *record, const struct rmq_record_view *view)
{
    int transaction = view->sys_flag & RMQ_SYS_TRANSACTION_MASK;
    if (transaction == RMQ_SYS_TRANSACTION_PREPARED || transaction == RMQ_SYS_TRANSACTION_ROLLBACK)
        return;
    uint32_t topic = rmq_topic_find(w->plane, (const char *)record + view->topic_at, view->topic_length);
    uint32_t slot = topic == RMQ_NONE ? RMQ_NONE : rmq_queue_find(w->plane, topic, (uint32_t)view->queue_id);
    if (slot == RMQ_NONE || slot >= w->queues_known || !is_dispatched(w, w->queue_offsets[slot], view->queue_offset))
        return;
    if ((uint64_t)view->physical_offset < rmq_queue_at(w->plane, slot)->replay_from) /* dispatch leaves it out, too */
        return;
    uint64_t next = (uint64_t)view->queue_offset + 1;
    if (next > w->queue_offsets[slot])
        w->queue_offsets[slot] = next;
}

/* Queue offsets = those that dispatch has published, plus the records that it has not reached. dispatched_offset is read first.
 * Whatever dispatch does meanwhile, every record is in one of the two. */
static int rebuild_queue_offsets(struct rmq_writer *w)
{
    uint64_t at = rmq_load(&w->plane->watermarks->dispatched_offset), end = w->next.append_offset;
    rmq_writer_queues_learn(w);
    while (at < end) {
        struct rmq_segment segment;
        struct rmq_record_view view;
        uint64_t start = at - at % w->segment_bytes, limit = start + w->segment_bytes;
        uint64_t stop = end < limit ? end : limit;
        int rc = rmq_segment_map(&segment, w->header->settings.commit_log_path, start, w->segment_bytes, 0);
        if (rc < 0)
            return rc;
        const uint8_t *file = (const uint8_t *)segment.base;
        while (at < stop) {
            rc = rmq_record_parse(file + (at - start), stop - at, 0, &view);
            if (rc == RMQ_RECORD_OK) {
                count_record(w, file + (at - start), &view);
                at += view.total_size;
                continue;
            }
            int64_t next = rc == RMQ_RECORD_BLANK ? -1 : rmq_log_next_record(file, at - start, stop - start, (int64_t)start);
            at = next < 0 ? stop : start + (uint64_t)next; /* a damaged record stays, and no queue counts it */
        }
        rmq_segment_unmap(&segment);
    }
    return 0;
}

/* The role on whose CPU the helper of the append window runs: one that answers no client, so that a folio may be cleared at
 * once. */
static const struct rmq_role *calm_neighbour(const struct rmq_writer *w)
{
    const struct rmq_settings *settings = &w->header->settings;
    int completer_answers = settings->sync_replication && !settings->sync_flush;
    return &w->header->roles[completer_answers ? RMQ_ROLE_DISPATCH : RMQ_ROLE_FLUSH];
}

static int open_parts(struct rmq_writer *w)
{
    w->segment_bytes = w->header->settings.segment_bytes;
    if (!w->segment_bytes)
        return -EINVAL;
    w->queue_offsets = calloc(w->header->tables.queue_capacity, sizeof *w->queue_offsets);
    if (!w->queue_offsets)
        return -ENOMEM;
    int rc = load_journal(w);
    if (rc >= 0)
        rc = wipe_intent(w);
    if (rc >= 0)
        rc = rebuild_queue_offsets(w);
    if (rc >= 0)
        rc = rmq_append_window_open(&w->window, &w->header->settings, calm_neighbour(w), w->next.append_offset);
    return rc;
}

struct rmq_writer *rmq_writer_open(struct rmq_plane *plane, int *error)
{
    struct rmq_writer *w = calloc(1, sizeof *w);
    if (!w) {
        *error = -ENOMEM;
        return NULL;
    }
    w->plane = plane;
    w->header = rmq_header(plane);
    w->role = &w->header->roles[RMQ_ROLE_WRITE];
    w->ports = w->header->ports.port;
    w->port_count = w->header->ports.count;
    RMQ_INVARIANT(rmq_journal_is_owned(plane, RMQ_ROLE_WRITE), w->header->ports.journal.owner);
    *error = open_parts(w);
    if (*error < 0) {
        rmq_writer_close(w);
        return NULL;
    }
    return w;
}

void rmq_writer_close(struct rmq_writer *w)
{
    if (!w)
        return;
    if (w->window.started)
        rmq_append_window_close(&w->window);
    free(w->queue_offsets);
    free(w);
}

/* --- one batch ---------------------------------------------------------------------------------------- */

static void ring_bells(struct rmq_writer *w)
{
    struct rmq_watermarks *marks = w->plane->watermarks;
    const struct rmq_settings *settings = &w->header->settings;
    for (uint32_t p = 0; p < w->port_count; p++)
        if (w->answered[p])
            rmq_role_wake(w->plane, rmq_port_role(w->header, p));
    if (w->rolled || (w->appended && settings->sync_flush))
        rmq_role_wake_asleep(w->plane, RMQ_ROLE_FLUSH);
    if (w->parked && settings->sync_replication) {
        rmq_fence(); /* the state may have changed since these were judged: then the completer has looked too early */
        if (rmq_load(&marks->replication_state))
            rmq_role_wake(w->plane, RMQ_ROLE_FLUSH);
    }
    if (w->appended && !(marks->confirm_policy & RMQ_CONFIRM_FLUSHED))
        rmq_role_wake(w->plane, RMQ_ROLE_DISPATCH);
    if (w->appended)
        rmq_role_wake(w->plane, RMQ_ROLE_HA);
}

static void count_batch(struct rmq_writer *w)
{
    uint64_t *counters = w->role->counters;
    counters[RMQ_WRITE_BATCHES]++;
    counters[RMQ_WRITE_REQUESTS] += w->plans;
    counters[RMQ_WRITE_MESSAGES] += w->messages;
    counters[RMQ_WRITE_BYTES] += w->appended;
    counters[RMQ_WRITE_REFUSED] += w->refused;
    counters[RMQ_WRITE_TOO_FEW_REPLICAS] += w->too_few_replicas;
    counters[RMQ_WRITE_ROLLS] += w->rolled;
    counters[RMQ_WRITE_STALE_DROPPED] += w->stale;
    if (w->appended && w->window.window_bytes && rmq_load_relaxed(&w->window.populated) < w->next.append_offset)
        counters[RMQ_WRITE_WINDOW_MISSES]++;
}

/* Checks if requests that need a missing file have waited long enough. */
static void watch_segment(struct rmq_writer *w)
{
    if (!w->needs_segment) {
        w->waiting_since_ms = 0;
        w->segment_late = 0;
    } else if (!w->waiting_since_ms) {
        w->waiting_since_ms = rmq_mono_ms();
        w->role->counters[RMQ_WRITE_SEGMENT_WAITS]++;
        rmq_role_wake(w->plane, RMQ_ROLE_FLUSH);
    } else if (rmq_mono_ms() - w->waiting_since_ms >= SEGMENT_WAIT_MS) {
        w->segment_late = 1;
    }
    rmq_append_window_want_next(&w->window, w->needs_segment);
}

/* Number of requests taken. */
static int step(struct rmq_writer *w)
{
    rmq_writer_plan(w);
    watch_segment(w);
    if (!w->plans)
        return 0;
    int64_t now = rmq_wall_ms();
    if (now > (int64_t)w->next.store_time_ms)
        w->next.store_time_ms = (uint64_t)now;
    if (w->plan_end > w->next.append_offset) {
        rmq_store(&w->header->ports.journal.intent_high, w->plan_end);
        RMQ_CRASH("write-intent");
    }
    rmq_writer_encode(w);
    rmq_writer_answer(w);
    commit(w);
    ring_bells(w);
    rmq_append_window_move(&w->window, w->next.append_offset);
    count_batch(w);
    return (int)w->plans;
}

/* --- loop --------------------------------------------------------------------------------------------- */

/* Requests wait in a port that is none of `but`. */
static int has_work(struct rmq_writer *w, uint32_t but)
{
    for (uint32_t p = 0; p < w->port_count; p++)
        if (!(but >> p & 1) && rmq_load(&w->ports[p].request.head) != w->next.port[p].request_tail)
            return 1;
    return 0;
}

/* In a stop. The owners of ports have ended: a port without room for answers will not get any. */
static int has_work_left(struct rmq_writer *w)
{
    return has_work(w, w->waits_for_owner);
}

/* 1 if the log has to be opened anew, or if the journal goes to ha, and no request and no parked answer is left. The order of the looks counts: behind the first one
 * no new request comes. */
static int has_yielded(struct rmq_writer *w)
{
    if (rmq_journal_is_stale(w->plane))
        return 1;
    return rmq_journal_role(w->plane->watermarks) != RMQ_ROLE_WRITE && rmq_ports_stand(w->plane) && !has_work(w, 0) &&
           !rmq_ring_used(&w->header->ports.parked);
}

static void count_faults(struct rmq_writer *w)
{
    struct rusage usage;
    if (!getrusage(RUSAGE_THREAD, &usage)) {
        if (!w->faults_known)
            w->faults_before = usage.ru_minflt;
        w->faults_known = 1;
        w->role->counters[RMQ_WRITE_MINOR_FAULTS] = (uint64_t)(usage.ru_minflt - w->faults_before);
    }
    w->role->counters[RMQ_WRITE_POPULATED_BYTES] = rmq_load_relaxed(&w->window.populated_bytes);
}

/* 1 if the port may park its next request or chain. parked_max must allow it. The ring of parked requests must have room for
 * it, less the places that are reserved for a chain of another port. */
static int may_park(const struct rmq_writer *w, uint32_t p)
{
    uint64_t parked = w->next.port[p].parked_count - rmq_load(&w->ports[p].completed.head), wanted = w->room_wanted[p];
    uint64_t kept = p == w->kept_for ? 0 : w->parked_kept;
    return parked + wanted <= w->ports[p].parked_max && rmq_ring_room(&w->header->ports.parked, w->next.parked_head) >= wanted + kept;
}

/* 1 if blocked ports wait for the completer. The completer rings after its answers; an owner that takes its completions does
 * not. */
static int awaits_completer(const struct rmq_writer *w)
{
    for (uint32_t p = 0; p < w->port_count; p++)
        if (w->blocked >> p & 1 && may_park(w, p))
            return 0;
    return w->blocked != 0;
}

static int spin(struct rmq_writer *w)
{
    for (uint32_t i = 0; i < w->header->settings.spin_pauses; i++) {
        if (has_work(w, w->blocked))
            return 1;
        __asm__ volatile("" ::: "memory");
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    return 0;
}

static void park(struct rmq_writer *w, int64_t left_ns)
{
    uint32_t awaits = (uint32_t)awaits_completer(w);
    int64_t limit_ms = w->needs_segment || (w->blocked && !awaits) ? SEGMENT_POLL_MS : PARK_MS;
    int64_t left_ms = left_ns / 1000000 + 1;
    int timeout_ms = (int)(left_ms < limit_ms ? left_ms : limit_ms);
    if (!w->needs_segment && spin(w))
        return;
    if (w->header->ports.awaits_parked != awaits)
        rmq_store(&w->header->ports.awaits_parked, awaits);
    rmq_role_arm(w->plane, RMQ_ROLE_WRITE);
    if ((!w->needs_segment && has_work(w, w->blocked)) || (awaits && !awaits_completer(w))) {
        rmq_role_disarm(w->plane, RMQ_ROLE_WRITE);
        return;
    }
    w->role->counters[RMQ_WRITE_SLEEPS]++;
    rmq_role_wait(w->plane, RMQ_ROLE_WRITE, timeout_ms);
}

static int is_dispatch_late(const struct rmq_writer *w)
{
    const struct rmq_watermarks *marks = w->plane->watermarks;
    uint64_t dispatched = rmq_load_relaxed(&marks->dispatched_offset);
    if (rmq_confirm_offset(marks) < dispatched + DISPATCH_BEHIND_MAX)
        return 0;
    return dispatched >= rmq_load_relaxed(&w->header->recovered_end) &&
           rmq_load_relaxed(&marks->stop_requested) < RMQ_STOP_WRITE;
}

/* Each batch waits a little while requests come faster than dispatch can follow. Otherwise acknowledged messages would become
 * visible later and later. Dispatch gets its share of the CPUs then. The wait is never long, because dispatch may be dead. The
 * records recovered at the start do not count. */
static void wait_for_dispatch(struct rmq_writer *w)
{
    if (!is_dispatch_late(w))
        return;
    w->role->counters[RMQ_WRITE_DISPATCH_WAITS]++;
    struct timespec span = {.tv_nsec = DISPATCH_NAP_NS};
    for (int i = 0; i < DISPATCH_NAPS && is_dispatch_late(w); i++)
        nanosleep(&span, NULL);
}

int rmq_writer_run(struct rmq_writer *w, int64_t budget_ns)
{
    int64_t end_ns = rmq_mono_ns() + budget_ns;
    count_faults(w);
    for (unsigned turn = 1;; turn++) {
        rmq_store_relaxed(&w->role->progress, w->role->progress + 1);
        int taken = step(w);
        if (taken)
            wait_for_dispatch(w);
        if (taken && turn % CLOCK_EVERY)
            continue;
        int64_t left_ns = end_ns - rmq_mono_ns();
        if (left_ns <= 0) {
            count_faults(w);
            return RMQ_RUN_BUDGET;
        }
        if (taken)
            continue;
        if (rmq_load(&w->plane->watermarks->stop_requested) >= RMQ_STOP_WRITE && !has_work_left(w)) {
            count_faults(w);
            return RMQ_RUN_STOPPED;
        }
        if (has_yielded(w)) {
            count_faults(w);
            return RMQ_RUN_YIELDED;
        }
        park(w, left_ns);
    }
}
