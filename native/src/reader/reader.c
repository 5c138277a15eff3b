/* The read role's loop: take events, drain rings, answer, sleep. */
#include "reader/reader.h"

#include <stdlib.h>

#include "plane/journal.h"
#include "plane/port.h"
#include "reader/eviction.h"
#include "reader/frames.h"
#include "reader/overdue.h"
#include "reader/watchdog.h"

#define TICK_MS 1000
#define CLOSING_TICK_MS 20
#define STOP_MS (RMQ_STOP_SLAVES_MS + 1000) /* answers that have waited for slaves so long still get out */
#define STOP_BUSY_MS 300
#define STOP_TOGETHER_MS 30
#define STOP_LOOK_MS 5
#define PREDECESSOR_MS 5000
#define AGAIN_MS 1 /* between turns in which polls are asked again */
#define ENGINE_ENTRIES 1024u

/* Each part holds those in front of it that it needs. No function beside the ones in this file takes the whole reader. */
struct rmq_reader {
    struct rmq_read_context context;
    struct rmq_turn turn;
    struct rmq_arena arena;
    struct rmq_connections connections;
    struct rmq_unsents unsents;
    struct rmq_outputs outputs;
    struct rmq_answers answers;
    struct rmq_pendings pendings;
    struct rmq_records records;
    struct rmq_held held;
    struct rmq_cold cold;
    struct rmq_parking parking;
    struct rmq_closings closings;
    struct rmq_pulls pulls;
    struct rmq_sends sends;
    struct rmq_frames frames;
    struct rmq_eviction eviction;
    struct rmq_watchdog watchdog;
    struct rmq_role *role;
    int starting, stopping;
    int64_t opened_ms, stop_deadline_ms, tick_next_ms;
    uint64_t inbox_barrier; /* control's inbox is consumed up to here: it has no frame of the predecessor */
    struct rmq_event events[256];
};

static int parts_open(struct rmq_reader *r, int listen_fd, int vip_listen_fd)
{
    const struct rmq_settings *s = r->context.settings;
    if (!s->segment_bytes || !s->queue_file_bytes || s->frame_bytes_max < 16)
        return -EINVAL;
    rmq_unsents_open(&r->unsents, &r->context);
    int rc = rmq_arena_open(&r->arena, &r->context);
    if (rc == 0)
        rc = rmq_connections_open(&r->connections, &r->context, listen_fd, vip_listen_fd);
    if (rc == 0)
        rc = rmq_outputs_open(&r->outputs, &r->connections, &r->unsents);
    if (rc == 0)
        rc = rmq_pendings_open(&r->pendings, &r->arena, &r->connections);
    if (rc == 0)
        rc = rmq_records_open(&r->records, &r->outputs);
    if (rc == 0)
        rc = rmq_held_open(&r->held, &r->context, &r->connections);
    if (rc == 0)
        rc = rmq_parking_open(&r->parking, &r->context, &r->connections);
    if (rc < 0)
        return rc;
    rmq_answers_open(&r->answers, &r->context, &r->outputs);
    rmq_cold_open(&r->cold, &r->answers, &r->pendings, &r->records, &r->held);
    rmq_closings_open(&r->closings, &r->cold, &r->parking);
    r->watchdog = (struct rmq_watchdog){.context = &r->context, .connections = &r->connections};
    rc = rmq_pulls_open(&r->pulls, &r->cold, &r->parking, &r->turn);
    if (rc == 0)
        rc = rmq_sends_open(&r->sends, &r->answers, &r->pendings);
    if (rc == 0)
        rc = rmq_frames_open(&r->frames, &r->sends, &r->pulls, &r->closings);
    if (rc < 0)
        return rc;
    rmq_eviction_open(&r->eviction, &r->frames);
    struct rmq_engine_options options = {
        .kind = s->engine,
        .buffers = r->arena.bytes,
        .buffer_bytes = r->arena.buffer_bytes,
        .buffer_count = r->arena.buffer_count,
        .entries = ENGINE_ENTRIES,
        .wake_fd = r->context.plane->event_fds[r->context.role_number],
    };
    const char *call;
    return rmq_engine_open(&r->context.engine, &options, &call);
}

