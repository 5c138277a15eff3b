#include "ha/ha_sender.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "ha/ha_connection.h"
#include "plane/ring.h"

enum {
    TICK_MS = 50,            /* heartbeats and housekeeping are looked at this often */
    NAP_NS = 500000,
    RECEIVED_POLL_NS = 1000000, /* the kernel does not say when the slave's has acknowledged */
    ACCEPT_PAUSE_MS = 100,
    RECORD_OVERHEAD = 65536, /* beside the body: bytes of a record beyond maxMessageSize */
    LISTENER = RMQ_HA_PEERS_MAX,
    BELL = RMQ_HA_PEERS_MAX + 1,
};

/* --- accepting ----------------------------------------------------------------------------------------- */

static int vacancy(struct rmq_ha_sender *s)
{
    for (int peer = 0; peer < RMQ_HA_PEERS_MAX; peer++)
        if (s->connections[peer].fd < 0)
            return peer;
    return -1;
}

static void accept_one(struct rmq_ha_sender *s, int fd, const struct sockaddr_storage *address)
{
    int peer = vacancy(s), one = 1;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    int is_v4 = address->ss_family == AF_INET, mapped = !is_v4 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
    const uint8_t *host = is_v4 ? (const uint8_t *)&v4->sin_addr : v6->sin6_addr.s6_addr + (mapped ? 12 : 0);
    uint32_t host_bytes = is_v4 || mapped ? 4 : 16, port = ntohs(is_v4 ? v4->sin_port : v6->sin6_port);
    if (peer < 0) {
        rmq_ha_connection_refuse(s, fd, host, host_bytes, port);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    rmq_ha_connection_open(s, (uint32_t)peer, fd, host, host_bytes, port);
}

static void accept_all(struct rmq_ha_sender *s)
{
    for (int i = 0; i < RMQ_HA_PEERS_MAX; i++) {
        struct sockaddr_storage address;
        socklen_t length = sizeof address;
        int fd = accept4(s->listen_fd, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                s->accept_again_ms = s->now_ms + ACCEPT_PAUSE_MS;
            return;
        }
        accept_one(s, fd, &address);
    }
}

/* --- watermarks ---------------------------------------------------------------------------------------- */

static int wants_received(const struct rmq_ha_requirement *requirement)
{
    for (uint32_t i = 0; i < requirement->count; i++)
        if (requirement->conditions[i].level == RMQ_HA_LEVEL_RECEIVED)
            return 1;
    return 0;
}

/* Updates the bytes that the slave's kernel has acknowledged: sent, less those left in the socket. Headers make the value a
 * little too low. 1 if there is more to come. */
static int update_received(struct rmq_ha_sender *s)
{
    int waiting = 0;
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++) {
        struct rmq_ha_peer *row = rmq_ha_row(s, peer);
        int queued = 0;
        if (row->state != RMQ_HA_TRANSFER || ioctl(s->connections[peer].fd, SIOCOUTQ, &queued) < 0 || queued < 0)
            continue;
        uint64_t left = (uint64_t)queued, sent = row->sent_offset;
        uint64_t received = left < sent ? sent - left : 0;
        if (received > row->received_offset)
            rmq_store_relaxed(&row->received_offset, received);
        waiting |= left > 0;
    }
    return waiting;
}

static void publish(struct rmq_ha_sender *s)
{
    if (!s->required)
        return;
    uint64_t replicated = rmq_ha_watermark(&s->answer, s->header->replication.peers, s->append_offset);
    uint64_t confirmed = rmq_ha_watermark(&s->confirm, s->header->replication.peers, s->append_offset);
    uint64_t had = s->marks->replicated_offset; /* of an append_offset that has been, which only grows */
    RMQ_INVARIANT(had <= s->append_offset && replicated <= s->append_offset, had, replicated, s->append_offset);
    int shows = s->marks->confirm_policy & RMQ_CONFIRM_LIMITED && confirmed > s->marks->confirm_limit;
    if (shows) { /* first, because an answered client may ask for the confirm offset at once */
        rmq_store(&s->marks->confirm_limit, confirmed);
        RMQ_CRASH("ha-confirmed");
    }
    if (replicated > had) {
        rmq_store(&s->marks->replicated_offset, replicated);
        RMQ_CRASH("ha-replicated");
        if (rmq_ring_used(&s->header->ports.parked))
            rmq_role_wake(s->plane, RMQ_ROLE_FLUSH);
    }
    if (shows)
        rmq_role_wake(s->plane, RMQ_ROLE_DISPATCH);
}

