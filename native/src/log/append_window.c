/* Large folios of the log, and why not always.
 *
 * The problem. Write stores records into a mapping of the log file. Each new page of it is cleared by the kernel, gets
 * blocks of the file system and an entry in the page table. Clearing takes 1 us, and 10 to 20 us on a virtual machine
 * whose host lends memory late. It was four fifths of write's time on the CPU that write shares with a reader. Page
 * tables belong to a process, so only a thread of write can do that work ahead: the helper thread below does, with
 * MADV_POPULATE_WRITE.
 *
 * The kernel can keep 2 MiB of a file as one large folio, when MADV_HUGEPAGE asks for it. Faults and unmapping are ten
 * times cheaper then. One would expect to want that always. Two things speak against it:
 * - A sync writes whole folios. With large ones a group commit of 20 KB wrote 2 MiB.
 * - The kernel clears a folio in one go, and no other thread runs on that CPU meanwhile: 0.3 ms, 5 to 30 ms where the
 *   host lends memory late. At 18,000 messages/s that happened five times a second, and p99 of sends was 2 to 4.5 ms.
 *   With single pages it is 0.4 to 1.2 ms in new memory, 0.3 ms in used memory.
 *
 * The code.
 * - Under SYNC_FLUSH it never asks for large folios.
 * - Under ASYNC_FLUSH it asks while the appender presses: at its look, each 0.2 s or when rung, more than half of the
 *   populated window is used up. At first nothing is populated, so a start asks for the whole window.
 * - Else the helper takes single pages, 64 KiB at a time, and yields between.
 * - A wish reaches to the end of the window, and not over one folio. An appender that overtakes the helper brings its
 *   pages by faults of its own, and these were single ones where most came.
 * - MADV_RANDOM: a fault brings one folio. A read-ahead window would be cleared in one go, too; without it the stalls
 *   of the tail are half as long.
 * - The helper runs on the CPU of a role that answers no client (calm_neighbour in writer.c). Where the host lends
 *   memory late it held write's CPU for 30 to 40 ms at a time. Away from it 64x16 is 1.7 times faster, and batches 1.5
 *   times.
 *
 * What must stay true.
 * - All of this is advice. A page that is not populated costs the appender a fault; a refused madvise changes nothing.
 * - The helper stores no byte: recovery relies on zeros behind the last record.
 * - The appender never waits for the helper. It reads `published`, and it stores `position` and `next_wanted`.
 */
#include "log/append_window.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "plane/ring.h"

enum {
    POPULATE_CHUNK = 256 << 10,
    CALM_CHUNK = 64 << 10,
    LARGE_FOLIO = 2 << 20,
    PAGE = 4096,
    IDLE_WAIT_MS = 200,
    WANTED_WAIT_MS = 5,
};

static int slot_of(uint64_t number) { return (int)(number % RMQ_WINDOW_SLOTS); }

static int is_mapped(struct rmq_append_window *window, uint64_t number)
{
    return rmq_load_relaxed(&window->published[slot_of(number)]) == number + 1;
}

static int map_segment(struct rmq_append_window *window, uint64_t number)
{
    struct rmq_segment *slot = &window->slots[slot_of(number)];
    int rc = rmq_segment_map(slot, window->directory, number * window->segment_bytes, window->segment_bytes, 1);
    if (rc < 0)
        return rc;
    /* a wish: a fault brings one folio, not a read-ahead window */
    madvise(slot->base, slot->bytes, MADV_RANDOM);
    rmq_store(&window->published[slot_of(number)], number + 1);
    return 0;
}

static void unmap_below(struct rmq_append_window *window, uint64_t number)
{
    for (int i = 0; i < RMQ_WINDOW_SLOTS; i++) {
        uint64_t held = rmq_load_relaxed(&window->published[i]);
        if (!held || held - 1 >= number)
            continue;
        rmq_store(&window->published[i], 0);
        rmq_segment_unmap(&window->slots[i]);
    }
}

/* The appender comes near: half of the window is used up. */
static int is_pressed(const struct rmq_append_window *window)
{
    return window->populated < rmq_load(&window->position) + window->window_bytes / 2;
}

static uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

/* Asks for large folios up to the end of the window. A folio that was begun in single pages stays so. */
static void advise_large(struct rmq_append_window *window, const struct rmq_segment *segment, uint64_t from,
                         uint64_t to)
{
    uint64_t begin = round_up((window->advised > from ? window->advised : from) - segment->offset, LARGE_FOLIO);
    uint64_t end = round_up(to - segment->offset, LARGE_FOLIO);
    if (end > segment->bytes)
        end = segment->bytes;
    if (begin >= end)
        return;
    madvise(segment->base + begin, end - begin, MADV_HUGEPAGE);
    window->advised = segment->offset + end;
}

