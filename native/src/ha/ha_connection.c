#include "ha/ha_connection.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/bytes.h"
#include "plane/ring.h"

enum {
    FRAMES_PER_SEND = 16,        /* 512 KiB at once: enough that a call costs little, short enough to be fair */
    REPORTS_PER_READ = 512,
    BURST_PART = 50,             /* flow control hands out a fiftieth of a second at once */
    READ_AHEAD_BYTES = 4 << 20,
    PAGE = 4096,
};

/* --- life --------------------------------------------------------------------------------------------- */

static struct rmq_ha_event *add_event(struct rmq_ha_sender *s, uint32_t kind, uint32_t peer)
{
    const struct rmq_ha_peer *row = rmq_ha_row(s, peer);
    struct rmq_ha_event *event = &s->events[s->events_head++ % RMQ_HA_EVENTS_MAX];
    *event = (struct rmq_ha_event){.kind = kind, .peer = peer, .port = row->port, .host_bytes = row->host_bytes};
    memcpy(event->host, row->host, sizeof event->host);
    return event;
}

void rmq_ha_connection_open(struct rmq_ha_sender *s, uint32_t peer, int fd, const uint8_t *host, uint32_t host_bytes,
                            uint32_t port)
{
    struct rmq_ha_peer *row = rmq_ha_row(s, peer);
    struct rmq_ha_peer fresh = {
        .connection = row->connection + 1,
        .level = RMQ_HA_LEVEL_CACHED,
        .broker_id = -1,
        .host_bytes = host_bytes,
        .port = port,
    };
    memcpy(fresh.host, host, host_bytes);
    fresh.connected_mono_ms = fresh.last_read_mono_ms = fresh.last_write_mono_ms = s->now_ms;
    *row = fresh;
    s->connections[peer] = (struct rmq_ha_connection){.fd = fd, .tokens_at_ns = rmq_mono_ns()};
    rmq_store(&row->state, (uint32_t)RMQ_HA_READY);
    s->role->counters[RMQ_HA_CONNECTIONS]++;
    add_event(s, RMQ_HA_EVENT_CONNECTED, peer);
}

void rmq_ha_connection_refuse(struct rmq_ha_sender *s, int fd, const uint8_t *host, uint32_t host_bytes, uint32_t port)
{
    s->role->counters[RMQ_HA_REFUSED]++;
    close(fd);
    struct rmq_ha_event *event = &s->events[s->events_head++ % RMQ_HA_EVENTS_MAX];
    *event = (struct rmq_ha_event){.kind = RMQ_HA_EVENT_FULL, .host_bytes = host_bytes, .port = port};
    memcpy(event->host, host, host_bytes);
}

void rmq_ha_connection_close(struct rmq_ha_sender *s, uint32_t peer, uint32_t why, int error, uint64_t offset)
{
    struct rmq_ha_connection *c = &s->connections[peer];
    rmq_store(&rmq_ha_row(s, peer)->state, (uint32_t)RMQ_HA_FREE);
    close(c->fd);
    c->fd = -1;
    if (why == RMQ_HA_WHY_JUNK || why == RMQ_HA_WHY_BACKWARD || why == RMQ_HA_WHY_BEYOND)
        s->role->counters[RMQ_HA_FALSE_REPORTS]++;
    struct rmq_ha_event *event = add_event(s, RMQ_HA_EVENT_CLOSED, peer);
    event->why = why;
    event->error = error;
    event->offset = offset;
}

/* --- reports ------------------------------------------------------------------------------------------- */