struct rmq_reader *rmq_reader_open(struct rmq_plane *plane, uint32_t port, int listen_fd, int vip_listen_fd, int *error)
{
    *error = -EINVAL;
    if (port >= rmq_header(plane)->ports.count || !plane->arenas[port] || !(rmq_port_at(plane, port)->flags & RMQ_PORT_CONNECTIONS))
        return NULL;
    struct rmq_reader *r = calloc(1, sizeof *r);
    *error = -ENOMEM;
    if (!r)
        return NULL;
    r->context.plane = plane;
    r->context.header = rmq_header(plane);
    r->context.settings = &r->context.header->settings;
    r->context.port = rmq_port_at(plane, port);
    r->context.port_number = port;
    r->context.role_number = rmq_port_role(r->context.header, port);
    r->role = &r->context.header->roles[r->context.role_number];
    r->context.generation = rmq_load(&r->role->generation);
    rmq_port_claim(plane, port);
    r->inbox_barrier = rmq_load(&rmq_answerer_at(plane, RMQ_CONTROL_ANSWERER)->inbox.head);
    r->opened_ms = r->context.now_ms = rmq_mono_ms();
    r->tick_next_ms = r->context.now_ms + TICK_MS;
    r->starting = 1;
    *error = parts_open(r, listen_fd, vip_listen_fd);
    if (*error < 0) {
        rmq_reader_close(r);
        return NULL;
    }
    return r;
}

void rmq_reader_close(struct rmq_reader *r)
{
    if (!r)
        return;
    rmq_engine_close(r->context.engine); /* first: the kernel lets go of buffers and pages */
    if (r->context.engine) /* without one there was no connection, and perhaps not every part */
        rmq_closings_finish(&r->closings);
    rmq_connections_close(&r->connections);
    rmq_frames_close(&r->frames);
    rmq_parking_close(&r->parking);
    rmq_cold_close(&r->cold);
    rmq_held_close(&r->held);
    rmq_pendings_close(&r->pendings);
    rmq_pulls_close(&r->pulls);
    rmq_records_close(&r->records);
    rmq_outputs_close(&r->outputs);
    rmq_unsents_close(&r->unsents);
    rmq_sends_close(&r->sends);
    rmq_arena_close(&r->arena);
    free(r);
}

/* A predecessor's requests may still point into the arena, its last frames may still stand in control's inbox. */
static int start(struct rmq_reader *r)
{
    int late = r->context.now_ms - r->opened_ms > PREDECESSOR_MS;
    uint64_t taken = rmq_load(&rmq_answerer_at(r->context.plane, RMQ_CONTROL_ANSWERER)->inbox.tail);
    if (rmq_ring_used(r->sends.requests) || (taken < r->inbox_barrier && !late))
        return 0;
    r->starting = 0;
    /* the rings of completions have as many slots as that of requests; a predecessor's may still come for a while */
    r->pendings.appends_max = r->context.generation > 1 ? r->sends.requests->capacity / 2 : r->sends.requests->capacity;
    rmq_buffers_lend(&r->arena);
    rmq_accept_arm(&r->connections);
    RMQ_CRASH("reader-started");
    rmq_store(&r->role->state, 2);
    return 1;
}

static void handle(struct rmq_reader *r, const struct rmq_event *event)
{
    switch (event->kind) {
    case RMQ_EVENT_RECEIVED:
        rmq_receive_event(&r->frames, event);
        break;
    case RMQ_EVENT_SENT:
        rmq_output_sent(&r->outputs, event);
        break;
    case RMQ_EVENT_READ:
        rmq_output_read(&r->outputs, event);
        break;
    case RMQ_EVENT_ACCEPTED:
        if (rmq_connection_accept(&r->connections, event))
            rmq_eviction_of_places(&r->eviction);
        rmq_closings_settle(&r->closings);
        return;
    default:
        return; /* woken: the rings are looked at anyway */
    }
    rmq_closings_settle(&r->closings);
    struct rmq_connection *c = rmq_connection_at(&r->connections, (uint32_t)(event->tag >> 32));
    if (c->state == RMQ_CONNECTION_CLOSING)
        rmq_closings_end(&r->closings, c);
}

static int rings_wait(const struct rmq_reader *r)
{
    const struct rmq_port *port = r->context.port;
    return rmq_ring_used(&port->appended) || rmq_ring_used(&port->completed) || rmq_ring_used(&port->arrived) ||
           rmq_verdicts_wait(&r->cold);
}

/* Memory of this process that grows with its clients. */
static uint64_t private_bytes(const struct rmq_reader *r)
{
    return rmq_output_memory(&r->outputs) + (uint64_t)r->connections.used * sizeof *r->connections.table +
           (uint64_t)r->pendings.used * sizeof *r->pendings.table + (uint64_t)r->parking.used * sizeof *r->parking.table +
           r->parking.bytes + (uint64_t)r->held.used * sizeof *r->held.table + r->held.bytes;
}