/* --- what must stay true ------------------------------------------------------------------------------- */

/* The end of the log, as of now. */
static void see_append(struct rmq_ha_sender *s)
{
    uint64_t append = rmq_load(&s->marks->append_offset);
    RMQ_INVARIANT(append >= s->append_offset, append, s->append_offset);
    s->append_offset = append;
}

/* Once a turn, before a row counts as a replica: nothing but this process has written the rows. */
static void check_peers(struct rmq_ha_sender *s)
{
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++) {
        const struct rmq_ha_peer *row = rmq_ha_row(s, peer);
        uint64_t sent = row->sent_offset, reported = row->reported_offset, received = row->received_offset;
        int fd = s->connections[peer].fd;
        RMQ_INVARIANT(row->state <= RMQ_HA_TRANSFER && (row->state == RMQ_HA_FREE) == (fd < 0), peer, row->state, fd);
        RMQ_INVARIANT(row->state != RMQ_HA_TRANSFER || (reported <= sent && received <= sent && sent <= s->append_offset), peer,
                      reported, received, sent, s->append_offset);
    }
}

/* --- one turn ------------------------------------------------------------------------------------------ */

static int fill_poll(struct rmq_ha_sender *s, struct pollfd *set)
{
    for (int peer = 0; peer < RMQ_HA_PEERS_MAX; peer++) {
        const struct rmq_ha_connection *c = &s->connections[peer];
        set[peer] = (struct pollfd){.fd = c->fd, .events = (short)(POLLIN | (c->fd >= 0 && c->blocked ? POLLOUT : 0))};
    }
    set[LISTENER] = (struct pollfd){.fd = s->now_ms < s->accept_again_ms ? -1 : s->listen_fd, .events = POLLIN};
    set[BELL] = (struct pollfd){.fd = s->plane->event_fds[RMQ_ROLE_HA], .events = POLLIN};
    return BELL + 1;
}

/* Waits up to `wait_ns` and handles events. New connections come first: their slots are free since the last run. */
static void take_in(struct rmq_ha_sender *s, int64_t wait_ns)
{
    struct pollfd set[BELL + 1];
    struct timespec limit = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
    int count = fill_poll(s, set), ready = ppoll(set, (nfds_t)count, &limit, NULL);
    s->now_ms = rmq_mono_ms();
    if (ready <= 0)
        return;
    if (set[BELL].revents) {
        uint64_t rung;
        ssize_t n = read(set[BELL].fd, &rung, sizeof rung);
        (void)n; /* only a signal */
    }
    if (set[LISTENER].revents)
        accept_all(s);
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++) {
        if (set[peer].revents & POLLOUT)
            s->connections[peer].blocked = 0;
        if (set[peer].revents & (POLLIN | POLLERR | POLLHUP))
            rmq_ha_connection_receive(s, peer);
    }
}

/* Bytes sent. */
static int64_t send_out(struct rmq_ha_sender *s)
{
    int64_t sent = 0;
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++)
        if (s->connections[peer].fd >= 0)
            sent += rmq_ha_connection_send(s, peer);
    return sent;
}

static void note_caught_up(struct rmq_ha_sender *s)
{
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++) {
        struct rmq_ha_peer *row = rmq_ha_row(s, peer);
        if (row->state == RMQ_HA_TRANSFER && row->reported_offset >= s->append_offset)
            rmq_store_relaxed(&row->caught_up_mono_ms, s->now_ms);
    }
}

static void tick(struct rmq_ha_sender *s, int64_t *next_tick_ms)
{
    if (s->now_ms < *next_tick_ms)
        return;
    *next_tick_ms = s->now_ms + TICK_MS;
    int64_t span_ms = s->now_ms - s->second_ms;
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++) {
        struct rmq_ha_connection *c = &s->connections[peer];
        if (span_ms >= 1000) {
            rmq_store_relaxed(&rmq_ha_row(s, peer)->bytes_per_second, c->second_bytes * 1000 / (uint64_t)span_ms);
            c->second_bytes = 0;
        }
        if (c->fd >= 0)
            rmq_ha_connection_tick(s, peer);
    }
    if (span_ms < 1000)
        return;
    s->second_ms = s->now_ms;
    uint64_t in_use[RMQ_HA_PEERS_MAX]; /* deleted files take disk space while they are mapped */
    rmq_ha_log_keep(&s->log, in_use, rmq_ha_offsets_in_use(s, in_use));
}

/* --- loop ---------------------------------------------------------------------------------------------- */

