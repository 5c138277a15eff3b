#include "log/loaded_pages.h"

#include <sys/mman.h>

#include "codec/record.h"

#define PAGE 4096u
#define LOOK_BYTES (256u << 10)      /* pages asked for at once */
#define READ_AHEAD_BYTES (1u << 20)
#define TAIL_BYTES (40u << 10)       /* holds topic and properties, which stand behind the body */

static const uint8_t *page_at(const uint8_t *byte) { return byte - (uintptr_t)byte % PAGE; }

static int covers(struct rmq_loaded *loaded, const struct rmq_file_map *map, const uint8_t *from, const uint8_t *to)
{
    unsigned char pages[LOOK_BYTES / PAGE];
    if (loaded->from <= from && to <= loaded->to)
        return 1;
    const uint8_t *first = page_at(from), *end = map->base + map->file_bytes;
    size_t bytes = (size_t)(end - first) < LOOK_BYTES ? (size_t)(end - first) : LOOK_BYTES, count = (bytes + PAGE - 1) / PAGE, n = 0;
    if (mincore((void *)(uintptr_t)first, bytes, pages) < 0)
        return 1; /* the read itself will tell */
    while (n < count && pages[n] & 1)
        n++;
    loaded->from = first;
    loaded->to = first + n * PAGE;
    return to <= loaded->to;
}

static void read_ahead(const struct rmq_file_map *map, const uint8_t *from, uint32_t size)
{
    const uint8_t *first = page_at(from), *end = map->base + map->file_bytes;
    size_t ahead = size > READ_AHEAD_BYTES ? size + PAGE : READ_AHEAD_BYTES;
    madvise((void *)(uintptr_t)first, (size_t)(end - first) < ahead ? (size_t)(end - first) : ahead, MADV_WILLNEED);
}

int rmq_bytes_are_loaded(struct rmq_loaded *loaded, const struct rmq_file_map *map, const uint8_t *at, uint32_t size)
{
    const uint8_t *end = at + size;
    for (const uint8_t *from = at; from < end; from += LOOK_BYTES - PAGE) {
        const uint8_t *to = (size_t)(end - from) < LOOK_BYTES - PAGE ? end : from + (LOOK_BYTES - PAGE);
        if (!covers(loaded, map, from, to)) {
            read_ahead(map, from, (uint32_t)(end - from));
            return 0;
        }
    }
    return 1;
}

int rmq_record_is_loaded(struct rmq_loaded *loaded, const struct rmq_file_map *map, const uint8_t *record, uint32_t size)
{
    const uint8_t *tail = size > TAIL_BYTES ? record + size - TAIL_BYTES : record;
    const uint8_t *head_end = size > TAIL_BYTES ? record + RMQ_RECORD_FIXED_BYTES + 24 : record + size; /* hosts may be longer */
    if (covers(loaded, map, record, head_end) && (tail == record || covers(loaded, map, tail, record + size)))
        return 1;
    read_ahead(map, record, size);
    return 0;
}
