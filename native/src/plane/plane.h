/* plane.h: making, opening and searching the shared-memory plane of layout.h. */
#ifndef RMQ_PLANE_H
#define RMQ_PLANE_H
#include "plane/layout.h"

/* cdef-begin */
/* Reasons for which a role's run function returns to Python; negative = -errno, fatal. */
#define RMQ_RUN_BUDGET 0  /* its time is over: call again */
#define RMQ_RUN_STOPPED 1 /* stop_requested is set and nothing is left to do */
#define RMQ_RUN_ROLLED 2  /* flush: the segment behind the current one is missing, make it */
#define RMQ_RUN_FAULT 3   /* flush, dispatch: a fault was set or went away: look at the watermark page */
#define RMQ_RUN_YIELDED 6 /* write, ha: the tenure gives the journal to the other role, and nothing is left to do */
#define RMQ_RUN_NEWS 4    /* ha: something has happened to a connection, or control has an order */

/* One process's view of the plane. Mapped addresses are private to the process. */
struct rmq_plane {
    char *base;                              /* struct rmq_plane_header and the tables behind it */
    struct rmq_watermarks *watermarks;
    char *arenas[RMQ_PORTS_MAX];             /* NULL until mapped */
    uint64_t arena_bytes[RMQ_PORTS_MAX];
    int event_fds[RMQ_ROLES_MAX];            /* eventfd of each role's bell, -1 where unused */
};

struct rmq_plane_capacity {
    uint32_t topics, queues, groups, subscriptions, offsets;
    uint32_t parked_slots;    /* powers of two, all of these */
    uint32_t commit_slots, arrived_slots;
    uint32_t port_count;
    struct rmq_port_plan ports[RMQ_PORTS_MAX];
    uint32_t answerer_count;
    struct rmq_answerer_plan answerers[RMQ_ANSWERERS_MAX];
};

uint64_t rmq_plane_bytes(const struct rmq_plane_capacity *capacity);
/* Write the header into zeroed memory of rmq_plane_bytes(). `name_secret`: 16 bytes that no client knows. 0 or -EINVAL. */
int rmq_plane_format(void *base, const struct rmq_plane_capacity *capacity, uint64_t start_id, const uint64_t *name_secret);
/* 0, or -EPROTO if another build has made the header. */
int rmq_plane_check(const void *base, uint64_t bytes);
struct rmq_plane_header *rmq_plane_header_of(struct rmq_plane *plane);

/* Tables: add and set are for control alone; find is for everybody. Ids or slots >= 1 (slots >= 0), RMQ_NONE when absent;
 * add returns RMQ_NONE when the table is full. Names are at most RMQ_NAME_MAX bytes. */
uint32_t rmq_topic_find(struct rmq_plane *plane, const char *name, uint32_t length);
uint32_t rmq_topic_add(struct rmq_plane *plane, const char *name, uint32_t length, uint64_t config);
void rmq_topic_set(struct rmq_plane *plane, uint32_t topic_id, uint64_t config);
struct rmq_topic *rmq_topic_at(struct rmq_plane *plane, uint32_t topic_id);
uint32_t rmq_queue_find(struct rmq_plane *plane, uint32_t topic_id, uint32_t queue_id);
uint32_t rmq_queue_add(struct rmq_plane *plane, uint32_t topic_id, uint32_t queue_id, uint64_t min_offset, uint64_t max_offset,
                       uint64_t replay_from);
struct rmq_queue *rmq_queue_at(struct rmq_plane *plane, uint32_t queue_slot);
uint32_t rmq_group_find(struct rmq_plane *plane, const char *name, uint32_t length);
uint32_t rmq_group_add(struct rmq_plane *plane, const char *name, uint32_t length, uint64_t config);
void rmq_group_set(struct rmq_plane *plane, uint32_t group_id, uint64_t config);
struct rmq_group *rmq_group_at(struct rmq_plane *plane, uint32_t group_id);
uint32_t rmq_subscription_find(struct rmq_plane *plane, uint32_t group_id, uint32_t topic_id);
/* 0, -ENOSPC when the table is full, -E2BIG when tag_count > RMQ_TAGS_MAX (store COLD then). */
int rmq_subscription_set(struct rmq_plane *plane, uint32_t group_id, uint32_t topic_id, uint32_t kind,
                         int64_t sub_version, const int32_t *tags, uint32_t tag_count);