/* 0, or the lie that this report is. */
static uint32_t take_report(struct rmq_ha_sender *s, uint32_t peer, uint64_t offset)
{
    struct rmq_ha_peer *row = rmq_ha_row(s, peer);
    struct rmq_ha_connection *c = &s->connections[peer];
    s->role->counters[RMQ_HA_REPORTS]++;
    if (offset > INT64_MAX)
        return RMQ_HA_WHY_JUNK;
    if (row->state == RMQ_HA_TRANSFER) {
        if (offset < row->reported_offset)
            return RMQ_HA_WHY_BACKWARD;
        if (offset > row->sent_offset)
            return RMQ_HA_WHY_BEYOND;
        if (offset > row->reported_offset)
            rmq_store_relaxed(&row->silent_since_mono_ms, offset < row->sent_offset ? s->now_ms : 0);
        rmq_store_relaxed(&row->reported_offset, offset);
        return 0;
    }
    if (c->asked) { /* no byte was sent: it can only say the same once more */
        if (offset == row->requested_offset)
            return 0;
        return offset < row->requested_offset ? RMQ_HA_WHY_BACKWARD : RMQ_HA_WHY_BEYOND;
    }
    c->asked = 1;
    rmq_store_relaxed(&row->requested_offset, offset);
    add_event(s, RMQ_HA_EVENT_FIRST_REPORT, peer)->offset = offset;
    return 0;
}

void rmq_ha_connection_receive(struct rmq_ha_sender *s, uint32_t peer)
{
    struct rmq_ha_connection *c = &s->connections[peer];
    uint8_t bytes[8 * REPORTS_PER_READ + 8];
    memcpy(bytes, c->report, c->report_bytes);
    ssize_t n = recv(c->fd, bytes + c->report_bytes, sizeof bytes - sizeof c->report, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        rmq_ha_connection_close(s, peer, RMQ_HA_WHY_PEER, n ? errno : 0, 0);
        return;
    }
    rmq_store_relaxed(&rmq_ha_row(s, peer)->last_read_mono_ms, s->now_ms);
    size_t length = c->report_bytes + (size_t)n, at = 0;
    for (; at + 8 <= length; at += 8) {
        uint64_t offset = rmq_get64(bytes + at);
        uint32_t lie = take_report(s, peer, offset);
        if (lie) {
            rmq_ha_connection_close(s, peer, lie, 0, offset);
            return;
        }
    }
    c->report_bytes = (uint32_t)(length - at);
    memcpy(c->report, bytes + at, c->report_bytes);
    RMQ_CRASH("ha-report");
}

/* --- sending ------------------------------------------------------------------------------------------- */

/* The end of sending for now: the append position, or the end of the window. */
static uint64_t send_limit(struct rmq_ha_sender *s, uint32_t peer)
{
    const struct rmq_ha_peer *row = rmq_ha_row(s, peer);
    uint64_t base = row->reported_offset > row->start_offset ? row->reported_offset : row->start_offset;
    uint64_t end = base + s->window_bytes;
    return end < s->append_offset ? end : s->append_offset;
}

static void refill_tokens(struct rmq_ha_sender *s, struct rmq_ha_connection *c)
{
    int64_t rate = (int64_t)s->settings->ha_bytes_per_second, burst = rate / BURST_PART + 1;
    int64_t now_ns = rmq_mono_ns(), span_ns = now_ns - c->tokens_at_ns;
    if (span_ns > 1000000000)
        span_ns = 1000000000;
    int64_t more = (int64_t)((__int128)span_ns * rate / 1000000000);
    if (!more)
        return; /* the time goes on counting */
    c->tokens_at_ns = now_ns;
    c->tokens = c->tokens + more < burst ? c->tokens + more : burst;
}

int64_t rmq_ha_connection_held_ns(struct rmq_ha_sender *s, uint32_t peer)
{
    struct rmq_ha_connection *c = &s->connections[peer];
    int64_t rate = (int64_t)s->settings->ha_bytes_per_second;
    if (!rate || c->blocked || c->tokens > 0 || rmq_ha_row(s, peer)->state != RMQ_HA_TRANSFER)
        return -1;
    int64_t wait_ns = (1 - c->tokens) * 1000000000 / rate;
    return c->partial.done || c->next_offset < send_limit(s, peer) ? wait_ns + 1 : -1;
}