static void publish_counters(struct rmq_reader *r)
{
    r->context.counters[RMQ_READ_PARKED] = r->parking.count;
    r->context.counters[RMQ_READ_HELD] = r->held.count;
    rmq_store_relaxed(&r->context.port->awaits, r->parking.count);
    r->context.counters[RMQ_READ_ANSWER_BYTES] = r->outputs.open + r->outputs.closing;
    r->context.counters[RMQ_READ_PRIVATE_BYTES] = private_bytes(r);
    r->context.counters[RMQ_READ_BUFFERS_FREE] = r->arena.buffers_free;
    r->context.counters[RMQ_READ_BLOCK_BYTES_FREE] = (uint64_t)r->arena.blocks_free * RMQ_BLOCK_BYTES;
    for (unsigned i = 0; i < sizeof r->context.counters / sizeof *r->context.counters; i++)
        rmq_store_relaxed(&r->role->counters[i], r->context.counters[i]);
    rmq_store_relaxed(&r->role->progress, r->role->progress + 1);
}

/* Behind the requests of the round: the frames of later rounds are judged by this side, or by a newer one. */
static void watch_side(struct rmq_reader *r)
{
    rmq_park_watch_side(&r->parking);
    if (!r->parking.was_master)
        rmq_port_stand(r->context.plane, r->context.port_number);
}

static void tick(struct rmq_reader *r)
{
    watch_side(r);
    if (r->context.now_ms >= r->parking.next_ms || r->context.now_ms >= r->parking.scan_next_ms)
        rmq_parked_tick(&r->pulls);
    if (r->context.now_ms >= r->tick_next_ms) {
        rmq_closings_tick(&r->closings);
        rmq_overdue_close(&r->closings);
        rmq_accept_arm(&r->connections);
        rmq_park_apply_settings(&r->parking);
        rmq_queue_reader_tick(&r->records.queues);
        rmq_buffers_tick(&r->arena);
        rmq_blocks_tick(&r->arena);
        rmq_outputs_tick(&r->outputs);
        publish_counters(r);
        if (r->context.now_ms - r->opened_ms > PREDECESSOR_MS + r->context.settings->sync_flush_timeout_ms)
            r->pendings.appends_max = r->sends.requests->capacity;
        r->tick_next_ms = r->context.now_ms + TICK_MS;
    }
    if (r->connections.ending && r->tick_next_ms > r->context.now_ms + CLOSING_TICK_MS)
        r->tick_next_ms = r->context.now_ms + CLOSING_TICK_MS;
}

/* One round; how many things it found to do. */
static uint32_t round_once(struct rmq_reader *r)
{
    uint32_t count = rmq_engine_take(r->context.engine, r->events, sizeof r->events / sizeof *r->events), work = count;
    r->turn.used = 0;
    r->turn.waits = 0;
    for (uint32_t i = 0; i < count; i++)
        handle(r, &r->events[i]);
    rmq_sends_publish(&r->sends);
    rmq_cold_wake(&r->cold);
    rmq_unsents_send(&r->unsents);
    rmq_answerers_watch(&r->cold);
    work += rmq_completions_drain(&r->sends);
    work += rmq_verdicts_drain(&r->cold);
    if (r->held.count) {
        rmq_held_expire(&r->cold);
        rmq_held_ask_again(&r->cold);
    }
    work += rmq_arrivals_drain(&r->pulls);
    rmq_closings_settle(&r->closings);
    if (rmq_redo_first(&r->cold)) {
        rmq_redo_run(&r->frames);
        rmq_closings_settle(&r->closings);
    }
    if (r->frames.stalled_count) {
        rmq_stalls_resume(&r->frames);
        rmq_eviction_poll(&r->eviction);
    }
    if (r->arena.buffers_lent < r->arena.lend_target)
        rmq_buffers_lend(&r->arena);
    if (r->connections.starved_count)
        rmq_starved_resume(&r->frames);
    rmq_sends_publish(&r->sends);
    rmq_cold_wake(&r->cold);
    tick(r);
    rmq_eviction_of_answers(&r->eviction);
    rmq_output_flush(&r->outputs);
    rmq_closings_settle(&r->closings);
    return work;
}

static uint64_t looks_of_pulls(const struct rmq_reader *r)
{
    return r->context.counters[RMQ_READ_PULLS_FOUND] + r->context.counters[RMQ_READ_PULLS_MISSED];
}

/* One clock read for all pulls of a round. */
static uint32_t timed_round(struct rmq_reader *r)
{
    uint64_t looks = looks_of_pulls(r);
    uint32_t work = round_once(r);
    if (looks_of_pulls(r) != looks) {
        uint64_t took_ns = (uint64_t)(rmq_mono_ns() - r->context.now_ns), *longest = &r->context.counters[RMQ_READ_PULL_NS_MAX];
        *longest = took_ns > *longest ? took_ns : *longest;
    }
    return work;
}