static int can_send(struct rmq_ha_sender *s)
{
    see_append(s);
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++)
        if (rmq_ha_connection_has_work(s, peer))
            return 1;
    return 0;
}

/* 1 if requests wait for the slaves' reports. Then every batch of write wakes this role at once. */
static int is_awaited(const struct rmq_ha_sender *s)
{
    return s->settings->sync_replication || s->marks->confirm_policy & RMQ_CONFIRM_LIMITED;
}

static int64_t shortest_wait_ns(struct rmq_ha_sender *s, int64_t left_ns, int received_pending)
{
    int64_t wait_ns = (int64_t)TICK_MS * 1000000;
    wait_ns = left_ns < wait_ns ? left_ns : wait_ns;
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++) {
        int64_t held_ns = rmq_ha_connection_held_ns(s, peer);
        if (held_ns >= 0 && held_ns < wait_ns)
            wait_ns = held_ns;
    }
    return received_pending && wait_ns > RECEIVED_POLL_NS ? RECEIVED_POLL_NS : wait_ns;
}

static int has_streams(struct rmq_ha_sender *s)
{
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++)
        if (rmq_ha_row(s, peer)->state == RMQ_HA_TRANSFER)
            return 1;
    return 0;
}

/* Sleeps until an event. Without a slave, and for a little while after work for which no request waits, it does not ask write
 * to wake it: a wake-up per batch would cost write more than the batch. */
static void rest(struct rmq_ha_sender *s, int64_t left_ns, int worked, int received_pending)
{
    int64_t wait_ns = shortest_wait_ns(s, left_ns, received_pending);
    if (!is_awaited(s) && (worked || !has_streams(s))) {
        take_in(s, worked && wait_ns > NAP_NS ? NAP_NS : wait_ns);
        return;
    }
    rmq_role_arm(s->plane, RMQ_ROLE_HA);
    int ready = can_send(s) || rmq_ring_used(&s->header->replication.commands) || !rmq_is_master(s->marks);
    if (!ready)
        s->role->counters[RMQ_HA_SLEEPS]++;
    take_in(s, ready ? 0 : wait_ns);
    rmq_role_disarm(s->plane, RMQ_ROLE_HA);
}

/* A clean stop ends when every slave has reported everything, or has had its time to do so. */
static int is_finished(struct rmq_ha_sender *s)
{
    if (rmq_load(&s->marks->stop_requested) < RMQ_STOP_HA)
        return 0;
    if (!s->stop_seen_ms)
        s->stop_seen_ms = s->now_ms;
    uint32_t timeout_ms = s->settings->slave_timeout_ms;
    if (s->now_ms - s->stop_seen_ms >= (timeout_ms < RMQ_STOP_SLAVES_MS ? timeout_ms : RMQ_STOP_SLAVES_MS))
        return 1;
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++)
        if (rmq_ha_row(s, peer)->state == RMQ_HA_TRANSFER && rmq_ha_row(s, peer)->reported_offset < s->append_offset)
            return 0;
    return 1;
}

int rmq_ha_sender_run(struct rmq_ha_sender *s, int64_t budget_ns)
{
    int64_t end_ns = rmq_mono_ns() + budget_ns, next_tick_ms = 0;
    int worked = 0;
    for (;;) {
        rmq_store_relaxed(&s->role->progress, s->role->progress + 1);
        see_append(s);
        check_peers(s);
        worked |= send_out(s) > 0;
        int received_pending = (wants_received(&s->answer) || wants_received(&s->confirm)) && update_received(s);
        publish(s);
        note_caught_up(s);
        tick(s, &next_tick_ms);
        if (s->events_head != s->events_tail || rmq_ring_used(&s->header->replication.commands))
            return RMQ_RUN_NEWS;
        if (is_finished(s))
            return RMQ_RUN_STOPPED;
        if (!rmq_is_master(s->marks))
            return RMQ_RUN_YIELDED;
        int64_t left_ns = end_ns - rmq_mono_ns();
        if (left_ns <= 0)
            return RMQ_RUN_BUDGET;
        if (can_send(s)) {
            take_in(s, 0);
            continue;
        }
        rest(s, left_ns, worked, received_pending);
        worked = 0;
    }
}

/* --- orders of the shell ------------------------------------------------------------------------------- */

int rmq_ha_sender_event(struct rmq_ha_sender *s, struct rmq_ha_event *out)
{
    if (s->events_head == s->events_tail)
        return 0;
    *out = s->events[s->events_tail++ % RMQ_HA_EVENTS_MAX];
    return 1;
}

