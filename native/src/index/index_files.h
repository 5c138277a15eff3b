/* index_files.h: the row of index files that dispatch appends to. C only.
 *
 * <root>/index/<creation time yyyyMMddHHmmssSSS>; a file is fallocated in full before it gets its name, because it is
 * written through a mapping. The two newest are mapped: a replay after a death may reach back over a file's end.
 */
#ifndef RMQ_INDEX_FILES_H
#define RMQ_INDEX_FILES_H

#include "engine/background_sync.h"
#include "engine/deferred_close.h"
#include "index/index.h"
#include "plane/plane.h"

#define RMQ_INDEX_NAME_BYTES 18

struct rmq_index_file {
    struct rmq_index index; /* base NULL = none */
    int fd;
    char name[RMQ_INDEX_NAME_BYTES];
};

struct rmq_index_files {
    const struct rmq_settings *settings;
    struct rmq_background_sync *sync;
    struct rmq_deferred_close *deferred_close;
    struct rmq_index_file current, previous;
    uint64_t bytes;              /* of one file */
    uint64_t count;
    int64_t replay_end;          /* records up to this one may have some of their keys in already */
    int64_t full_time_ms;        /* end time of the newest full file handed to the sync, 0 = none */
    int64_t full_started_ms;     /* the same, of files in the round that runs */
    int64_t full_synced_ms;      /* the same, of files on disk */
    int dirty;
    char directory[RMQ_PATH_MAX];
};

int rmq_index_files_open(struct rmq_index_files *files, const struct rmq_settings *settings,
                         struct rmq_background_sync *sync, struct rmq_deferred_close *deferred_close);
void rmq_index_files_close(struct rmq_index_files *files);

/* One key of a record behind replay_end; begins a new file when the current one is full. 1, 0 (lies before the file's
 * end) or -errno. */
int rmq_index_files_put(struct rmq_index_files *files, int32_t key_hash, int64_t commit_log_offset,
                        int64_t store_time_ms);
/* Abandons a batch whose keys may be in the index already. Its records will come again. */
void rmq_index_files_replay(struct rmq_index_files *files);
/* Puts all keys of a record, even if some are there already. Returns the number of entries put, or -errno. */
int rmq_index_files_put_record(struct rmq_index_files *files, const uint8_t *topic, size_t topic_length,
                               const struct rmq_dispatch_keys *keys, int32_t sys_flag, int64_t commit_log_offset,
                               int64_t store_time_ms);
void rmq_index_files_prefetch(const struct rmq_index_files *files, int32_t key_hash);
/* Hands the current file to the background sync when it is dirty. 0 or -errno. */
int rmq_index_files_collect(struct rmq_index_files *files);
/* Deletes files that end below `min_commit_log_offset`, never the newest. Number deleted, or -errno. */
int rmq_index_files_clean(struct rmq_index_files *files, uint64_t min_commit_log_offset);
#endif