static int64_t sleep_ns(const struct rmq_reader *r, int64_t deadline_ns)
{
    int64_t wake_ms = r->tick_next_ms < r->parking.scan_next_ms ? r->tick_next_ms : r->parking.scan_next_ms;
    if (r->parking.next_ms < wake_ms)
        wake_ms = r->parking.next_ms;
    if (r->frames.stalled_count && r->eviction.next_ms < wake_ms)
        wake_ms = r->eviction.next_ms;
    if (rmq_cold_has_others(&r->cold) && r->cold.look_next_ms < wake_ms)
        wake_ms = r->cold.look_next_ms;
    if (rmq_held_due_ns(&r->held) / 1000000 < wake_ms)
        wake_ms = rmq_held_due_ns(&r->held) / 1000000 + 1;
    if (r->held.count && rmq_held_waits(&r->cold) && wake_ms > r->context.now_ms + AGAIN_MS)
        wake_ms = r->context.now_ms + AGAIN_MS;
    if (r->unsents.waiting && wake_ms > r->context.now_ms + RMQ_UNSENT_LOOK_MS)
        wake_ms = r->context.now_ms + RMQ_UNSENT_LOOK_MS;
    if (r->stopping && wake_ms > r->context.now_ms + STOP_LOOK_MS)
        wake_ms = r->context.now_ms + STOP_LOOK_MS;
    int64_t now = rmq_mono_ns(), until = wake_ms * 1000000 < deadline_ns ? wake_ms * 1000000 : deadline_ns;
    return until > now ? until - now : 0;
}

static int wait_for_work(struct rmq_reader *r, int64_t deadline_ns)
{
    for (uint32_t i = 0; i < r->context.settings->spin_pauses; i++) {
        if (rmq_engine_ready(r->context.engine) || rings_wait(r))
            return rmq_engine_wait(r->context.engine, 0);
        rmq_pause();
    }
    rmq_role_arm(r->context.plane, r->context.role_number);
    int has_work = rings_wait(r) || r->outputs.dirty_count || r->turn.waits;
    int rc = rmq_engine_wait(r->context.engine, has_work ? 0 : sleep_ns(r, deadline_ns));
    rmq_role_disarm(r->context.plane, r->context.role_number);
    return rc;
}

/* From the first call on no connection is accepted. A client whose connection ends and that connects again waits in the socket
 * for its next owner. All readers must have come here before one of them lets a client wait, or another one would accept it.
 * Until then sends are served. After that they stay unanswered, and end with their connections. The stop is done when all
 * accepted requests have been answered. Clients that go on asking must not delay the stop for ever. */
static int stopped(struct rmq_reader *r, uint32_t work)
{
    if (!r->stopping) {
        rmq_accept_stop(&r->connections);
        r->stopping = 1;
        r->stop_deadline_ms = r->context.now_ms + STOP_MS;
    }
    r->sends.takes_none = r->stop_deadline_ms - r->context.now_ms <= STOP_MS - STOP_TOGETHER_MS;
    if (!r->sends.takes_none)
        return 0;
    int64_t left_ms = r->stop_deadline_ms - r->context.now_ms;
    int quiet = !work && !r->outputs.used;
    return left_ms <= 0 || (!r->pendings.counts[RMQ_PENDING_APPEND] && (quiet || left_ms < STOP_MS - STOP_BUSY_MS));
}

int rmq_reader_run(struct rmq_reader *r, int64_t budget_ns)
{
    int64_t deadline_ns = rmq_mono_ns() + budget_ns;
    for (;;) {
        int64_t now_ns = rmq_mono_ns();
        r->context.now_ns = now_ns;
        r->context.now_ms = now_ns / 1000000;
        int rc;
        uint32_t work = 0;
        if (r->starting && !start(r)) {
            rc = rmq_engine_wait(r->context.engine, 1000000);
            rmq_engine_take(r->context.engine, r->events, sizeof r->events / sizeof *r->events); /* wake-ups alone */
        } else {
            work = timed_round(r);
            if ((work && rmq_engine_queued(r->context.engine)) || rmq_engine_ready(r->context.engine))
                rc = rmq_engine_wait(r->context.engine, 0);
            else
                rc = now_ns < deadline_ns ? wait_for_work(r, deadline_ns) : 0;
        }
        if (!r->stopping && rmq_reader_is_hung(&r->watchdog))
            return RMQ_RUN_HUNG;
        int stop = rmq_load(&r->context.plane->watermarks->stop_requested) != 0 && stopped(r, work);
        if (rc < 0 && rc != -EINTR)
            return rc;
        if (stop || rc == -EINTR || now_ns >= deadline_ns) {
            publish_counters(r);
            return stop ? RMQ_RUN_STOPPED : RMQ_RUN_BUDGET;
        }
    }
}