int rmq_ha_connection_has_work(struct rmq_ha_sender *s, uint32_t peer)
{
    struct rmq_ha_connection *c = &s->connections[peer];
    if (rmq_ha_row(s, peer)->state != RMQ_HA_TRANSFER || c->blocked)
        return 0;
    if (s->settings->ha_bytes_per_second && c->tokens <= 0)
        return 0;
    return c->partial.done || c->next_offset < send_limit(s, peer);
}

/* Credits the bytes that the socket has taken. A frame that it has taken in part is kept. */
static void credit(struct rmq_ha_sender *s, uint32_t peer, struct rmq_ha_frame *frames, int count, uint64_t taken)
{
    struct rmq_ha_connection *c = &s->connections[peer];
    struct rmq_ha_peer *row = rmq_ha_row(s, peer);
    uint64_t *counters = s->role->counters, sent = row->sent_offset;
    c->second_bytes += taken;
    c->tokens -= (int64_t)taken;
    counters[RMQ_HA_SENT_BYTES] += taken;
    rmq_store_relaxed(&row->sent_bytes, row->sent_bytes + taken);
    rmq_store_relaxed(&row->last_write_mono_ms, s->now_ms);
    c->partial.done = 0;
    for (int i = 0; i < count && taken; i++) {
        uint32_t left = rmq_ha_frame_left(&frames[i]), part = taken < left ? (uint32_t)taken : left;
        frames[i].done += part;
        taken -= part;
        sent = rmq_ha_frame_sent(&frames[i]);
        c->next_offset = frames[i].offset + frames[i].length;
        if (part < left) {
            c->partial = frames[i];
            break;
        }
        counters[frames[i].length ? RMQ_HA_TRANSFERS : RMQ_HA_HEARTBEATS]++;
        rmq_store_relaxed(&row->sent_transfers, row->sent_transfers + 1);
    }
    if (sent > row->sent_offset && !row->silent_since_mono_ms)
        rmq_store_relaxed(&row->silent_since_mono_ms, s->now_ms);
    rmq_store_relaxed(&row->sent_offset, sent);
}

/* One system call for all frames, which lie in one log file. -1 = the connection is closed now. */
static int64_t send_frames(struct rmq_ha_sender *s, uint32_t peer, struct rmq_ha_frame *frames, int count,
                           const char *body)
{
    struct rmq_ha_connection *c = &s->connections[peer];
    uint8_t headers[FRAMES_PER_SEND + 1][RMQ_HA_HEADER_BYTES];
    struct iovec parts[2 * (FRAMES_PER_SEND + 1)];
    size_t used = 0, wanted = 0;
    for (int i = 0; i < count; i++) {
        uint32_t done = frames[i].done, in_body = done > RMQ_HA_HEADER_BYTES ? done - RMQ_HA_HEADER_BYTES : 0;
        wanted += rmq_ha_frame_left(&frames[i]);
        rmq_ha_frame_header(&frames[i], headers[i]);
        if (done < RMQ_HA_HEADER_BYTES)
            parts[used++] = (struct iovec){headers[i] + done, RMQ_HA_HEADER_BYTES - done};
        if (frames[i].length > in_body)
            parts[used++] = (struct iovec){(char *)body + (frames[i].offset - frames[0].offset) + in_body,
                                           frames[i].length - in_body};
    }
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = used};
    ssize_t n = sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        rmq_ha_connection_close(s, peer, RMQ_HA_WHY_PEER, errno, 0);
        return -1;
    }
    c->blocked = n < (ssize_t)wanted;
    if (n > 0)
        credit(s, peer, frames, count, (uint64_t)n);
    RMQ_CRASH("ha-sent");
    return n > 0 ? n : 0;
}

