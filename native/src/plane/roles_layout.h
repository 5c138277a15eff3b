/* roles_layout.h: a block for each role: its process, its bell, its counters. A role is one job of a worker process. */
#ifndef RMQ_ROLES_LAYOUT_H
#define RMQ_ROLES_LAYOUT_H
#include <stdint.h>

/* cdef-begin */
#define RMQ_ROLES_MAX 64 /* rmq_answerer_plan has a bit for each */

/* Role numbers: index into rmq_plane_header.roles. Read workers have RMQ_ROLE_READ and the 15 numbers behind
 * it. Marks in the log name roles: a number keeps its service for ever. Free: 24 to 26, 32 to 63. */
#define RMQ_ROLE_SUPERVISOR 0
#define RMQ_ROLE_CONTROL 1
#define RMQ_ROLE_WRITE 2
#define RMQ_ROLE_FLUSH 3
#define RMQ_ROLE_DISPATCH 4
#define RMQ_ROLE_NAMESRV 5
#define RMQ_ROLE_HA 6 /* a master's HA writer, a slave's HA client */
#define RMQ_ROLE_METRICS 7
#define RMQ_ROLE_READ 8
#define RMQ_ROLE_POP 27 /* ports_layout.h has the split of its marks */
#define RMQ_ROLE_TIMER 28
#define RMQ_ROLE_TRANSACTIONS 29
#define RMQ_ROLE_DELAY 30
#define RMQ_ROLE_SERVICES 31

/* A sleeper's bell: RMQ_BELL_*, 0 = it runs (layout.h, 1 and 8). */
#define RMQ_BELL_ASLEEP 1
#define RMQ_BELL_AT_DISK 2 /* flush: waits for a sync; a request for the next sync need not wake it */
struct rmq_bell {
    uint32_t sleeping; /* the sleeper */
    uint8_t pad[60];
};

/* 576 bytes per role. The role's process writes them; the supervisor writes pid, generation, name, flags and deaths, control
 * writes `needed_until_s`. `activation_requested` has other writers. Any process that has work for a worker which starts by
 * this word sets it to 1. Only the worker sets it to 0, or the supervisor while the worker has no process
 * (worker_activation.h). */
struct rmq_role {
    struct rmq_bell bell;     /*   0 */
    uint32_t pid;             /*  64 supervisor */
    uint32_t generation;      /*  68 supervisor: +1 at each start of the worker */
    uint32_t state;           /*  72 role: 0 down, 1 starting, 2 serving, 3 stopping */
    uint32_t cpu;             /*  76 supervisor */
    uint64_t progress;        /*  80 role: turns of its loop; control waits for one of write when a topic goes */
    uint64_t claim_position;  /*  88 role, ~0 = none: position of its claim, with the inbox's number (ring.h); reset by the
                               * supervisor */
    char name[24];            /*  96 supervisor: its worker in the table (ipc/workers.py), NUL-terminated, empty = none */
    uint32_t flags;           /* 120 supervisor: RMQ_ROLE_OPTIONAL, ... */
    uint32_t activation_requested; /* 124 1 = its worker is to be started */
    uint64_t counters[54];    /* 128 role: meaning in each role's header */
    uint32_t invariant_line;    /* 560 role: source line at which a process of it met a broken invariant */
    uint32_t invariant_failures; /* 564 role: how often that was */
    uint32_t deaths;          /* 568 supervisor: ends of its worker that nothing asked for */
    uint32_t needed_until_s;  /* 572 control: second of the monotonic clock until which its worker does not rest, 0 = none */
};
#define RMQ_ROLE_OPTIONAL 1    /* its deaths, however many, do not end the broker */
#define RMQ_ROLE_DORMANT 2     /* it has no process because nothing has needed it yet, or needs it any more */
#define RMQ_ROLE_CRASH_LOOP 4 /* it has died several times lately */
#define RMQ_ROLE_OF_MASTER 16  /* it works on a master alone: no request starts it, or goes to it, while the broker is none */
#define RMQ_ROLE_REPLACED 8    /* of the supervisor: the installed package is of another build than the broker */
/* cdef-end */

_Static_assert(sizeof(struct rmq_role) == 576, "role");
#endif
