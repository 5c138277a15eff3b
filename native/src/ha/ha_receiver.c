#include "ha/ha_receiver.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "codec/record.h"
#include "log/append_window.h"
#include "plane/journal.h"
#include "plane/ring.h"

enum {
    HEADER_BYTES = 12,
    REPORT_BYTES = 8,
    REPORT_EVERY_BYTES = 256 << 10, /* while the stream never pauses */
    AHEAD_BYTES = 16 << 10,         /* behind a header, where the stream comes in small pieces */
    PARK_MS = 100,
    SEGMENT_POLL_MS = 5,
    ACCEPT_PAUSE_MS = 100,          /* while no descriptor is free */
    ACCEPTS_MAX = 16,               /* in a row, so that the stream goes on */
    RATE_MS = 1000,
    RECORD_HEAD_BYTES = 8,          /* size and magic: enough to tell junk */
    ZEROS_BYTES = 64 << 10,
};

struct rmq_receiver {
    struct rmq_plane *plane;
    struct rmq_plane_header *header;
    struct rmq_watermarks *marks;
    struct rmq_role *role;
    struct rmq_ha_link *link;
    struct rmq_append_window window;
    uint64_t segment_bytes;
    uint64_t append;               /* end of the last whole record */
    uint64_t received;             /* end of the received bytes; the stream's next byte belongs here */
    uint64_t store_time_ms;        /* of the newest record */

    int listen_fd;                 /* -1 = none */
    int64_t accept_again_ms;
    int fd;                        /* -1 = not connected */
    uint8_t head[HEADER_BYTES];
    uint32_t head_have;
    uint32_t body_left;            /* of the transfer under way */
    int in_stream;                 /* the first transfer has come */
    int small;                     /* the last transfer was */
    int needs_segment;             /* the next file must be there before more is received */
    int drained;                   /* the last call brought less than there was room for */

    uint8_t report[REPORT_BYTES];
    uint32_t report_left;          /* of `report`, not sent yet */
    int reporting;                 /* the first report is out */
    uint64_t reported;
    int64_t last_read_ms, last_write_ms;
    int64_t rate_since_ms;
    uint64_t rate_from_bytes;

    uint32_t reason;
    int32_t error;
    uint64_t reason_offset;
};

/* --- wiping ----------------------------------------------------------------------------------------------- */

/* By write and not through the mapping: an error is a code there. */
static int zero_file(struct rmq_receiver *r, uint64_t start, uint64_t from, uint64_t to)
{
    static const uint8_t zeros[ZEROS_BYTES];
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%020" PRIu64, r->header->settings.commit_log_path, start), rc = 0;
    if (n < 0 || (size_t)n >= sizeof path)
        return -ENAMETOOLONG;
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while (from < to && !rc) {
        size_t bytes = to - from < sizeof zeros ? (size_t)(to - from) : sizeof zeros;
        ssize_t put = pwrite(fd, zeros, bytes, (off_t)(from - start));
        rc = put < 0 ? -errno : 0;
        from += put < 0 ? 0 : (uint64_t)put;
    }
    close(fd);
    return rc;
}

/* Wipes the bytes behind the last whole record, so that no process takes them for one. 0 or -errno. */
static int wipe(struct rmq_receiver *r)
{
    uint64_t *intent_high = &r->header->ports.journal.intent_high, from = r->append, high = rmq_load(intent_high);
    RMQ_INVARIANT(r->received <= high, r->received, high, from);
    r->received = r->append;
    while (from < high) {
        uint64_t start = from - from % r->segment_bytes, end = start + r->segment_bytes;
        uint64_t to = high < end ? high : end;
        int rc = zero_file(r, start, from, to);
        if (rc < 0)
            return rc;
        r->role->counters[RMQ_RECEIVE_WIPED_BYTES] += to - from;
        from = to;
    }
    RMQ_CRASH("receive-wiped");
    rmq_store(intent_high, r->append);
    return 0;
}

/* --- life ------------------------------------------------------------------------------------------------- */

/* Copies the positions of the ports into the entry that the next generation takes. write stores them there for each batch, and a
 * receiver changes none of them: so write finds its own when this broker becomes the master. */
