/* The reassembly area of a reader over shared memory: prints how many of its pages have memory while frames come and go.
 * `driver FILE buffer` drops a buffer twice, `driver FILE block` frees a block twice. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver_invariant.h"
#include "reader/arena.c"

enum { BUFFER_BYTES = 4096, BUFFERS = 64, PAGES = 16384 };

void rmq_engine_lend(struct rmq_engine *engine, const uint32_t *buffers, uint32_t count) { (void)engine, (void)buffers, (void)count; }

static struct rmq_read_context context;
static struct rmq_arena a;
static int file;

static unsigned long with_memory(void)
{
    struct stat status;
    fstat(file, &status);
    return (unsigned long)status.st_blocks * 512 / RMQ_BLOCK_BYTES;
}

static void take(struct rmq_frame_ref *holds, int count, uint32_t bytes)
{
    for (int i = 0; i < count; i++)
        memset(rmq_block_take(&a, bytes, &holds[i]), 0x5a, bytes);
}

static void release(struct rmq_frame_ref *holds, int count)
{
    for (int i = 0; i < count; i++)
        rmq_frame_ref_release(&a, &holds[i]);
}

/* A tick a second. */
static void pass(int seconds)
{
    for (; seconds; seconds--) {
        context.now_ms += 1000;
        rmq_blocks_tick(&a);
    }
}

/* What two owners of the same bytes would do. */
static void release_twice(int is_buffer)
{
    struct rmq_frame_ref first = {.buffer = 0, .block = RMQ_NONE}, second;
    if (is_buffer) {
        rmq_buffers_lend(&a);
        rmq_buffer_received(&a, 0);
    } else {
        rmq_block_take(&a, 100, &first);
    }
    second = first;
    rmq_frame_ref_release(&a, &first);
    rmq_frame_ref_release(&a, &second);
}

int main(int argc, char **argv)
{
    static struct rmq_frame_ref small[10000], large[4];
    struct rmq_settings settings = {
        .receive_buffer_bytes = BUFFER_BYTES, .receive_buffer_count = BUFFERS, .reassembly_bytes_max = PAGES * RMQ_BLOCK_BYTES};
    size_t bytes = (size_t)BUFFERS * BUFFER_BYTES + (size_t)PAGES * RMQ_BLOCK_BYTES;
    file = argc > 1 ? open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600) : -1;
    if (file < 0 || ftruncate(file, (off_t)bytes) < 0)
        return 1;
    void *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (arena == MAP_FAILED)
        return 1;
    struct rmq_plane plane = {.arenas = {arena}, .arena_bytes = {bytes}};
    context = (struct rmq_read_context){.settings = &settings, .plane = &plane, .now_ms = 1000};
    if (rmq_arena_open(&a, &context))
        return 1;
    if (argc > 2) {
        unlink(argv[1]);
        release_twice(!strcmp(argv[2], "buffer"));
        return 0;
    }
    take(small, 10000, RMQ_BLOCK_BYTES); /* a stall: more than the first quarter */
    take(large, 4, 300 * RMQ_BLOCK_BYTES);
    printf("%lu ", with_memory());
    release(small + 100, 9900);
    release(large, 3); /* the last one lies behind all of it */
    pass(29);
    printf("%lu ", with_memory()); /* it may come again */
    pass(60);
    printf("%lu ", with_memory());
    int whole = 1;
    for (int i = 0; i < 100; i++)
        whole &= *rmq_block_at(&a, small[i].block) == 0x5a;
    for (uint32_t i = 0; i < 300; i++)
        whole &= *rmq_block_at(&a, large[3].block + i) == 0x5a;
    printf("%d ", whole);
    release(large + 3, 1);
    pass(90);
    printf("%lu ", with_memory());
    take(small + 100, 50, RMQ_BLOCK_BYTES);
    release(small, 150);
    pass(120);
    printf("%lu\n", with_memory());
    rmq_arena_close(&a);
    return unlink(argv[1]);
}