/* Give the entry of one pair, which says NONE, to another pair that has none yet. 0, or -ENOENT. Only control. */
int rmq_subscription_replace(struct rmq_plane *plane, uint32_t old_group_id, uint32_t old_topic_id, uint32_t group_id,
                             uint32_t topic_id);
/* Withdraw every entry, for a control process that has just started: the members heartbeat again. */
void rmq_subscriptions_clear(struct rmq_plane *plane);
/* Consistent copy of the current version; kind NONE when there is none. */
void rmq_subscription_get(struct rmq_plane *plane, uint32_t group_id, uint32_t topic_id, struct rmq_subscription_copy *out);
int64_t rmq_offset_get(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot);
/* 1: the table has had an offset of the pair, though it may be deleted (-1). */
int rmq_offset_is_known(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot);
int rmq_offset_put(struct rmq_plane *plane, uint32_t group_id, uint32_t queue_slot, int64_t offset);
/* Drain all commit rings into the offset table; number of changes, or -ENOSPC. */
int rmq_offset_drain(struct rmq_plane *plane);

/* The end of the log for consumers. No other code decides about that limit. */
uint64_t rmq_confirm_offset(const struct rmq_watermarks *watermarks);

/* The side of this broker, by its tenure alone; twin: ipc/tenure.py. 1: it takes the requests that a master alone may do. */
int rmq_is_master(const struct rmq_watermarks *watermarks);
/* 1: its newest records and tables are those of another master. In YIELDING neither holds: the records are its own. */
int rmq_follows_master(const struct rmq_watermarks *watermarks);

/* Wake a role after publishing something for it. 1 if a system call was needed. */
int rmq_role_wake(struct rmq_plane *plane, uint32_t role);
/* The same, unless the role is RMQ_BELL_AT_DISK. */
int rmq_role_wake_asleep(struct rmq_plane *plane, uint32_t role);
/* Park the calling role until rung or timeout. The caller has published nothing since it last looked:
 * arm, look again, then wait. 1 = rung. */
void rmq_role_arm(struct rmq_plane *plane, uint32_t role);
void rmq_role_disarm(struct rmq_plane *plane, uint32_t role);
int rmq_role_wait(struct rmq_plane *plane, uint32_t role, int timeout_ms);

/* control -> ha, one JSON object: 0, -E2BIG when it is over the slot, -ENOBUFS when the ring is full. Wakes ha. */
int rmq_ha_command_put(struct rmq_plane *plane, const char *json, uint32_t length);
/* Bytes copied to `out` (room for a slot), 0 when there is none. */
int rmq_ha_command_take(struct rmq_plane *plane, char *out);

/* Named crash points exist only in the test build: RINGMQ_CRASH_POINT=name[:nth] kills the process there. */
int rmq_crash_points_built(void);
void rmq_crash_point(const char *name);
/* cdef-end */

static inline struct rmq_plane_header *rmq_header(struct rmq_plane *plane)
{
    return (struct rmq_plane_header *)plane->base;
}

#ifdef RMQ_CRASH_POINTS
#define RMQ_CRASH(name) rmq_crash_point(name)
/* First letter of the file that RINGMQ_SYNC_SWITCH names, 0 = none: how a test stalls and fails syncs. */
char rmq_sync_switch(void);
/* RINGMQ_HUNG_GENERATION: the reader of this generation receives nothing. */
int rmq_receive_disabled(uint32_t generation);
#else
#define RMQ_CRASH(name) ((void)0)
#define rmq_sync_switch() ((char)0)
#define rmq_receive_disabled(generation) ((void)(generation), 0)
#endif
#endif