static void keep_ports(struct rmq_journal *journal, uint64_t generation)
{
    const struct rmq_journal_entry *from = &journal->entry[generation & 1];
    struct rmq_journal_entry *to = &journal->entry[(generation + 1) & 1];
    __atomic_thread_fence(__ATOMIC_RELEASE); /* journal_of (port.c) may read the entry: it has to see that its number is old */
    to->parked_head = from->parked_head;
    to->appended_messages = from->appended_messages;
    RMQ_CRASH("receive-parked-kept");
    memcpy(to->port, from->port, sizeof to->port);
    RMQ_CRASH("receive-ports-kept");
}

static int open_parts(struct rmq_receiver *r)
{
    struct rmq_journal *journal = &r->header->ports.journal;
    uint64_t generation = rmq_load(&journal->generation), entered = journal->entry[generation & 1].generation;
    RMQ_INVARIANT(!generation || entered == generation, entered, generation);
    r->segment_bytes = r->header->settings.segment_bytes;
    if (!r->segment_bytes)
        return -EINVAL;
    r->append = rmq_load(&r->marks->append_offset);
    if (generation && journal->entry[generation & 1].append_offset > r->append) { /* died between the two stores */
        r->append = journal->entry[generation & 1].append_offset;
        rmq_store(&r->marks->append_offset, r->append);
    }
    if (generation)
        r->store_time_ms = journal->entry[generation & 1].store_time_ms;
    keep_ports(journal, generation);
    memset(r->link, 0, sizeof *r->link);
    int rc = wipe(r);
    if (rc >= 0)
        rc = rmq_append_window_open(&r->window, &r->header->settings, &r->header->roles[RMQ_ROLE_FLUSH], r->append);
    return rc;
}

struct rmq_receiver *rmq_receiver_open(struct rmq_plane *plane, int *error)
{
    struct rmq_receiver *r = calloc(1, sizeof *r);
    if (!r) {
        *error = -ENOMEM;
        return NULL;
    }
    r->plane = plane;
    r->header = rmq_header(plane);
    r->marks = plane->watermarks;
    r->role = &r->header->roles[RMQ_ROLE_HA];
    r->link = &r->header->replication.link;
    r->fd = r->listen_fd = -1;
    RMQ_INVARIANT(rmq_journal_is_owned(plane, RMQ_ROLE_HA), r->header->ports.journal.owner);
    *error = open_parts(r);
    if (*error < 0) {
        rmq_receiver_close(r);
        return NULL;
    }
    return r;
}

int rmq_receiver_listen(struct rmq_receiver *r, int listen_fd)
{
    int flags = fcntl(listen_fd, F_GETFL);
    if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    r->listen_fd = listen_fd;
    return 0;
}

static void close_arrivals(struct rmq_receiver *r)
{
    if (r->listen_fd < 0 || rmq_mono_ms() < r->accept_again_ms)
        return;
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                r->accept_again_ms = rmq_mono_ms() + ACCEPT_PAUSE_MS;
            return;
        }
        close(fd);
    }
}

static int refuse(struct rmq_receiver *r, uint32_t reason, uint64_t offset, int error)
{
    r->reason = reason;
    r->reason_offset = offset;
    r->error = error;
    return 0;
}

void rmq_receiver_detach(struct rmq_receiver *r)
{
    if (r->fd < 0)
        return;
    close(r->fd);
    r->fd = -1;
    rmq_store(&r->link->state, RMQ_HA_FREE);
    rmq_store(&r->link->bytes_per_second, 0);
    int rc = wipe(r);
    if (rc < 0)
        refuse(r, RMQ_LINK_STORE, r->append, -rc); /* intent_high still bounds the bytes to wipe */
}

void rmq_receiver_attach(struct rmq_receiver *r, int fd)
{
    rmq_receiver_detach(r);
    r->fd = fd;
    r->head_have = r->body_left = r->report_left = 0;
    r->in_stream = r->reporting = r->needs_segment = 0;
    r->reported = 0;
    r->reason = 0;
    r->last_read_ms = r->last_write_ms = rmq_mono_ms();
    rmq_store(&r->link->last_read_mono_ms, r->last_read_ms);
    rmq_store(&r->link->state, RMQ_HA_READY);
}

