/* roles_layout.h: a block for each role: its process, its bell, its counters. A role is one job of a worker process. */
#ifndef RMQ_ROLES_LAYOUT_H
#define RMQ_ROLES_LAYOUT_H
#include <stdint.h>

/* cdef-begin */
#define RMQ_ROLES_MAX 32

/* Role numbers: index into rmq_plane_header.roles. Readers are RMQ_ROLE_READ + reader. */
#define RMQ_ROLE_SUPERVISOR 0
#define RMQ_ROLE_CONTROL 1
#define RMQ_ROLE_WRITE 2
#define RMQ_ROLE_FLUSH 3
#define RMQ_ROLE_DISPATCH 4
#define RMQ_ROLE_NAMESRV 5
#define RMQ_ROLE_HA 6 /* a master's HA writer, a slave's HA client */
#define RMQ_ROLE_METRICS 7
#define RMQ_ROLE_READ 8

/* A sleeper's bell. The sleeper stores RMQ_BELL_*, fences, looks once more, then waits on its eventfd.
 * A waker publishes, fences, reads `sleeping`, writes the eventfd only when it is not 0. */
#define RMQ_BELL_ASLEEP 1
#define RMQ_BELL_AT_DISK 2 /* flush: waits for a sync; what only asks for the next one need not wake it */
struct rmq_bell {
    uint32_t sleeping; /* the sleeper */
    uint8_t pad[60];
};

/* 576 bytes per role, written by that role's process (pid, generation, name and flags by the supervisor). */
struct rmq_role {
    struct rmq_bell bell;     /*   0 */
    uint32_t pid;             /*  64 supervisor */
    uint32_t generation;      /*  68 supervisor: +1 at each start of the worker */
    uint32_t state;           /*  72 role: 0 down, 1 starting, 2 serving, 3 stopping */
    uint32_t cpu;             /*  76 supervisor */
    uint64_t progress;        /*  80 role: turns of its loop; control waits for one of write when a topic goes */
    uint64_t claim_position;  /*  88 role, ~0 = none: where it may hold a claim in the inbox; reset by the supervisor */
    char name[24];            /*  96 supervisor: its worker in the table (ipc/workers.py), NUL-terminated, empty = none */
    uint32_t flags;           /* 120 supervisor: RMQ_ROLE_OPTIONAL */
    uint32_t wanted;          /* 124 anyone: 1 = its worker, which starts by this word, is to be started */
    uint64_t counters[56];    /* 128 role: meaning in each role's header */
};
#define RMQ_ROLE_OPTIONAL 1   /* its deaths, however many, do not end the broker */
/* cdef-end */

_Static_assert(sizeof(struct rmq_role) == 576, "role");
#endif
