#include "dispatch/dispatcher.h"

#include <stdlib.h>

#include "dispatch/dispatch_batch.h"
#include "plane/ring.h"

enum {
    PARK_MS = 100,
    RETRY_MS = 1000,      /* after a full disk */
    SYNC_EVERY_MS = 1000,
    RESEND_MS = 1,
    NAP_NS = 500000,
};

/* --- faults and background sync ----------------------------------------------------------------------------- */

static uint64_t *fault_word(struct rmq_dispatcher *d)
{
    return (uint64_t *)(void *)&d->marks->dispatch_fault; /* fault and errno: no reader sees one without the other */
}

/* A failed sync stays, whatever `new` is: the sync thread may store it at any moment, or the dead dispatch has left it. */
static void put_fault(struct rmq_dispatcher *d, uint64_t new)
{
    uint64_t old = rmq_load(fault_word(d));
    do {
        if ((uint32_t)old == RMQ_FAULT_QUEUE_SYNC) {
            d->sticky = 1;
            return;
        }
    } while (!__atomic_compare_exchange_n(fault_word(d), &old, new, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

static void set_fault(struct rmq_dispatcher *d, int error)
{
    put_fault(d, (uint64_t)(uint32_t)-error << 32 | RMQ_FAULT_QUEUE_IO);
    RMQ_CRASH("dispatch-fault");
    d->retry_at_ms = rmq_mono_ms() + RETRY_MS;
    if (error != -ENOSPC && error != -EDQUOT)
        d->sticky = 1;
}

static void clear_fault(struct rmq_dispatcher *d)
{
    if (rmq_load_relaxed(&d->marks->dispatch_fault) && !d->sticky)
        put_fault(d, RMQ_FAULT_NONE);
}

static int collect(struct rmq_dispatcher *d)
{
    int rc = rmq_queue_files_collect(&d->queues);
    return rc < 0 ? rc : rmq_index_files_collect(&d->index);
}

static void start_round(struct rmq_dispatcher *d)
{
    if (!rmq_background_sync_start(&d->sync, d->newest_store_time_ms))
        return;
    d->index.full_started_ms = d->index.full_time_ms;
    d->role->counters[RMQ_DISPATCH_SYNCS]++;
}

/* At the start and once a second, unless the last round is still running. Queue files and full index files: the index file in the making
 * is given up after a power failure anyway, as stock does, and its slots are dirty all over. */
static void sync_in_background(struct rmq_dispatcher *d)
{
    int64_t now_ms = rmq_mono_ms();
    int error;
    if (now_ms < d->next_sync_ms || rmq_background_sync_busy(&d->sync))
        return;
    d->next_sync_ms = now_ms + SYNC_EVERY_MS;
    rmq_background_sync_done(&d->sync, &error);
    if (error < 0) {
        d->sticky = 1; /* the thread has left the fault; a failed sync is not repeated, whatever failed */
        return;
    }
    d->index.full_synced_ms = d->index.full_started_ms;
    int rc = rmq_queue_files_collect(&d->queues);
    if (rc < 0)
        set_fault(d, rc);
    else if (d->sync.pending_count)
        start_round(d);
}

int rmq_dispatcher_sync(struct rmq_dispatcher *d)
{
    int error = rmq_background_sync_wait(&d->sync);
    if (error < 0)
        return error;
    d->index.full_synced_ms = d->index.full_started_ms;
    int rc = collect(d);
    if (rc < 0 || !d->sync.pending_count)
        return rc;
    start_round(d);
    error = rmq_background_sync_wait(&d->sync);
    if (!error)
        d->index.full_synced_ms = d->index.full_started_ms;
    return error;
}

/* --- life ----------------------------------------------------------------------------------------------------- */

static int open_parts(struct rmq_dispatcher *d, uint32_t open_files_max)
{
    const struct rmq_settings *settings = &d->header->settings;
    if (!settings->segment_bytes)
        return -EINVAL;
    uint32_t ports = d->header->ports.count;
    RMQ_INVARIANT(ports <= RMQ_PORTS_MAX, ports);
    for (uint32_t p = 0; p < ports; p++) {
        uint32_t role = d->header->ports.port[p].role;
        RMQ_INVARIANT(role < RMQ_ROLES_MAX, p, role);
    }
    d->dispatched = d->marks->dispatched_offset;
    d->queue_capacity = d->header->tables.queue_capacity;
    d->touches = calloc(d->queue_capacity, sizeof *d->touches);
    if (!d->touches)
        return -ENOMEM;
    int rc = rmq_background_sync_open(&d->sync, settings->store_path, fault_word(d));
    if (!rc)
        rc = rmq_deferred_close_open(&d->deferred_close, open_files_max / 4);
    if (!rc)
        rc = rmq_queue_files_open(&d->queues, d->plane, &d->sync, &d->deferred_close, open_files_max);
    if (!rc)
        rc = rmq_batch_queues_open(&d->batch_queues, d->plane, &d->sync);
    if (!rc)
        rc = rmq_index_files_open(&d->index, settings, &d->sync, &d->deferred_close);
    return rc;
}

struct rmq_dispatcher *rmq_dispatcher_open(struct rmq_plane *plane, uint32_t open_files_max,
                                           const struct rmq_delay_levels *levels, int *error)
{
    struct rmq_dispatcher *d = calloc(1, sizeof *d);
    if (!d) {
        *error = -ENOMEM;
        return NULL;
    }
    d->plane = plane;
    d->header = rmq_header(plane);
    d->marks = plane->watermarks;
    d->role = &d->header->roles[RMQ_ROLE_DISPATCH];
    d->queue_slot = RMQ_NONE;
    if (levels)
        d->levels = *levels;
    *error = open_parts(d, open_files_max);
    if (*error < 0) {
        rmq_dispatcher_close(d);
        return NULL;
    }
    put_fault(d, RMQ_FAULT_NONE); /* the fault of the dead dispatch: this one tries again, unless it was a sync */
    return d;
}

void rmq_dispatcher_close(struct rmq_dispatcher *d)
{
    if (!d)
        return;
    int rc = d->sync.started && d->queues.files ? rmq_dispatcher_sync(d) : 0;
    if (rc < 0)
        set_fault(d, rc);
    rmq_background_sync_close(&d->sync);
    rmq_queue_files_close(&d->queues);
    rmq_batch_queues_close(&d->batch_queues);
    rmq_index_files_close(&d->index);
    rmq_deferred_close_close(&d->deferred_close);
    rmq_segment_unmap(&d->segment);
    for (int p = 0; p < RMQ_PORTS_MAX; p++)
        free(d->unsent[p]);
    free(d->touches);
    free(d);
}

void rmq_dispatcher_state(struct rmq_dispatcher *d, struct rmq_dispatch_state *out)
{
    int error;
    memset(out, 0, sizeof *out);
    out->dispatched_offset = d->marks->dispatched_offset;
    out->dispatched_store_time_ms = d->newest_store_time_ms;
    out->synced_store_time_ms = rmq_background_sync_done(&d->sync, &error);
    out->full_index_synced_time_ms = d->index.full_synced_ms;
    out->index_files = d->index.count;
    out->dispatch_fault = d->marks->dispatch_fault;
    out->dispatch_fault_errno = d->marks->dispatch_fault_errno;
}

int rmq_dispatcher_clean_queue(struct rmq_dispatcher *d, uint32_t queue_slot, uint64_t min_commit_log_offset)
{
    if (queue_slot >= rmq_load(&d->header->tables.queue_count))
        return -EINVAL;
    return rmq_queue_files_clean(&d->queues, queue_slot, min_commit_log_offset);
}

int rmq_dispatcher_clean_index(struct rmq_dispatcher *d, uint64_t min_commit_log_offset)
{
    return rmq_index_files_clean(&d->index, min_commit_log_offset);
}

int rmq_dispatcher_may_clean(struct rmq_dispatcher *d)
{
    uint32_t waiting = rmq_deferred_close_waiting(&d->deferred_close);
    return !waiting || waiting < d->deferred_close.limit / 2;
}

/* --- loop ------------------------------------------------------------------------------------------------------ */

static int may_work(struct rmq_dispatcher *d)
{
    if (d->sticky)
        return 0;
    return !rmq_load_relaxed(&d->marks->dispatch_fault) || rmq_mono_ms() >= d->retry_at_ms;
}

/* Bytes dispatched; 0 when there is nothing to do or nothing can be done. */
static int64_t step(struct rmq_dispatcher *d)
{
    uint64_t end = rmq_confirm_offset(d->marks), done = d->marks->dispatched_offset, low = rmq_load(&d->marks->min_offset);
    uint64_t appended = rmq_load(&d->marks->append_offset); /* read last: it only grows, and the others follow it */
    uint32_t ports = d->header->ports.count;
    RMQ_INVARIANT(done <= end && end <= appended && low <= appended, done, end, appended, low);
    RMQ_INVARIANT(done == d->dispatched && ports <= RMQ_PORTS_MAX, done, d->dispatched, ports);
    if (end <= done || !may_work(d))
        return 0;
    int64_t bytes = rmq_dispatch_read(d, end);
    int rc = bytes < 0 ? (int)bytes : rmq_dispatch_write_units(d);
    if (rc < 0) {
        rmq_index_files_replay(&d->index);
        rmq_dispatch_forget(d);
        set_fault(d, rc);
        return 0;
    }
    if (bytes > 0)
        rmq_dispatch_publish(d);
    d->stuck_end = bytes > 0 ? 0 : end;
    clear_fault(d);
    return bytes;
}

static int has_work(struct rmq_dispatcher *d)
{
    uint64_t end = rmq_confirm_offset(d->marks);
    return end > d->marks->dispatched_offset && end > d->stuck_end && may_work(d);
}

static int has_unsent(const struct rmq_dispatcher *d)
{
    for (uint32_t p = 0; p < d->header->ports.count; p++)
        if (d->unsent_count[p])
            return 1;
    return 0;
}

static int arrivals_are_awaited(const struct rmq_dispatcher *d)
{
    for (uint32_t p = 0; p < d->header->ports.count; p++)
        if (rmq_load_relaxed(&d->header->ports.port[p].awaits))
            return 1;
    return 0;
}

/* While records come and no pull waits for them, sleep a little without asking to be woken: a wake-up per batch
 * would cost the write role more than the batch. Stock looks every millisecond. */
static void nap(void)
{
    struct timespec span = {.tv_nsec = NAP_NS};
    nanosleep(&span, NULL);
}

static void park(struct rmq_dispatcher *d, int64_t left_ns)
{
    int64_t left_ms = left_ns / 1000000 + 1, limit_ms = has_unsent(d) ? RESEND_MS : PARK_MS;
    rmq_role_arm(d->plane, RMQ_ROLE_DISPATCH);
    if (has_work(d)) {
        rmq_role_disarm(d->plane, RMQ_ROLE_DISPATCH);
        return;
    }
    d->role->counters[RMQ_DISPATCH_SLEEPS]++;
    rmq_role_wait(d->plane, RMQ_ROLE_DISPATCH, (int)(left_ms < limit_ms ? left_ms : limit_ms));
}

int rmq_dispatcher_run(struct rmq_dispatcher *d, int64_t budget_ns)
{
    int64_t end_ns = rmq_mono_ns() + budget_ns;
    int worked = 0;
    for (;;) {
        rmq_store_relaxed(&d->role->progress, d->role->progress + 1);
        int64_t bytes = step(d);
        if (has_unsent(d))
            rmq_dispatch_resend(d);
        sync_in_background(d);
        uint32_t fault = rmq_load_relaxed(&d->marks->dispatch_fault);
        if (fault != d->fault_told) {
            d->fault_told = fault;
            return RMQ_RUN_FAULT;
        }
        int64_t left_ns = end_ns - rmq_mono_ns();
        if (left_ns <= 0)
            return RMQ_RUN_BUDGET;
        if (bytes > 0) {
            worked = 1;
            continue;
        }
        if (rmq_load(&d->marks->stop_requested) >= RMQ_STOP_DISPATCH && !has_work(d))
            return RMQ_RUN_STOPPED;
        if (worked && !arrivals_are_awaited(d))
            nap();
        else
            park(d, left_ns);
        worked = 0;
    }
}