void rmq_receiver_close(struct rmq_receiver *r)
{
    if (!r)
        return;
    rmq_receiver_detach(r);
    if (r->window.started)
        rmq_append_window_close(&r->window);
    free(r);
}

void rmq_receiver_state(const struct rmq_receiver *r, struct rmq_receiver_state *out)
{
    *out = (struct rmq_receiver_state){
        .received_offset = r->received,
        .offset = r->reason_offset,
        .reason = r->reason,
        .error = r->error,
        .connected = r->fd >= 0,
        .waits_for_segment = (uint32_t)r->needs_segment,
    };
}

void rmq_receiver_limit(struct rmq_receiver *r, uint64_t confirm_limit)
{
    if (rmq_load(&r->marks->confirm_limit) == confirm_limit)
        return;
    rmq_store(&r->marks->confirm_limit, confirm_limit);
    rmq_role_wake(r->plane, RMQ_ROLE_DISPATCH);
}

/* --- records ---------------------------------------------------------------------------------------------- */

/* The blank at `append`. Its size is the rest of the file. 1 = complete, 0 = more bytes have to come, or refused. */
static int pass_blank(struct rmq_receiver *r, uint32_t size, uint64_t file_end)
{
    if (size != file_end - r->append)
        return refuse(r, RMQ_LINK_RECORD, r->append, 0);
    if (r->received < file_end)
        return 0;
    if (!rmq_append_window_at(&r->window, file_end)) {
        r->needs_segment = 1;
        return 0;
    }
    r->append = file_end;
    return 1;
}

/* The record at `append`; as pass_blank. */
static int pass_record(struct rmq_receiver *r)
{
    uint64_t file_end = r->append - r->append % r->segment_bytes + r->segment_bytes, left = r->received - r->append;
    const uint8_t *at = (const uint8_t *)rmq_append_window_at(&r->window, r->append);
    struct rmq_record_view view;
    if (left < RECORD_HEAD_BYTES)
        return 0;
    uint32_t size = rmq_get32(at), magic = rmq_get32(at + 4);
    if (magic == RMQ_MAGIC_BLANK)
        return pass_blank(r, size, file_end);
    if ((magic != RMQ_MAGIC_V1 && magic != RMQ_MAGIC_V2) || size < RMQ_RECORD_FIXED_BYTES || size > file_end - r->append)
        return refuse(r, RMQ_LINK_RECORD, r->append, 0);
    if (left < size)
        return 0;
    if (rmq_record_parse(at, size, 0, &view) != RMQ_RECORD_OK)
        return refuse(r, RMQ_LINK_RECORD, r->append, 0); /* impossible values pass: the stream has to go on (record_values.h) */
    if (view.store_time_ms > (int64_t)r->store_time_ms)
        r->store_time_ms = (uint64_t)view.store_time_ms;
    r->append += size;
    r->role->counters[RMQ_RECEIVE_RECORDS]++;
    return 1;
}

/* Moves append_offset over the whole records. The journal's entry gives flush their store time. */
static void publish(struct rmq_receiver *r)
{
    uint64_t before = r->marks->append_offset;
    RMQ_INVARIANT(before == r->append, before, r->append);
    r->needs_segment = 0;
    while (r->append < r->received && pass_record(r))
        ;
    rmq_append_window_want_next(&r->window, r->needs_segment);
    if (r->append == before)
        return;
    struct rmq_journal *journal = &r->header->ports.journal;
    uint64_t generation = journal->generation + 1;
    struct rmq_journal_entry *entry = &journal->entry[generation & 1];
    __atomic_thread_fence(__ATOMIC_RELEASE); /* as above */
    entry->generation = generation;
    entry->append_offset = r->append;
    entry->store_time_ms = r->store_time_ms;
    rmq_store(&journal->generation, generation);
    RMQ_CRASH("receive-journal");
    rmq_store(&r->marks->append_offset, r->append);
    RMQ_CRASH("receive-append-offset");
    int rolled = before / r->segment_bytes != r->append / r->segment_bytes;
    r->role->counters[RMQ_RECEIVE_ROLLS] += (uint64_t)rolled;
    if (rolled || r->header->settings.sync_flush)
        rmq_role_wake(r->plane, RMQ_ROLE_FLUSH);
    if (!(r->marks->confirm_policy & RMQ_CONFIRM_FLUSHED))
        rmq_role_wake(r->plane, RMQ_ROLE_DISPATCH);
    rmq_append_window_move(&r->window, r->append);
}

