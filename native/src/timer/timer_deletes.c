#include "timer/timer_deletes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_ROOM 64

static int is_empty(const struct rmq_hash *place) { return !(place->key[0] | place->key[1]); }

static struct rmq_hash *place_of(const struct rmq_delete_table *table, const uint64_t *key)
{
    uint64_t at = key[0] & (table->room - 1);
    while (!is_empty(&table->places[at]) && memcmp(table->places[at].key, key, sizeof table->places->key))
        at = (at + 1) & (table->room - 1);
    return &table->places[at];
}

static void *map(int descriptor, uint64_t bytes)
{
    int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Zeros. Blocks are allocated at once, so a full disk is no signal at a store. */
static struct rmq_hash *map_places(const char *folder, uint64_t room)
{
    uint64_t bytes = room * sizeof(struct rmq_hash);
    int descriptor = folder ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
    void *at = NULL;
    if (descriptor >= 0) {
        if (!posix_fallocate(descriptor, 0, (off_t)bytes))
            at = map(descriptor, bytes);
        close(descriptor);
    }
    return at ? at : map(-1, bytes);
}

static void unmap_places(const struct rmq_delete_table *table)
{
    if (table->places)
        munmap(table->places, table->room * sizeof *table->places);
}

static int add_table(struct rmq_timer_deletes *deletes)
{
    struct rmq_delete_table *tables = realloc(deletes->tables, (deletes->count + 1) * sizeof *tables);
    if (!tables)
        return -ENOMEM;
    deletes->tables = tables;
    struct rmq_delete_table *table = &tables[deletes->count];
    *table = (struct rmq_delete_table){0};
    if (deletes->count) {
        for (table->room = FIRST_ROOM; table->room < 2 * (uint64_t)deletes->keys_max;)
            table->room *= 2;
        table->places = map_places(deletes->folder, table->room);
        if (!table->places)
            return -ENOMEM;
    }
    deletes->count++;
    return 0;
}

/* A table is at most half full. Only the first one grows. */
static int grow(struct rmq_delete_table *table)
{
    struct rmq_delete_table grown = {.count = table->count, .room = table->room ? table->room * 2 : FIRST_ROOM};
    grown.places = map_places(NULL, grown.room);
    if (!grown.places)
        return -ENOMEM;
    for (uint64_t i = 0; i < table->room; i++)
        if (!is_empty(&table->places[i]))
            *place_of(&grown, table->places[i].key) = table->places[i];
    unmap_places(table);
    *table = grown;
    return 0;
}

int rmq_timer_deletes_add(struct rmq_timer_deletes *deletes, const uint64_t *key)
{
    if (rmq_timer_deletes_has(deletes, key))
        return 0;
    int is_full = !deletes->count || deletes->tables[deletes->count - 1].count >= deletes->keys_max;
    if (is_full && add_table(deletes))
        return -ENOMEM;
    struct rmq_delete_table *table = &deletes->tables[deletes->count - 1];
    if (table->count * 2 >= table->room && grow(table))
        return -ENOMEM;
    memcpy(place_of(table, key)->key, key, sizeof table->places->key);
    table->count++;
    return 0;
}

int rmq_timer_deletes_has(const struct rmq_timer_deletes *deletes, const uint64_t *key)
{
    for (uint32_t i = 0; i < deletes->count; i++)
        if (deletes->tables[i].count && !is_empty(place_of(&deletes->tables[i], key)))
            return 1;
    return 0;
}

void rmq_timer_deletes_free(struct rmq_timer_deletes *deletes)
{
    for (uint32_t i = 0; i < deletes->count; i++)
        unmap_places(&deletes->tables[i]);
    free(deletes->tables);
}
