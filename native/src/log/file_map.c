#include "log/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t *bucket(struct rmq_file_cache *cache, uint64_t key)
{
    return &cache->hash[(key * 0x9e3779b97f4a7c15ull) >> 40 & cache->hash_mask];
}

static struct rmq_file_map *at(struct rmq_file_cache *cache, uint32_t index_plus_one)
{
    return &cache->maps[index_plus_one - 1];
}

static uint32_t name_of(struct rmq_file_cache *cache, struct rmq_file_map *map) { return (uint32_t)(map - cache->maps) + 1; }

static void unlink_used(struct rmq_file_cache *cache, struct rmq_file_map *map)
{
    if (map->newer)
        at(cache, map->newer)->older = map->older;
    else
        cache->newest = map->older;
    if (map->older)
        at(cache, map->older)->newer = map->newer;
    else
        cache->oldest = map->newer;
}

static void link_newest(struct rmq_file_cache *cache, struct rmq_file_map *map)
{
    uint32_t name = name_of(cache, map);
    map->newer = 0;
    map->older = cache->newest;
    if (cache->newest)
        at(cache, cache->newest)->newer = name;
    else
        cache->oldest = name;
    cache->newest = name;
}

int rmq_file_cache_open(struct rmq_file_cache *cache, uint32_t capacity)
{
    uint32_t buckets = 64;
    while (buckets < capacity)
        buckets *= 2;
    cache->maps = calloc(capacity, sizeof *cache->maps);
    cache->hash = calloc(buckets, sizeof *cache->hash);
    if (!cache->maps || !cache->hash)
        return -ENOMEM;
    cache->capacity = capacity;
    cache->hash_mask = buckets - 1;
    return 0;
}

static void release(struct rmq_file_map *map)
{
    munmap(map->base, map->map_bytes);
    if (map->fd >= 0)
        close(map->fd);
    map->base = NULL;
}

void rmq_file_cache_close(struct rmq_file_cache *cache)
{
    for (uint32_t name = cache->newest; name; name = at(cache, name)->older)
        release(at(cache, name));
    free(cache->maps);
    free(cache->hash);
    cache->maps = NULL;
    cache->hash = NULL;
}

struct rmq_file_map *rmq_file_cache_find(struct rmq_file_cache *cache, uint64_t key)
{
    for (uint32_t name = *bucket(cache, key); name; name = at(cache, name)->hash_next) {
        struct rmq_file_map *map = at(cache, name);
        if (map->key != key)
            continue;
        if (cache->newest != name) {
            unlink_used(cache, map);
            link_newest(cache, map);
        }
        return map;
    }
    return NULL;
}

int rmq_file_cache_forget(struct rmq_file_cache *cache, struct rmq_file_map *map)
{
    if (map->references)
        return 0;
    uint32_t name = name_of(cache, map), *link = bucket(cache, map->key);
    while (*link != name)
        link = &at(cache, *link)->hash_next;
    *link = map->hash_next;
    unlink_used(cache, map);
    release(map);
    map->hash_next = cache->free;
    cache->free = name;
    return 1;
}

/* A slot for one more mapping: a free one, or that of the oldest mapping without holders. */
static struct rmq_file_map *vacancy(struct rmq_file_cache *cache)
{
    if (!cache->free && cache->count < cache->capacity)
        return &cache->maps[cache->count++];
    for (uint32_t name = cache->oldest; !cache->free && name;) {
        struct rmq_file_map *map = at(cache, name);
        name = map->newer;
        rmq_file_cache_forget(cache, map);
    }
    if (!cache->free)
        return NULL;
    struct rmq_file_map *map = at(cache, cache->free);
    cache->free = map->hash_next;
    return map;
}

struct rmq_file_map *rmq_file_cache_map(struct rmq_file_cache *cache, uint64_t key, const char *path, uint64_t map_bytes)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) < 0 || st.st_size <= 0) {
        close(fd);
        errno = ENOENT;
        return NULL;
    }
    void *base = mmap(NULL, map_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        close(fd);
        return NULL;
    }
    uint64_t size = (uint64_t)st.st_size < map_bytes ? (uint64_t)st.st_size : map_bytes;
    if (size == map_bytes) {
        close(fd);
        fd = -1;
    }
    struct rmq_file_map *map = vacancy(cache);
    if (!map) {
        munmap(base, map_bytes);
        if (fd >= 0)
            close(fd);
        errno = EBUSY;
        return NULL;
    }
    *map = (struct rmq_file_map){.key = key, .base = base, .map_bytes = map_bytes, .file_bytes = size, .fd = fd};
    uint32_t *head = bucket(cache, key);
    map->hash_next = *head;
    *head = name_of(cache, map);
    link_newest(cache, map);
    return map;
}

int rmq_file_map_reaches(struct rmq_file_map *map, uint64_t end)
{
    struct stat st;
    if (end <= map->file_bytes)
        return 1;
    if (map->fd < 0 || end > map->map_bytes || fstat(map->fd, &st) < 0)
        return 0;
    map->file_bytes = (uint64_t)st.st_size < map->map_bytes ? (uint64_t)st.st_size : map->map_bytes;
    if (map->file_bytes == map->map_bytes) {
        close(map->fd);
        map->fd = -1;
    }
    return end <= map->file_bytes;
}
