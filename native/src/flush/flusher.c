/* Flush beside replication: one thread that waits for the disk and for slaves.
 *
 * The problem. A parked send waits for the disk (flushed_offset), for replicas (replicated_offset), or for both, and
 * they come in either order. A sync takes milliseconds, on a sick disk seconds. Meanwhile slaves report, a slave is
 * lost, deadlines pass. The plain way is to call fdatasync and to look at everything behind it. Then a send that waits
 * for replicas alone would wait for every sync in the background, and a lost slave would be noticed behind a slow
 * disk. So the sync runs beside this thread (file_sync.h: in the kernel or in a helper thread), which goes on answering
 * until it has ended.
 *
 * A wake-up for every event is no better, because it costs the ringing role a system call and this thread a turn. Under
 * SYNC_FLUSH the oldest entry mostly waits for the disk, and so do all later ones. No report can answer any of them before
 * the sync has ended. The same holds for new records: the running sync does not take them, and the next sync begins without
 * a wake-up.
 *
 * The code. There are two kinds of wake-up, told apart by the state of this role's bell (struct rmq_bell). layout.h (8)
 * draws them in the order of time.
 *
 *   state of flush                       write: a sync is wanted         ha: a report, a loss
 *                                        (rmq_role_wake_asleep)          (rmq_role_wake)
 *   runs, or polls at the disk (0)       does not ring                   does not ring; seen at the next poll
 *   listens at the disk (BELL_AT_DISK)   does not ring                   rings
 *   asleep (BELL_ASLEEP)                 rings                           rings
 *
 * Flush listens at the disk when a report may answer a send before the sync ends (rmq_completer_awaits_slaves): where
 * sends wait for replicas, without SYNC_FLUSH always, with it when the oldest entry is on disk. Else it polls
 * every POLL_MS, so that a loss is noticed within 20 ms. A bell for each report would cost more than these polls.
 *
 * What must stay true.
 * - The order is arm, look once more, wait. A mark that moves before the arming is seen by that look, one that moves
 *   later rings.
 * - Only the end of all syncs of a round moves flushed_offset. Answers given meanwhile go by the marks alone.
 * - Answers keep the order of the log: all entries wait for the same kinds of marks, so the oldest decides for all.
 * - Every wait ends by itself, at the latest after SYNC_WAIT_MS: a lost wake-up costs time, not an answer.
 */
#include "flush/flusher.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "engine/file_sync.h"
#include "flush/completer.h"
#include "log/segment.h"
#include "plane/ring.h"

enum {
    PARK_MS = 100,
    SYNC_WAIT_MS = 200, /* while a sync runs, deadlines are looked at at least this often */
    POLL_MS = 20,       /* and the state of replication, while ha does not ring */
    SYNCS_AT_ONCE = 8,
    PAGE = 4096,
};

struct open_file {
    uint64_t number; /* segment number + 1, 0 = free */
    int fd;
    int named;       /* the folder has been synced since the file was opened: its name is on disk */
};

struct rmq_flusher {
    struct rmq_plane *plane;
    struct rmq_plane_header *header;
    struct rmq_watermarks *marks;
    struct rmq_role *role;
    struct rmq_file_sync *sync;
    struct open_file files[SYNCS_AT_ONCE];
    int64_t last_thorough_ms;
    int64_t last_flush_ms;
    int64_t flushed_store_time_ms;
    struct rmq_completer completer;
    uint32_t fault_told;      /* fault that run has returned for */
    uint64_t missing_told;    /* segment that run has asked for */
};

/* --- faults --------------------------------------------------------------------------------------------- */

static void wake_everybody(struct rmq_flusher *f)
{
    for (uint32_t role = 0; role < RMQ_ROLES_MAX; role++)
        if (f->plane->event_fds[role] >= 0 && role != RMQ_ROLE_FLUSH)
            rmq_role_wake(f->plane, role);
}

