/* Requests under way, their frames in blocks of an arena. Prints, for each entry that is taken and released: whether its id finds
 * it, whether the id still does afterwards, the entries of its kind, the free pages. `driver twice` releases an entry twice,
 * `driver frame` releases one whose frame somebody else has given back. */
#include <stdio.h>

#include "driver_invariant.h"
#include "reader/arena.c"
#include "reader/pending.c"

enum { SLOTS = 4, PAGES = 64, ARENA = 4096 + PAGES * RMQ_BLOCK_BYTES + 2 * SLOTS * RMQ_SCRATCH_BYTES };

void rmq_engine_lend(struct rmq_engine *engine, const uint32_t *buffers, uint32_t count) { (void)engine, (void)buffers, (void)count; }

static struct rmq_arena arena;
static struct rmq_pendings pendings;
static struct rmq_connection table[1];
static struct rmq_connections connections = {.table = table, .used = 1};

static struct rmq_pending *take(enum rmq_pending_kind kind)
{
    struct rmq_frame_header h = {.code = 310, .opaque = 5};
    struct rmq_pending *p = rmq_pending_take(&pendings, kind, &table[0], &h);
    if (p)
        rmq_block_take(&arena, 100, &p->ref);
    return p;
}

static void break_one(const char *how)
{
    struct rmq_pending *p = take(RMQ_PENDING_COLD);
    struct rmq_frame_ref theirs = p->ref;
    if (!strcmp(how, "frame"))
        rmq_frame_ref_release(&arena, &theirs);
    rmq_pending_release(&pendings, p);
    rmq_pending_release(&pendings, p);
}

int main(int argc, char **argv)
{
    struct rmq_settings settings = {
        .receive_buffer_bytes = 4096, .receive_buffer_count = 1, .reassembly_bytes_max = PAGES * RMQ_BLOCK_BYTES};
    struct rmq_plane plane = {.arenas = {calloc(1, ARENA)}, .arena_bytes = {ARENA}};
    struct rmq_port port = {.request.capacity = SLOTS};
    struct rmq_read_context context = {.settings = &settings, .plane = &plane, .port = &port, .now_ms = 1000};
    table[0] = (struct rmq_connection){.state = RMQ_CONNECTION_OPEN, .generation = 3};
    if (rmq_arena_open(&arena, &context) || rmq_pendings_open(&pendings, &arena, &connections))
        return 1;
    if (argc > 1) {
        break_one(argv[1]);
        return 0;
    }
    for (int round = 0; round < 3; round++) {
        struct rmq_pending *all[2 * SLOTS];
        uint32_t ids[2 * SLOTS];
        for (int i = 0; i < 2 * SLOTS; i++) {
            all[i] = take(i % 2 ? RMQ_PENDING_COLD : RMQ_PENDING_APPEND);
            ids[i] = rmq_pending_id(&pendings, all[i]);
        }
        printf("%d ", take(RMQ_PENDING_COLD) == NULL);
        for (int i = 0; i < 2 * SLOTS; i++) {
            int found = rmq_pending_find(&pendings, ids[i]) == all[i];
            rmq_pending_release(&pendings, all[i]);
            printf("%d%d ", found, rmq_pending_find(&pendings, ids[i]) != NULL);
        }
        printf("%u %u %u\n", pendings.counts[RMQ_PENDING_APPEND], pendings.counts[RMQ_PENDING_COLD], arena.blocks_free);
    }
    rmq_pendings_close(&pendings);
    rmq_arena_close(&arena);
    free(plane.arenas[0]);
    return 0;
}