/* Has the kernel read the next bytes for a slave that is far behind, so that no send waits for the disk. */
static void read_ahead(struct rmq_ha_sender *s, struct rmq_ha_connection *c, const char *body, uint64_t at)
{
    uint64_t file_end = at - at % s->settings->segment_bytes + s->settings->segment_bytes;
    if (s->append_offset - at < READ_AHEAD_BYTES || c->advised > at + READ_AHEAD_BYTES / 2)
        return;
    uint64_t length = file_end - at < READ_AHEAD_BYTES ? file_end - at : READ_AHEAD_BYTES;
    uintptr_t page = (uintptr_t)body & ~(uintptr_t)(PAGE - 1);
    madvise((void *)page, length + ((uintptr_t)body - page), MADV_WILLNEED); /* a wish */
    c->advised = at + length;
}

uint32_t rmq_ha_offsets_in_use(const struct rmq_ha_sender *s, uint64_t *out)
{
    uint32_t count = 0;
    for (uint32_t peer = 0; peer < RMQ_HA_PEERS_MAX; peer++) {
        const struct rmq_ha_connection *c = &s->connections[peer];
        if (s->header->replication.peers[peer].state == RMQ_HA_TRANSFER)
            out[count++] = c->partial.done ? c->partial.offset : c->next_offset;
    }
    return count;
}

int64_t rmq_ha_connection_send(struct rmq_ha_sender *s, uint32_t peer)
{
    struct rmq_ha_connection *c = &s->connections[peer];
    struct rmq_ha_frame frames[FRAMES_PER_SEND + 1];
    uint64_t in_use[RMQ_HA_PEERS_MAX];
    int count = 0, error = 0;
    if (s->settings->ha_bytes_per_second)
        refill_tokens(s, c);
    if (!rmq_ha_connection_has_work(s, peer))
        return 0;
    struct rmq_ha_cut cut = {
        .from = c->next_offset,
        .to = send_limit(s, peer),
        .budget_bytes = s->settings->ha_bytes_per_second ? c->tokens : INT64_MAX,
        .segment_bytes = s->settings->segment_bytes,
        .transfer_bytes = s->settings->ha_transfer_bytes,
    };
    if (c->partial.done) {
        frames[count++] = c->partial;
        cut.budget_bytes -= rmq_ha_frame_left(&c->partial);
    }
    if (!count || cut.from % cut.segment_bytes) /* a frame that ends its file goes alone: one mapping per call */
        count += rmq_ha_frames_cut(&cut, frames + count, FRAMES_PER_SEND);
    const char *body = NULL;
    if (frames[0].length || count > 1) {
        body = rmq_ha_log_at(&s->log, frames[0].offset, in_use, rmq_ha_offsets_in_use(s, in_use), &error);
        if (!body) {
            rmq_ha_connection_close(s, peer, RMQ_HA_WHY_LOG, -error, frames[0].offset);
            return 0;
        }
        read_ahead(s, c, body, frames[0].offset);
    }
    int64_t sent = send_frames(s, peer, frames, count, body);
    return sent > 0 ? sent : 0;
}

/* --- time ---------------------------------------------------------------------------------------------- */

void rmq_ha_connection_tick(struct rmq_ha_sender *s, uint32_t peer)
{
    struct rmq_ha_connection *c = &s->connections[peer];
    struct rmq_ha_peer *row = rmq_ha_row(s, peer);
    if (s->now_ms - row->last_read_mono_ms > s->settings->ha_housekeeping_ms) {
        rmq_ha_connection_close(s, peer, RMQ_HA_WHY_SILENT, 0, 0);
        return;
    }
    if (row->state != RMQ_HA_TRANSFER || c->blocked || c->partial.done ||
        s->now_ms - row->last_write_mono_ms <= s->settings->ha_heartbeat_ms)
        return;
    struct rmq_ha_frame heartbeat = {.offset = c->next_offset};
    send_frames(s, peer, &heartbeat, 1, NULL);
}
