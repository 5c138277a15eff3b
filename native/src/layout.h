/* layout.h: the shared-memory plane, byte by byte.
 *
 * All worker processes of one broker map the same three kinds of files under /dev/shm:
 *   <name>-watermarks   one page, readable by outsiders (Spark, `store inspect`)
 *   <name>-plane        tables, rings, journal: this header's struct rmq_plane_header says where
 *   <name>-arena<R>     receive memory of read worker R: its provided buffers, then its frame blocks
 * <name> is ringmq-<st_dev>-<st_ino> of the store root in hex, so that a store has one plane.
 *
 * What must stay true:
 *  1. One writer per word. The comment behind each block names the role that alone writes it.
 *  2. A word is published after what it promises (release), and read before it is relied on (acquire).
 *  3. Any worker may die between any two stores. `write` commits a batch by ONE store of
 *     journal_generation; the words published after it are a redo of that journal entry.
 *  4. Ids (topic, group, queue slot, connection generation) are never reused while the plane lives.
 * All integers are in the machine's own order: the plane never leaves the machine.
 */
#ifndef RMQ_LAYOUT_H
#define RMQ_LAYOUT_H
#include "inbox_layout.h"
#include "metrics_layout.h"
#include "ports_layout.h"
#include "replication_layout.h"
#include "roles_layout.h"
#include "settings_layout.h"
#include "tables_layout.h"
#include "watermarks_layout.h"

/* cdef-begin */
/* First pages of the plane. */
struct rmq_plane_header {
    uint64_t magic;    /* "RMQPLANE" */
    uint32_t version;
    uint32_t header_bytes;
    uint64_t plane_bytes;
    uint64_t start_id;
    uint64_t readable_from;      /* supervisor, once: the end of what was recovered and may be read; dispatch reaches it */
    uint64_t parked_flags_at;    /* u8 [readers_max][queue_capacity]: reader has pulls parked on the slot (reader) */
    uint8_t reserved[16];
    struct rmq_tables tables;
    struct rmq_memory memory;
    struct rmq_settings settings;
    struct rmq_role roles[RMQ_ROLES_MAX];
    struct rmq_journal journal;
    struct rmq_ring request[RMQ_PRODUCERS_MAX];      /* rmq_request: producer -> write */
    struct rmq_ring appended[RMQ_PRODUCERS_MAX];     /* rmq_completion: write -> producer */
    struct rmq_ring completed[RMQ_PRODUCERS_MAX];    /* rmq_completion: flush (completer) -> producer */
    struct rmq_ring parked;                          /* rmq_parked: write -> flush */
    struct rmq_ring arrived[RMQ_READERS_MAX];        /* u32 queue slots: dispatch -> reader */
    struct rmq_ring verdict[RMQ_READERS_MAX];        /* byte ring of rmq_verdict: control -> reader */
    struct rmq_ring commit[RMQ_READERS_MAX];         /* rmq_offset_commit: reader -> control */
    struct rmq_ring inbox;                           /* MPSC byte ring of rmq_inbox_record: anyone -> control */
    struct rmq_ring slow[RMQ_READERS_MAX];           /* rmq_slow_request: reader -> control; full: not told */
    struct rmq_replication replication;
    uint64_t pulled_at;          /* struct rmq_pulled [readers_max][RMQ_PULLED_CAPACITY] */
    uint64_t pulled_cells_at;    /* u32 entry + 1, 0 = free [readers_max][RMQ_PULLED_CELLS] */
    struct rmq_pulled_table pulled[RMQ_READERS_MAX]; /* reader */
    uint64_t slow_untold[RMQ_READERS_MAX];           /* reader: slow requests that found their ring full */
    uint64_t junk_untold[RMQ_READERS_MAX];           /* reader: connections closed for junk that control did not hear of */
    struct rmq_latency latency[RMQ_ROLES_MAX][RMQ_LATENCY_PLACES]; /* the role itself */
};
/* cdef-end */

#define RMQ_PLANE_MAGIC 0x454e414c50514d52ull /* "RMQPLANE" */
#ifndef RMQ_PLANE_VERSION
#define RMQ_PLANE_VERSION 0 /* a build by hand; the build of the package reckons it from the sources of the plane */
#endif
#endif