/* --- stream ----------------------------------------------------------------------------------------------- */

/* A header is complete: where its body goes has to be where the log ends. */
static void begin_transfer(struct rmq_receiver *r)
{
    uint64_t offset = rmq_get64(r->head), room = r->segment_bytes - r->received % r->segment_bytes;
    uint32_t size = rmq_get32(r->head + 8);
    r->head_have = 0;
    if (offset != r->received) {
        refuse(r, r->in_stream ? RMQ_LINK_GAP : RMQ_LINK_STARTS_AT, offset, 0);
    } else if (size > RMQ_RECEIVE_TRANSFER_MAX) {
        refuse(r, RMQ_LINK_SIZE, offset, 0);
    } else if (size > room) {
        refuse(r, RMQ_LINK_FILE_END, offset, 0);
    } else {
        r->body_left = size;
        r->small = size <= AHEAD_BYTES;
        r->in_stream = 1;
        r->role->counters[RMQ_RECEIVE_TRANSFERS] += size > 0;
        rmq_store(&r->link->master_offset, offset + size);
    }
}

/* The target and the limit of the next bytes of the stream: the rest of a body with a header behind it, or a header and, while
 * the stream comes in small pieces, its probable body. */
static int aim(struct rmq_receiver *r, struct iovec parts[2])
{
    char *at = rmq_append_window_at(&r->window, r->received);
    uint64_t room = r->segment_bytes - r->received % r->segment_bytes;
    struct iovec head = {.iov_base = r->head + r->head_have, .iov_len = HEADER_BYTES - r->head_have};
    struct iovec body = {.iov_base = at, .iov_len = r->body_left};
    parts[0] = r->body_left ? body : head;
    parts[1] = r->body_left ? head : body;
    if (!r->body_left)
        parts[1].iov_len = !at || !r->drained || !r->small ? 0 : room < AHEAD_BYTES ? room : AHEAD_BYTES;
    uint64_t high = r->received + (r->body_left ? r->body_left : parts[1].iov_len);
    if (r->body_left && !at)
        return 0;
    if (high > rmq_load_relaxed(&r->header->ports.journal.intent_high))
        rmq_store(&r->header->ports.journal.intent_high, high);
    RMQ_CRASH("receive-intent");
    return 1;
}

/* One call of the system. Number of bytes, 0 = none now. */
static size_t take_bytes(struct rmq_receiver *r)
{
    struct iovec parts[2];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (!aim(r, parts)) {
        r->needs_segment = 1;
        rmq_append_window_want_next(&r->window, 1);
        return 0;
    }
    ssize_t n = recvmsg(r->fd, &message, MSG_DONTWAIT);
    r->drained = n < (ssize_t)(parts[0].iov_len + parts[1].iov_len);
    if (n > 0)
        return (size_t)n;
    if (!n)
        refuse(r, RMQ_LINK_EOF, r->received, 0);
    else if (errno == EFAULT)
        refuse(r, RMQ_LINK_STORE, r->received, EFAULT);
    else if (errno != EAGAIN && errno != EINTR)
        refuse(r, RMQ_LINK_ERROR, r->received, errno);
    return 0;
}

static void add_body(struct rmq_receiver *r, uint32_t bytes)
{
    r->received += bytes;
    r->body_left -= bytes;
    if (bytes)
        publish(r);
}

/* Begins the transfer whose header is complete. `ahead` bytes behind that header are in the log already: the transfer's body, then
 * perhaps the next header with its body. The loop takes that header out of the log, moves its body to its place, and goes on. */
