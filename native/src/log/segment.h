/* segment.h: CommitLog files on disk and in memory.
 *
 * A file is fallocated in full before it gets its name, so that a store into its mapping can never meet a full disk
 * (SIGBUS). Until then it has no name (O_TMPFILE). On a file system without O_TMPFILE it has a temporary name outside the
 * folder, because a stock broker refuses a folder that holds a file of another length.
 */
#ifndef RMQ_SEGMENT_H
#define RMQ_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
struct rmq_segment {
    char *base;      /* NULL = not mapped */
    uint64_t offset; /* of the first byte, in the log */
    uint64_t bytes;
};

/* Makes <directory>/<offset as 20 digits>, all zero, full length, every block allocated; returns when the file is on
 * disk. The appender may use the file as soon as it has its name, so a file with a name is never removed here. Its name is on
 * disk when the folder has been synced: flush does that together with the file's first sync. The temporary file is in `root`
 * (the store root), or in a folder inside `directory` if that is on another file system. Any thread may call this function. 0
 * (also when the file exists), -ENOSPC, -EDQUOT or another -errno. */
int rmq_segment_create(const char *root, const char *directory, uint64_t offset, uint64_t bytes);

/* 1 = there with the right length, 0 = not there, -EINVAL = wrong length, or another -errno. */
int rmq_segment_exists(const char *directory, uint64_t offset, uint64_t bytes);

/* Maps one file whole. writable: its holes are allocated first (files of a stock broker have some).
 * 0, -ENOENT, -EINVAL (wrong length), -ENOSPC or another -errno. */
int rmq_segment_map(struct rmq_segment *segment, const char *directory, uint64_t offset, uint64_t bytes, int writable);
void rmq_segment_unmap(struct rmq_segment *segment);

/* Generic half of the above, also for index files: `temporary` is used where a file cannot be made without a name; with
 * durable = 0 nothing is synced. */
int rmq_file_create(const char *temporary, const char *final, uint64_t bytes, int durable);
/* syncfs of the file system of a folder. It also returns, once, a failure that has not been returned before. 0 or -errno. */
int rmq_file_system_sync(const char *folder);
/* mkdir -p. 0 or -errno. */
int rmq_folder_make(const char *folder);
/* cdef-end */
#endif
