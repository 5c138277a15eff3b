#include "append_window.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "ring.h"

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
    /* Wishes. Random: a fault brings one folio, not a read-ahead window, which the kernel would clear in one go. */
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

/* A wish for large folios up to the end of the window. What was begun in single pages stays so. */
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

/* One chunk; 1 = populated something, 0 = nothing to do. Large folios only where the appender presses: the kernel
 * clears one in one go, 0.3 ms, or 5 where the host of a virtual machine lends memory late, and nothing else runs on
 * that CPU meanwhile. Whoever is calm takes single pages, few at a time. */
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
    /* a refusal (old kernel, sick disk) only means that the appender meets the pages itself */
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
            sched_yield(); /* who has just had more than his share would wait for the kernel's next tick */
    }
}

/* 1 = done (or refused, which is no harm), 0 = the neighbour has not been started yet. Off the writer's CPU for good:
 * the kernel clears a large folio in one go, and on a virtual machine whose host lends memory late that takes 5 to
 * 30 ms, in which nothing else runs on that CPU. */
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
    /* A sync writes whole folios: large ones would make each group commit write megabytes. Where nobody waits for
     * the disk they make clearing, faults and unmapping cheaper. */
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