static void begin_transfers(struct rmq_receiver *r, uint32_t ahead)
{
    while (!r->reason && !r->body_left && r->head_have == HEADER_BYTES) {
        begin_transfer(r);
        uint32_t body = ahead < r->body_left ? ahead : r->body_left;
        add_body(r, body);
        ahead -= body;
        if (r->reason || !ahead)
            return;
        char *at = rmq_append_window_at(&r->window, r->received);
        r->head_have = ahead < HEADER_BYTES ? ahead : HEADER_BYTES;
        memcpy(r->head, at, r->head_have);
        ahead -= r->head_have;
        memmove(at, at + r->head_have, ahead);
        memset(at + ahead, 0, r->head_have); /* a log ends in zeros */
    }
}

/* Receives once and publishes. 1 = there may be more at once. */
static int receive(struct rmq_receiver *r, int64_t now_ms)
{
    uint32_t n = (uint32_t)take_bytes(r);
    if (!n)
        return 0;
    RMQ_CRASH("receive-bytes");
    r->role->counters[RMQ_RECEIVE_BYTES] += n;
    rmq_store(&r->link->received_bytes, r->link->received_bytes + n);
    r->last_read_ms = now_ms;
    rmq_store(&r->link->last_read_mono_ms, now_ms);
    uint32_t body = n < r->body_left ? n : r->body_left, left = n - body;
    uint32_t head = left < HEADER_BYTES - r->head_have ? left : HEADER_BYTES - r->head_have;
    add_body(r, body);
    r->head_have += head;
    begin_transfers(r, left - head);
    return !r->reason && !r->needs_segment && !r->drained;
}

/* --- reports ---------------------------------------------------------------------------------------------- */

/* The offset that this slave may report. */
static uint64_t reportable(const struct rmq_receiver *r)
{
    uint64_t flushed = rmq_load(&r->marks->flushed_offset);
    RMQ_INVARIANT(flushed <= r->append, flushed, r->append);
    return r->header->settings.sync_flush && flushed < r->append ? flushed : r->append;
}

static void send_report(struct rmq_receiver *r)
{
    while (r->report_left) {
        ssize_t n = send(r->fd, r->report + REPORT_BYTES - r->report_left, r->report_left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN && errno != EINTR)
                refuse(r, RMQ_LINK_ERROR, r->received, errno);
            return;
        }
        r->report_left -= (uint32_t)n;
    }
    r->last_write_ms = rmq_mono_ms();
    rmq_store(&r->link->last_write_mono_ms, r->last_write_ms);
    rmq_store(&r->link->reported_offset, r->reported);
    r->role->counters[RMQ_RECEIVE_REPORTS]++;
}

/* The stream begins where the first report says: it waits until everything appended may be reported. */
static int report_is_due(const struct rmq_receiver *r, uint64_t offset, int64_t now_ms)
{
    if (!r->reporting)
        return offset == r->append;
    if (offset > r->reported && (r->drained || r->needs_segment || offset - r->reported >= REPORT_EVERY_BYTES))
        return 1;
    return now_ms - r->last_write_ms >= r->header->settings.ha_heartbeat_ms;
}

static void report(struct rmq_receiver *r, int64_t now_ms)
{
    uint64_t offset = reportable(r);
    if (r->report_left) { /* half a report is out: its rest first, whatever is true by now */
        send_report(r);
        return;
    }
    if (!report_is_due(r, offset, now_ms))
        return;
    if (!r->reporting)
        rmq_store(&r->link->state, RMQ_HA_TRANSFER);
    r->reporting = 1;
    r->reported = offset;
    rmq_put64(r->report, offset);
    r->report_left = REPORT_BYTES;
    send_report(r);
}

/* --- loop ------------------------------------------------------------------------------------------------- */

