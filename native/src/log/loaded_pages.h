/* loaded_pages.h: whether a record, or the parts of it that a condition looks at, are in memory. C only. */
#ifndef RMQ_LOADED_PAGES_H
#define RMQ_LOADED_PAGES_H

#include "log/file_map.h"

/* Pages of a log file that are known to be in memory. */
struct rmq_loaded {
    const uint8_t *from, *to;
};
/* 1 when a read of the record's fixed fields and properties waits for no disk. Else the kernel has been told to read on from
 * there. */
int rmq_record_is_loaded(struct rmq_loaded *loaded, const struct rmq_file_map *map, const uint8_t *record, uint32_t size);
/* The same for `size` bytes from `at` on. */
int rmq_bytes_are_loaded(struct rmq_loaded *loaded, const struct rmq_file_map *map, const uint8_t *at, uint32_t size);

#endif
