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
#include "admission_layout.h"
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
    uint8_t reserved[24];
    struct rmq_tables tables;
    struct rmq_memory memory;
    struct rmq_settings settings;
    struct rmq_role roles[RMQ_ROLES_MAX];
    struct rmq_ports ports;
    struct rmq_ring inbox;       /* MPSC byte ring of rmq_inbox_record: anyone -> control */
    struct rmq_replication replication;
    struct rmq_latency latency[RMQ_ROLES_MAX][RMQ_LATENCY_PLACES]; /* the role itself */
    struct rmq_admission admission; /* control */
};
/* cdef-end */

#define RMQ_PLANE_MAGIC 0x454e414c50514d52ull /* "RMQPLANE" */
#ifndef RMQ_PLANE_VERSION
#define RMQ_PLANE_VERSION 0 /* a build by hand; the build of the package reckons it from the sources of the plane */
#endif
#endif