static void watch(struct rmq_receiver *r, int64_t now_ms)
{
    uint32_t fault = rmq_load(&r->marks->store_fault);
    if (fault)
        refuse(r, RMQ_LINK_STORE, r->append, r->marks->store_fault_errno);
    else if (now_ms - r->last_read_ms > r->header->settings.ha_housekeeping_ms)
        refuse(r, RMQ_LINK_SILENT, r->received, 0);
    if (now_ms - r->rate_since_ms < RATE_MS)
        return;
    uint64_t bytes = r->link->received_bytes;
    rmq_store(&r->link->bytes_per_second, (bytes - r->rate_from_bytes) * 1000 / (uint64_t)(now_ms - r->rate_since_ms));
    r->rate_since_ms = now_ms;
    r->rate_from_bytes = bytes;
}

/* One turn of a connection. 1 = there may be more at once. */
static int serve(struct rmq_receiver *r)
{
    int64_t now_ms = rmq_mono_ms();
    watch(r, now_ms);
    if (r->reason)
        return 0;
    int waited = r->needs_segment;
    if (waited) {
        publish(r);
        r->last_read_ms = now_ms; /* while a file is missing, the silence is not the master's */
        rmq_store(&r->link->last_read_mono_ms, now_ms);
    }
    int more = !r->reason && receive(r, now_ms);
    r->role->counters[RMQ_RECEIVE_SEGMENT_WAITS] += r->needs_segment && !waited;
    if (!r->reason)
        report(r, now_ms);
    return more && !r->reason;
}

static int has_news(struct rmq_receiver *r)
{
    if (rmq_ring_used(&r->header->replication.commands) || rmq_load(&r->marks->stop_requested) >= RMQ_STOP_WRITE)
        return 1;
    if (rmq_journal_role(r->marks) != RMQ_ROLE_HA)
        return 1;
    return r->fd >= 0 && r->reporting && !r->report_left && reportable(r) > r->reported;
}

static void park(struct rmq_receiver *r, int64_t left_ns)
{
    struct rmq_bell *bell = &r->role->bell;
    int event_fd = r->plane->event_fds[RMQ_ROLE_HA];
    int64_t left_ms = left_ns / 1000000 + 1, limit_ms = r->needs_segment ? SEGMENT_POLL_MS : PARK_MS;
    short events = (short)(POLLIN | (r->report_left ? POLLOUT : 0));
    int listen_fd = rmq_mono_ms() < r->accept_again_ms ? -1 : r->listen_fd; /* poll skips -1 */
    struct pollfd polled[3] = {
        {.fd = event_fd, .events = POLLIN},
        {.fd = listen_fd, .events = POLLIN},
        {.fd = r->needs_segment ? -1 : r->fd, .events = events},
    };
    rmq_bell_arm(bell);
    if (!has_news(r)) {
        r->role->counters[RMQ_RECEIVE_SLEEPS]++;
        if (poll(polled, 3, (int)(left_ms < limit_ms ? left_ms : limit_ms)) > 0 && polled[0].revents) {
            uint64_t rings; /* as rmq_bell_wait, with the socket beside the bell */
            ssize_t n = read(event_fd, &rings, sizeof rings);
            (void)n;
        }
    }
    rmq_bell_disarm(bell);
}

int rmq_receiver_run(struct rmq_receiver *r, int64_t budget_ns)
{
    int64_t end_ns = rmq_mono_ns() + budget_ns;
    close_arrivals(r); /* also while a stream never pauses */
    for (;;) {
        rmq_store_relaxed(&r->role->progress, r->role->progress + 1);
        int more = r->fd >= 0 && serve(r);
        if (r->fd >= 0 && r->reason) {
            rmq_receiver_detach(r);
            return RMQ_RUN_LINK;
        }
        if (rmq_load(&r->marks->stop_requested) >= RMQ_STOP_WRITE)
            return RMQ_RUN_STOPPED;
        if (rmq_journal_role(r->marks) != RMQ_ROLE_HA)
            return RMQ_RUN_YIELDED;
        int64_t left_ns = end_ns - rmq_mono_ns();
        if (left_ns <= 0 || rmq_ring_used(&r->header->replication.commands))
            return RMQ_RUN_BUDGET;
        if (!more) {
            park(r, left_ns);
            close_arrivals(r);
        }
    }
}
