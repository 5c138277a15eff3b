/* file_map.h: read-only mappings of log segments and consume queue files, made on demand, bounded, least recently used out.
 *
 * Pulls read through these. A file is mapped over its full configured length. The cache remembers its real size, because access
 * beyond it raises SIGBUS. Holders (sends in flight) count references; a held mapping is never undone.
 */
#ifndef RMQ_FILE_MAP_H
#define RMQ_FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct rmq_file_map {
    uint64_t key;            /* owner << 32 | file number */
    uint8_t *base;
    uint64_t map_bytes;
    uint64_t file_bytes;     /* known size of the file: the bound of every access */
    uint32_t references;
    uint32_t hash_next;      /* index + 1 */
    uint32_t newer, older;   /* index + 1, least recently used list */
    int fd;                  /* kept while the file may still grow, else -1 */
};

struct rmq_file_cache {
    struct rmq_file_map *maps;
    uint32_t *hash;          /* index + 1 */
    uint32_t capacity, hash_mask, count;
    uint32_t newest, oldest, free; /* index + 1 */
};

/* 0 or -ENOMEM. */
int rmq_file_cache_open(struct rmq_file_cache *cache, uint32_t capacity);
void rmq_file_cache_close(struct rmq_file_cache *cache);

/* The mapping of `key`, NULL when it is not there yet. Marks it used. */
struct rmq_file_map *rmq_file_cache_find(struct rmq_file_cache *cache, uint64_t key);
/* Maps `path`. NULL with errno: ENOENT = no such file (or an empty one), EBUSY = every mapping is held, or another. */
struct rmq_file_map *rmq_file_cache_map(struct rmq_file_cache *cache, uint64_t key, const char *path, uint64_t map_bytes);
/* 1 when bytes [0, end) of the file exist; asks the file system again when they did not. */
int rmq_file_map_reaches(struct rmq_file_map *map, uint64_t end);
static inline void rmq_file_map_hold(struct rmq_file_map *map) { map->references++; }
static inline void rmq_file_map_drop(struct rmq_file_map *map) { map->references--; }
/* Undoes a mapping without holders. 1 if it did. */
int rmq_file_cache_forget(struct rmq_file_cache *cache, struct rmq_file_map *map);
#endif