int rmq_ha_sender_start(struct rmq_ha_sender *s, uint32_t peer, uint64_t offset)
{
    if (peer >= RMQ_HA_PEERS_MAX || s->connections[peer].fd < 0)
        return -ENOTCONN;
    struct rmq_ha_connection *c = &s->connections[peer];
    struct rmq_ha_peer *row = rmq_ha_row(s, peer);
    if (row->state != RMQ_HA_READY || !c->asked || offset > rmq_load(&s->marks->append_offset))
        return -EINVAL;
    c->next_offset = offset;
    c->advised = 0;
    row->start_offset = row->sent_offset = offset;
    row->reported_offset = row->requested_offset < offset ? row->requested_offset : offset;
    row->last_write_mono_ms = rmq_mono_ms();
    rmq_store(&row->state, (uint32_t)RMQ_HA_TRANSFER);
    return 0;
}

void rmq_ha_sender_disconnect(struct rmq_ha_sender *s, uint32_t peer)
{
    if (peer < RMQ_HA_PEERS_MAX && s->connections[peer].fd >= 0)
        rmq_ha_connection_close(s, peer, RMQ_HA_WHY_ORDERED, 0, 0);
}

int rmq_ha_sender_mark(struct rmq_ha_sender *s, uint32_t peer, int64_t broker_id, uint32_t level, uint32_t flags,
                       const char *room)
{
    if (peer >= RMQ_HA_PEERS_MAX || s->connections[peer].fd < 0)
        return -ENOTCONN;
    struct rmq_ha_peer *row = rmq_ha_row(s, peer);
    row->broker_id = broker_id;
    rmq_store(&row->level, level);
    rmq_store(&row->flags, flags);
    size_t length = strnlen(room, sizeof row->room - 1);
    memcpy(row->room, room, length);
    memset(row->room + length, 0, sizeof row->room - length);
    return 0;
}

void rmq_ha_sender_require(struct rmq_ha_sender *s, const struct rmq_ha_requirement *answer,
                           const struct rmq_ha_requirement *confirm)
{
    s->answer = *answer;
    s->confirm = *confirm;
    s->required = 1;
}

void rmq_ha_sender_state(struct rmq_ha_sender *s, uint32_t state, uint32_t in_sync_replicas)
{
    rmq_store(&s->marks->in_sync_replicas, in_sync_replicas);
    if (s->marks->replication_state == state)
        return;
    rmq_store(&s->marks->replication_state, state);
    RMQ_CRASH("ha-state");
    rmq_role_wake(s->plane, RMQ_ROLE_FLUSH);
}

/* --- life ---------------------------------------------------------------------------------------------- */

/* The peers of a predecessor are gone with it. */
static void forget_peers(struct rmq_ha_sender *s)
{
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++) {
        rmq_store(&rmq_ha_row(s, peer)->state, (uint32_t)RMQ_HA_FREE);
        s->connections[peer].fd = -1;
    }
}

struct rmq_ha_sender *rmq_ha_sender_open(struct rmq_plane *plane, int listen_fd, int *error)
{
    struct rmq_ha_sender *s = calloc(1, sizeof *s);
    if (!s) {
        *error = -ENOMEM;
        return NULL;
    }
    s->plane = plane;
    s->header = rmq_header(plane);
    s->marks = plane->watermarks;
    s->role = &s->header->roles[RMQ_ROLE_HA];
    s->settings = s->log.settings = &s->header->settings;
    s->listen_fd = listen_fd;
    /* A slave may report ends of whole records only: the largest one has to fit in. */
    uint64_t least = (uint64_t)s->settings->message_bytes_max + RECORD_OVERHEAD + s->settings->ha_transfer_bytes;
    s->window_bytes = s->settings->ha_window_bytes > least ? s->settings->ha_window_bytes : least;
    s->now_ms = s->second_ms = rmq_mono_ms();
    forget_peers(s);
    int flags = fcntl(listen_fd, F_GETFL);
    if (!s->settings->segment_bytes || !s->settings->ha_transfer_bytes)
        *error = -EINVAL;
    else
        *error = flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
    if (*error < 0) {
        rmq_ha_sender_close(s);
        return NULL;
    }
    return s;
}

void rmq_ha_sender_close(struct rmq_ha_sender *s)
{
    if (!s)
        return;
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++)
        if (s->connections[peer].fd >= 0)
            rmq_ha_connection_close(s, peer, RMQ_HA_WHY_ORDERED, 0, 0);
    rmq_ha_log_keep(&s->log, NULL, 0);
    free(s);
}