int rmq_flusher_set_fault(struct rmq_flusher *f, uint32_t fault, int32_t fault_errno)
{
    /* fault and errno in one store: no reader sees one without the other, whenever this process dies */
    uint64_t *words = (uint64_t *)(void *)&f->marks->store_fault, old = rmq_load(words);
    uint64_t new = fault ? (uint64_t)(uint32_t)fault_errno << 32 | fault : 0;
    do {
        if ((uint32_t)old == RMQ_FAULT_FSYNC)
            return fault == RMQ_FAULT_FSYNC ? 0 : -EBUSY;
    } while (!__atomic_compare_exchange_n(words, &old, new, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    RMQ_CRASH("flush-fault");
    if ((uint32_t)old != fault)
        wake_everybody(f);
    return 0;
}

void rmq_flusher_set_min_offset(struct rmq_flusher *f, uint64_t min_offset)
{
    if (min_offset > rmq_load(&f->marks->min_offset))
        rmq_store(&f->marks->min_offset, min_offset);
}

/* --- files ---------------------------------------------------------------------------------------------- */

static struct open_file *place_of(struct rmq_flusher *f, uint64_t number) { return &f->files[number % SYNCS_AT_ONCE]; }

static int file_of(struct rmq_flusher *f, uint64_t number)
{
    struct open_file *file = place_of(f, number);
    char path[PATH_MAX];
    if (file->number == number + 1)
        return file->fd;
    if (file->number)
        close(file->fd);
    file->number = 0;
    const struct rmq_settings *settings = &f->header->settings;
    int n = snprintf(path, sizeof path, "%s/%020" PRIu64, settings->commit_log_path, number * settings->segment_bytes);
    if (n < 0 || (size_t)n >= sizeof path)
        return -ENAMETOOLONG;
    file->fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file->fd < 0)
        return -errno;
    file->number = number + 1;
    file->named = 0;
    return file->fd;
}

static int next_is_missing(struct rmq_flusher *f, uint64_t *next)
{
    uint64_t bytes = f->header->settings.segment_bytes, append = rmq_load(&f->marks->append_offset);
    *next = append - append % bytes + bytes;
    return rmq_segment_exists(f->header->settings.commit_log_path, *next, bytes) != 1;
}

/* --- start ---------------------------------------------------------------------------------------------- */

/* Before Linux 5.14 madvise cannot do this. Each page gets a byte that it has, by a store that no other process's can fall
 * into. Where a page cannot be read, this traps: the worker ends, and so does its replacement. */
static void redirty_by_store(uint8_t *base, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += PAGE) {
        volatile uint8_t *byte = base + at;
        uint8_t there = *byte;
        while (!__atomic_compare_exchange_n(byte, &there, there, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            ;
    }
}

static int redirty_segment(struct rmq_flusher *f, uint64_t number, uint64_t from, uint64_t to)
{
    uint64_t start = number * f->header->settings.segment_bytes, at = (from - start) & ~(uint64_t)(PAGE - 1);
    int fd = file_of(f, number), rc = 0;
    if (fd < 0)
        return fd;
    void *base = mmap(NULL, to - start - at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);
    if (base == MAP_FAILED)
        return -errno;
    if (madvise(base, to - start - at, MADV_POPULATE_WRITE) < 0) /* a write fault each; stores nothing, cannot trap */
        rc = -errno;
    if (rc == -EINVAL) {
        redirty_by_store(base, to - start - at);
        rc = 0;
    }
    munmap(base, to - start - at);
    return rc;
}

/* Makes the pages of appended bytes dirty again from flushed_offset on. The dead flush may have had a failed sync, after which
 * its pages look clean. The kernel reports an error only once, so the next sync would skip them. */
static void redirty(struct rmq_flusher *f)
{
    uint64_t bytes = f->header->settings.segment_bytes;
    uint64_t append = rmq_load(&f->marks->append_offset), at = f->marks->flushed_offset;
    int rc = 0;
    while (at < append && !rc) {
        uint64_t number = at / bytes, end = (number + 1) * bytes < append ? (number + 1) * bytes : append;
        rc = redirty_segment(f, number, at, end);
        at = end;
    }
    if (rc)
        rmq_flusher_set_fault(f, RMQ_FAULT_FSYNC, -rc);
}

/* --- sync ----------------------------------------------------------------------------------------------- */

/* Test build: the switch stalls (s) or fails (f) the sync, or fails one of the folder (n). */
static int test_switch(struct rmq_flusher *f, int result, int with_folder)
{
    for (char letter; (letter = rmq_sync_switch()) == 's' || letter == 'f' || (letter == 'n' && with_folder);) {
        if (letter != 's')
            return -EIO;
        rmq_completer_run(&f->completer);
        rmq_store_relaxed(&f->role->progress, f->role->progress + 1);
        poll(NULL, 0, 2);
        if (rmq_load(&f->marks->stop_requested))
            return -ECANCELED;
    }
    return result;
}

/* Waits for the end of a sync (RMQ_SYNC_DONE). Anything else but an error: there may be something to answer meanwhile.
 * Slaves may report, or be lost, while the disk is slow: their bell ends this wait, too, unless a report would change
 * nothing before the sync's end. Then a loss is seen at the next look: a bell per report would cost more. */
static int next_synced(struct rmq_flusher *f, int *result)
{
    int rc = 0, listens = rmq_completer_awaits_slaves(&f->completer), answers = 0;
    int polls = f->header->settings.sync_replication && !listens;
    int64_t wait_ms = rmq_completer_wait_ms(&f->completer, polls ? POLL_MS : SYNC_WAIT_MS);
    if (listens && !(rc = rmq_file_sync_listen(f->sync))) {
        rmq_bell_arm_as(&f->role->bell, RMQ_BELL_AT_DISK);
        answers = rmq_completer_has_work(&f->completer);
    }
    if (!rc && !answers)
        rc = rmq_file_sync_wait(f->sync, wait_ms, result);
    if (listens)
        rmq_bell_disarm(&f->role->bell);
    return rc == -EINTR ? RMQ_SYNC_TIME : rc;
}

/* Puts syncs of the files, and of their folder while the name of one may not be on disk (`*folder`, -1 = none).
 * The number of syncs; the first file that cannot be opened is the error of *result. */
static unsigned put_syncs(struct rmq_flusher *f, uint64_t first, uint64_t last, int *folder, int *result)
{
    unsigned waiting = 0;
    int named = 1;
    for (uint64_t number = first; number <= last; number++) {
        int fd = file_of(f, number);
        if (fd < 0) {
            *result = fd;
            continue;
        }
        named = named && place_of(f, number)->named;
        rmq_file_sync_put(f->sync, fd, 1);
        waiting++;
    }
    if (named)
        return waiting;
    *folder = open(f->header->settings.commit_log_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0) {
        *result = -errno;
        return waiting;
    }
    rmq_file_sync_put(f->sync, *folder, 0);
    return waiting + 1;
}

/* Starts that many syncs, waits for them and returns the first error; goes on answering meanwhile. */
static int await_syncs(struct rmq_flusher *f, unsigned waiting, int result, int *fatal)
{
    *fatal = rmq_file_sync_submit(f->sync);
    while (waiting && !*fatal) {
        int synced = 0, rc = next_synced(f, &synced);
        if (rc < 0) {
            *fatal = rc;
        } else if (rc == RMQ_SYNC_DONE) {
            result = synced < 0 && !result ? synced : result;
            waiting--;
        } else {
            rmq_completer_run(&f->completer);
            rmq_store_relaxed(&f->role->progress, f->role->progress + 1);
        }
    }
    return *fatal ? 0 : result;
}

/* Syncs up to SYNCS_AT_ONCE files, and their names, and returns the first error.
 * The second kind of error is the caller's to report as fatal: the syncs themselves cannot run. */
static int sync_files(struct rmq_flusher *f, uint64_t first, uint64_t last, int *fatal)
{
    int folder = -1, result = 0;
    unsigned waiting = put_syncs(f, first, last, &folder, &result);
    result = await_syncs(f, waiting, result, fatal);
    if (!*fatal)
        result = test_switch(f, result, folder >= 0);
    if (folder >= 0)
        close(folder);
    for (uint64_t number = first; number <= last && !*fatal && !result; number++)
        place_of(f, number)->named = 1;
    return result;
}

/* Store time of the newest batch that ends at or below the append position. 0 = unknown now. */
static int64_t appended_store_time(struct rmq_flusher *f)
{
    const struct rmq_journal *journal = &f->header->ports.journal;
    uint64_t generation = rmq_load(&journal->generation);
    if (!generation)
        return 0;
    struct rmq_journal_entry entry = journal->entry[generation & 1];
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (rmq_load_relaxed(&journal->generation) != generation || entry.generation != generation ||
        rmq_load(&f->marks->append_offset) < entry.append_offset)
        return 0;
    return (int64_t)entry.store_time_ms;
}

/* Everything appended up to now goes to disk. 0, or -errno that is fatal for the worker; a sync that failed is a fault of
 * the store and not of the worker. */
static int sync_all(struct rmq_flusher *f)
{
    uint64_t bytes = f->header->settings.segment_bytes, *counters = f->role->counters;
    int64_t store_time = appended_store_time(f), start_ns = rmq_mono_ns();
    uint64_t target = rmq_load(&f->marks->append_offset), at = f->marks->flushed_offset;
    while (at < target) {
        uint64_t first = at / bytes, last = (target - 1) / bytes;
        int fatal = 0;
        if (last - first >= SYNCS_AT_ONCE)
            last = first + SYNCS_AT_ONCE - 1;
        int rc = sync_files(f, first, last, &fatal);
        if (fatal)
            return fatal;
        if (rc == -ECANCELED)
            return 0;
        if (rc < 0) {
            rmq_flusher_set_fault(f, RMQ_FAULT_FSYNC, -rc);
            return 0;
        }
        RMQ_CRASH("flush-synced");
        at = (last + 1) * bytes < target ? (last + 1) * bytes : target;
        rmq_store(&f->marks->flushed_offset, at);
        RMQ_CRASH("flush-flushed-offset");
        counters[RMQ_FLUSH_SYNCS]++;
    }
    if (store_time)
        f->flushed_store_time_ms = store_time;
    uint64_t took_ns = (uint64_t)(rmq_mono_ns() - start_ns);
    counters[RMQ_FLUSH_SYNC_NS] += took_ns;
    if (took_ns > counters[RMQ_FLUSH_SYNC_NS_MAX])
        counters[RMQ_FLUSH_SYNC_NS_MAX] = took_ns;
    f->last_flush_ms = rmq_mono_ms();
    return 0;
}

/* 1 if the policy asks for a sync now; else `*wait_ms` is the time to the next check. */
static int sync_is_due(struct rmq_flusher *f, int *wait_ms)
{
    const struct rmq_settings *settings = &f->header->settings;
    uint64_t append = rmq_load(&f->marks->append_offset), flushed = f->marks->flushed_offset;
    *wait_ms = PARK_MS;
    RMQ_INVARIANT(flushed <= append, flushed, append); /* flushed_offset is flush's own, append_offset only grows */
    if (append <= flushed || rmq_load(&f->marks->store_fault) == RMQ_FAULT_FSYNC)
        return 0;
    if (settings->sync_flush || rmq_load(&f->marks->stop_requested) >= RMQ_STOP_FLUSH)
        return 1;
    int64_t now_ms = rmq_mono_ms(), left = f->last_flush_ms + settings->flush_interval_ms - now_ms;
    if (left > 0) {
        *wait_ms = left < PARK_MS ? (int)left : PARK_MS;
        return 0;
    }
    int thorough = now_ms - f->last_thorough_ms >= settings->flush_thorough_interval_ms;
    if (thorough)
        f->last_thorough_ms = now_ms;
    if (thorough || append / PAGE - flushed / PAGE >= settings->flush_least_pages)
        return 1;
    f->last_flush_ms = now_ms;
    return 0;
}

/* --- life ----------------------------------------------------------------------------------------------- */

struct rmq_flusher *rmq_flusher_open(struct rmq_plane *plane, int *error)
{
    struct rmq_flusher *f = calloc(1, sizeof *f);
    if (!f) {
        *error = -ENOMEM;
        return NULL;
    }
    f->plane = plane;
    f->header = rmq_header(plane);
    f->marks = plane->watermarks;
    f->role = &f->header->roles[RMQ_ROLE_FLUSH];
    rmq_completer_open(&f->completer, plane);
    f->last_thorough_ms = f->last_flush_ms = rmq_mono_ms();
    const struct rmq_settings *settings = &f->header->settings;
    *error = -EINVAL;
    if (settings->segment_bytes)
        *error = rmq_file_sync_open(&f->sync, settings->engine, SYNCS_AT_ONCE + 1, plane->event_fds[RMQ_ROLE_FLUSH]);
    if (*error < 0) {
        rmq_flusher_close(f);
        return NULL;
    }
    if (rmq_load(&f->marks->store_fault) != RMQ_FAULT_FSYNC)
        redirty(f);
    return f;
}

void rmq_flusher_close(struct rmq_flusher *f)
{
    if (!f)
        return;
    rmq_file_sync_close(f->sync); /* first: its syncs use the files */
    for (int i = 0; i < SYNCS_AT_ONCE; i++)
        if (f->files[i].number)
            close(f->files[i].fd);
    free(f);
}

void rmq_flusher_state(struct rmq_flusher *f, struct rmq_flush_state *out)
{
    memset(out, 0, sizeof *out);
    out->flushed_store_time_ms = f->flushed_store_time_ms;
    out->flushed_offset = rmq_load(&f->marks->flushed_offset);
    out->next_segment_exists = !next_is_missing(f, &out->next_segment);
    out->store_fault = rmq_load(&f->marks->store_fault);
    out->store_fault_errno = f->marks->store_fault_errno;
    out->parked = (uint32_t)rmq_ring_used(&f->header->ports.parked);
}

static int has_work(struct rmq_flusher *f)
{
    if (f->header->settings.sync_flush && rmq_load(&f->marks->append_offset) > f->marks->flushed_offset &&
        rmq_load(&f->marks->store_fault) != RMQ_FAULT_FSYNC)
        return 1;
    return rmq_completer_has_work(&f->completer);
}

/* The next event for the shell, once each: 0, RMQ_RUN_FAULT or RMQ_RUN_ROLLED. */
static int news(struct rmq_flusher *f)
{
    uint32_t fault = rmq_load(&f->marks->store_fault);
    uint64_t bytes = f->header->settings.segment_bytes, append = rmq_load(&f->marks->append_offset);
    if (fault != f->fault_told) {
        f->fault_told = fault;
        return RMQ_RUN_FAULT;
    }
    if (append / bytes + 1 == f->missing_told)
        return 0;
    f->missing_told = append / bytes + 1;
    return next_is_missing(f, &append) ? RMQ_RUN_ROLLED : 0;
}

static void park(struct rmq_flusher *f, int64_t left_ns, int wait_ms)
{
    int64_t left_ms = left_ns / 1000000 + 1;
    wait_ms = rmq_completer_wait_ms(&f->completer, wait_ms);
    rmq_role_arm(f->plane, RMQ_ROLE_FLUSH);
    if (has_work(f)) {
        rmq_role_disarm(f->plane, RMQ_ROLE_FLUSH);
        return;
    }
    f->role->counters[RMQ_FLUSH_SLEEPS]++;
    rmq_role_wait(f->plane, RMQ_ROLE_FLUSH, (int)(left_ms < wait_ms ? left_ms : wait_ms));
}

int rmq_flusher_run(struct rmq_flusher *f, int64_t budget_ns)
{
    int64_t end_ns = rmq_mono_ns() + budget_ns;
    for (;;) {
        int wait_ms = 0, rc = 0;
        rmq_store_relaxed(&f->role->progress, f->role->progress + 1);
        int due = sync_is_due(f, &wait_ms);
        uint64_t flushed = f->marks->flushed_offset;
        if (due && (rc = sync_all(f)) < 0)
            return rc;
        uint64_t answered = rmq_completer_run(&f->completer);
        if (f->marks->flushed_offset != flushed && f->marks->confirm_policy & RMQ_CONFIRM_FLUSHED) {
            rmq_role_wake(f->plane, RMQ_ROLE_DISPATCH);
            if (rmq_follows_master(f->marks)) /* its reports carry the flushed offset */
                rmq_role_wake(f->plane, RMQ_ROLE_HA);
        }
        if ((rc = news(f)))
            return rc;
        int64_t left_ns = end_ns - rmq_mono_ns();
        if (left_ns <= 0)
            return RMQ_RUN_BUDGET;
        if (due || answered)
            continue;
        if (rmq_load(&f->marks->stop_requested) >= RMQ_STOP_FLUSH && !has_work(f) && !rmq_ring_used(&f->header->ports.parked))
            return RMQ_RUN_STOPPED;
        park(f, left_ns, wait_ms);
    }
}