/* One chunk; 1 = populated something, 0 = nothing to do. */
static int populate(struct rmq_append_window *window, int pressed)
{
    uint64_t position = rmq_load(&window->position), window_end = position + window->window_bytes;
    uint64_t from = window->populated > position ? window->populated : position & ~(uint64_t)(PAGE - 1);
    if (!window->window_bytes || from >= window_end)
        return 0;
    uint64_t number = from / window->segment_bytes, end = (number + 1) * window->segment_bytes;
    if (!is_mapped(window, number))
        return 0;
    const struct rmq_segment *segment = &window->slots[slot_of(number)];
    uint64_t in_file = from - segment->offset, chunk = pressed ? POPULATE_CHUNK : CALM_CHUNK;
    uint64_t to = from + chunk - in_file % chunk;
    if (to > end)
        to = end;
    if (pressed && window->large_folios)
        advise_large(window, segment, from, window_end);
    /* after a refusal (old kernel, sick disk) the appender faults the pages in itself */
    if (!madvise(segment->base + in_file, to - from, MADV_POPULATE_WRITE))
        rmq_store_relaxed(&window->populated_bytes, window->populated_bytes + (to - from));
    rmq_store(&window->populated, to);
    return 1;
}

static void serve(struct rmq_append_window *window)
{
    uint64_t position = rmq_load(&window->position), number = position / window->segment_bytes;
    unmap_below(window, number);
    for (uint64_t wanted = number; wanted <= number + 1; wanted++) {
        int rc = is_mapped(window, wanted) ? 0 : map_segment(window, wanted);
        rmq_store(&window->error, rc == -ENOENT ? 0 : rc);
    }
    int pressed = is_pressed(window);
    while (!rmq_load_relaxed(&window->stop) && populate(window, pressed)) {
        pressed = pressed || is_pressed(window);
        if (!pressed)
            sched_yield(); /* otherwise a thread that has just exceeded its share would wait for the kernel's next tick */
    }
}

/* 1 = done (or refused, which is no harm), 0 = the neighbour has not been started yet. Off the writer's CPU for good. */
static int use_neighbour_cpu(const struct rmq_append_window *window)
{
    cpu_set_t cpus;
    if (!rmq_load(&window->neighbour->pid))
        return 0;
    CPU_ZERO(&cpus);
    CPU_SET(window->neighbour->cpu % CPU_SETSIZE, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
    return 1;
}

static void *helper_main(void *argument)
{
    struct rmq_append_window *window = argument;
    struct sched_param none = {0};
    int moved = 0;
    sched_setscheduler(0, SCHED_BATCH, &none); /* never preempts anybody by waking up */
    while (!rmq_load(&window->stop)) {
        moved = moved || use_neighbour_cpu(window);
        serve(window);
        rmq_bell_arm(&window->bell);
        if (rmq_load(&window->stop))
            break;
        rmq_bell_wait(&window->bell, window->event_fd, rmq_load(&window->next_wanted) ? WANTED_WAIT_MS : IDLE_WAIT_MS);
    }
    return NULL;
}

int rmq_append_window_open(struct rmq_append_window *window, const struct rmq_settings *settings,
                           const struct rmq_role *neighbour, uint64_t position)
{
    memset(window, 0, sizeof *window);
    window->directory = settings->commit_log_path;
    window->neighbour = neighbour;
    window->large_folios = !settings->sync_flush;
    window->segment_bytes = settings->segment_bytes;
    window->window_bytes = settings->populate_window_bytes;
    window->position = position;
    window->event_fd = -1;
    if (!window->segment_bytes || window->segment_bytes % PAGE)
        return -EINVAL;
    int rc = map_segment(window, position / window->segment_bytes);
    if (rc < 0)
        return rc;
    window->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (window->event_fd < 0)
        rc = -errno;
    else
        rc = -pthread_create(&window->thread, NULL, helper_main, window);
    if (rc < 0)
        rmq_append_window_close(window);
    else
        window->started = 1;
    return rc;
}

void rmq_append_window_close(struct rmq_append_window *window)
{
    if (window->started) {
        rmq_store(&window->stop, 1);
        rmq_bell_ring(&window->bell, window->event_fd);
        pthread_join(window->thread, NULL);
        window->started = 0;
    }
    unmap_below(window, UINT64_MAX);
    if (window->event_fd >= 0)
        close(window->event_fd);
    window->event_fd = -1;
}

void rmq_append_window_move(struct rmq_append_window *window, uint64_t position)
{
    uint64_t old = window->position;
    rmq_store(&window->position, position);
    int rolled = position / window->segment_bytes != old / window->segment_bytes;
    if (rolled || (window->window_bytes && rmq_load_relaxed(&window->populated) < position + window->window_bytes / 2))
        rmq_bell_ring(&window->bell, window->event_fd);
}

void rmq_append_window_want_next(struct rmq_append_window *window, int wanted)
{
    if (window->next_wanted == (uint32_t)wanted)
        return;
    rmq_store(&window->next_wanted, (uint32_t)wanted);
    if (wanted)
        rmq_bell_ring(&window->bell, window->event_fd);
}
