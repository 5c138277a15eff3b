#include "engine/epoll.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/read_pool.h"

enum {
    REPORTS = 256,        /* of one epoll_wait */
    ACCEPTS_AT_ONCE = 64, /* of one listener in a take: sockets that are connected come to their turn */
    READY_LOOKS = 16,     /* one of so many calls of `ready` asks the kernel: a spinning caller pauses some 40 ns between two */
    RECEIVES_MANY = 1,
    RECEIVES_ONCE = 2,
    ROOM_OF_REPORT = 2,   /* events that one report leads to at most: a send's and a receive's */
};

#define NO_FD UINT32_MAX

/* The operations that wait for one descriptor, at the index of its number. All zero: none. */
struct watched {
    uint64_t receive_tag, send_tag, accept_tag;
    const struct msghdr *message; /* waits for room */
    uint32_t generation;          /* of the owner of the number: a report of a former one finds nothing */
    uint32_t interest;            /* EPOLLIN, EPOLLOUT that the kernel watches */
    uint32_t next_ended;          /* the list of descriptors whose operations have ended: of the next one, NO_FD at the end */
    int32_t sent_result;
    uint8_t registered, receives, accepts, is_ended;
    uint8_t has_sent, has_stopped, has_stopped_accepting; /* events for the next take */
};

struct rmq_epoll {
    struct rmq_engine head;
    int fd, wake_fd, reads_fd;
    struct watched *watched;
    uint32_t watched_count;
    uint32_t ended_first, ended_last;
    int skipped;                  /* the last wait without a deadline has not asked the kernel */
    uint32_t looks;
    uint8_t *buffers;
    uint32_t buffer_bytes, buffer_mask;
    uint32_t *lent;               /* a ring of the lent buffers, in the order of lending */
    uint32_t lent_head, lent_tail;
    struct rmq_read_pool reads;
    int reads_open;
    struct rmq_read_queue read_done;
    uint32_t report_next, report_count;
    struct epoll_event reports[REPORTS];
};

/* --- descriptors ---------------------------------------------------------------------------------------------- */

static struct watched *watched_at(struct rmq_epoll *engine, int fd)
{
    if ((uint32_t)fd < engine->watched_count)
        return &engine->watched[fd];
    uint32_t count = engine->watched_count ? engine->watched_count : 64;
    while (count <= (uint32_t)fd)
        count *= 2;
    struct watched *more = realloc(engine->watched, count * sizeof *more);
    if (!more)
        return NULL;
    memset(more + engine->watched_count, 0, (count - engine->watched_count) * sizeof *more);
    engine->watched = more;
    engine->watched_count = count;
    return &more[fd];
}

static uint32_t wanted_of(const struct watched *w)
{
    return (w->receives || w->accepts ? EPOLLIN : 0u) | (w->message ? EPOLLOUT : 0u);
}

/* Has the kernel watch for `interest`, nothing where that is 0: it would report errors then. 0 or -errno. */
static int watch(struct rmq_epoll *engine, int fd, struct watched *w, uint32_t interest)
{
    struct epoll_event event = {.events = interest, .data.u64 = (uint64_t)w->generation << 32 | (uint32_t)fd};
    int call = !interest ? EPOLL_CTL_DEL : w->registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(engine->fd, call, fd, &event) < 0 && interest)
        return -errno;
    w->registered = interest != 0;
    w->interest = interest;
    return 0;
}

static int watch_also(struct rmq_epoll *engine, int fd, struct watched *w, uint32_t interest)
{
    return (w->interest & interest) == interest ? 0 : watch(engine, fd, w, wanted_of(w) | interest);
}

/* An event of the descriptor waits for the next take. */
static void note_ended(struct rmq_epoll *engine, int fd, struct watched *w)
{
    if (w->is_ended)
        return;
    w->is_ended = 1;
    w->next_ended = NO_FD;
    if (engine->ended_first == NO_FD)
        engine->ended_first = (uint32_t)fd;
    else
        engine->watched[engine->ended_last].next_ended = (uint32_t)fd;
    engine->ended_last = (uint32_t)fd;
}

/* --- life ----------------------------------------------------------------------------------------------------- */

/* Edge-triggered: the eventfd is never read, and each write to it is an edge. */
static int watch_bell(struct rmq_epoll *engine, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = (uint32_t)fd};
    return epoll_ctl(engine->fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int rmq_epoll_open(struct rmq_epoll **out, const struct rmq_engine_options *options, const char **call)
{
    *out = NULL;
    *call = "malloc";
    struct rmq_epoll *engine = calloc(1, sizeof *engine);
    uint32_t *lent = options->buffers ? calloc(options->buffer_count, sizeof *lent) : NULL;
    if (!engine || (options->buffers && !lent)) {
        free(engine);
        free(lent);
        return -ENOMEM;
    }
    engine->head.kind = RMQ_ENGINE_EPOLL;
    engine->wake_fd = options->wake_fd;
    engine->reads_fd = -1;
    engine->ended_first = NO_FD;
    engine->lent = lent;
    engine->buffers = options->buffers;
    engine->buffer_bytes = options->buffer_bytes;
    engine->buffer_mask = options->buffer_count - 1;
    *call = "epoll_create1";
    engine->fd = epoll_create1(EPOLL_CLOEXEC);
    int rc = engine->fd < 0 ? -errno : 0;
    if (rc == 0 && engine->wake_fd >= 0) {
        *call = "epoll_ctl";
        rc = watch_bell(engine, engine->wake_fd);
    }
    if (rc < 0) {
        rmq_epoll_close(engine);
        return rc;
    }
    *out = engine;
    return 0;
}

void rmq_epoll_close(struct rmq_epoll *engine)
{
    if (engine->reads_open)
        rmq_read_pool_close(&engine->reads);
    for (struct rmq_read_job *job; (job = rmq_read_queue_pop(&engine->read_done));)
        free(job);
    if (engine->reads_fd >= 0)
        close(engine->reads_fd);
    if (engine->fd >= 0)
        close(engine->fd);
    free(engine->watched);
    free(engine->lent);
    free(engine);
}

/* --- calls ---------------------------------------------------------------------------------------------------- */

int rmq_epoll_accept(struct rmq_epoll *engine, int listen_fd, uint64_t tag)
{
    struct watched *w = watched_at(engine, listen_fd);
    int flags = fcntl(listen_fd, F_GETFL);
    if (!w)
        return -ENOMEM;
    if (flags < 0 || (!(flags & O_NONBLOCK) && fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) < 0))
        return -errno;
    int rc = watch_also(engine, listen_fd, w, EPOLLIN);
    if (rc < 0)
        return rc;
    w->accepts = 1;
    w->accept_tag = tag;
    return 0;
}

int rmq_epoll_accept_stop(struct rmq_epoll *engine, int listen_fd, uint64_t tag)
{
    struct watched *w = watched_at(engine, listen_fd);
    if (!w || !w->accepts || w->accept_tag != tag)
        return 0;
    w->accepts = 0;
    w->has_stopped_accepting = 1;
    note_ended(engine, listen_fd, w);
    return 0;
}

int rmq_epoll_receive(struct rmq_epoll *engine, int fd, uint64_t tag, int once)
{
    struct watched *w = watched_at(engine, fd);
    if (!w)
        return -ENOMEM;
    int rc = watch_also(engine, fd, w, EPOLLIN);
    if (rc < 0)
        return rc;
    w->receives = once ? RECEIVES_ONCE : RECEIVES_MANY;
    w->receive_tag = tag;
    return 0;
}

int rmq_epoll_receive_stop(struct rmq_epoll *engine, int fd, uint64_t tag)
{
    struct watched *w = watched_at(engine, fd);
    if (!w || !w->receives || w->receive_tag != tag)
        return 0;
    w->receives = 0;
    w->has_stopped = 1;
    note_ended(engine, fd, w);
    return 0;
}

/* Bytes that the kernel took, or -errno. */
static int32_t send_now(int fd, const struct msghdr *message)
{
    ssize_t n = sendmsg(fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n < 0 ? -errno : (int32_t)n;
}

int rmq_epoll_send(struct rmq_epoll *engine, int fd, const struct msghdr *message, uint64_t tag)
{
    struct watched *w = watched_at(engine, fd);
    if (!w)
        return -ENOMEM;
    int32_t result = send_now(fd, message);
    if (result == -EAGAIN) {
        int rc = watch_also(engine, fd, w, EPOLLOUT);
        if (rc < 0)
            return rc;
        w->message = message;
        w->send_tag = tag;
        return 0;
    }
    w->send_tag = tag;
    w->sent_result = result;
    w->has_sent = 1;
    note_ended(engine, fd, w);
    return 0;
}

void rmq_epoll_forget(struct rmq_epoll *engine, int fd)
{
    if ((uint32_t)fd >= engine->watched_count)
        return;
    struct watched *w = &engine->watched[fd];
    *w = (struct watched){.generation = w->generation + 1}; /* the kernel forgets a socket with its last descriptor */
}

static int open_reads(struct rmq_epoll *engine)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), rc = fd < 0 ? -errno : watch_bell(engine, fd);
    if (rc == 0)
        rc = rmq_read_pool_open(&engine->reads, fd);
    if (rc < 0 && fd >= 0)
        close(fd);
    if (rc < 0)
        return rc;
    engine->reads_fd = fd;
    engine->reads_open = 1;
    return 0;
}

/* Without a descriptor or memory for the threads, the read is done without being read: the send faults its pages in. */
int rmq_epoll_read_mapped(struct rmq_epoll *engine, const void *at, uint32_t bytes, uint64_t tag)
{
    struct rmq_read_job *job = malloc(sizeof *job);
    if (!job)
        return -ENOMEM;
    *job = (struct rmq_read_job){.at = at, .bytes = bytes, .tag = tag};
    if (engine->reads_open || open_reads(engine) == 0)
        rmq_read_pool_add(&engine->reads, job);
    else
        rmq_read_queue_push(&engine->read_done, job);
    return 0;
}

void rmq_epoll_lend(struct rmq_epoll *engine, const uint32_t *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        engine->lent[engine->lent_head++ & engine->buffer_mask] = buffers[i];
}

/* --- waiting -------------------------------------------------------------------------------------------------- */

static int has_events(const struct rmq_epoll *engine)
{
    return engine->ended_first != NO_FD || engine->read_done.first || engine->report_next < engine->report_count;
}

static int ask_kernel(struct rmq_epoll *engine, int timeout_ms)
{
    engine->skipped = 0;
    if (engine->report_next < engine->report_count)
        return 0;
    int n = epoll_wait(engine->fd, engine->reports, REPORTS, timeout_ms);
    engine->report_next = 0;
    engine->report_count = n > 0 ? (uint32_t)n : 0;
    return n < 0 ? -errno : 0;
}

/* Operations that have ended need no system call. The second time in a row the kernel is asked all the same: sends that end
 * in each turn must not keep the sockets waiting. */
int rmq_epoll_wait(struct rmq_epoll *engine, int64_t timeout_ns)
{
    if (has_events(engine)) {
        if (!engine->skipped) {
            engine->skipped = 1;
            return 0;
        }
        timeout_ns = 0;
    }
    int64_t timeout_ms = timeout_ns < 0 ? -1 : (timeout_ns + 999999) / 1000000;
    return ask_kernel(engine, timeout_ms > INT_MAX ? INT_MAX : (int)timeout_ms);
}

int rmq_epoll_ready(struct rmq_epoll *engine)
{
    if (has_events(engine))
        return 1;
    if (++engine->looks % READY_LOOKS)
        return 0;
    ask_kernel(engine, 0);
    return has_events(engine);
}

/* --- taking --------------------------------------------------------------------------------------------------- */

/* The events that a take gives out. */
struct taking {
    struct rmq_event *events;
    uint32_t room, count;
    uint32_t received; /* buffers among them */
};

static void give(struct taking *t, uint8_t kind, uint64_t tag, int32_t result, uint16_t buffer, int more)
{
    t->events[t->count++] =
        (struct rmq_event){.tag = tag, .result = result, .buffer = buffer, .kind = kind, .more = (uint8_t)more};
}

/* Ends of operations; what does not fit stays first in the list. */
static void take_ended(struct rmq_epoll *engine, struct taking *t)
{
    while (engine->ended_first != NO_FD) {
        struct watched *w = &engine->watched[engine->ended_first];
        if (t->room - t->count < (uint32_t)w->has_sent + w->has_stopped + w->has_stopped_accepting)
            return;
        if (w->has_sent)
            give(t, RMQ_EVENT_SENT, w->send_tag, w->sent_result, RMQ_NO_BUFFER, 0);
        if (w->has_stopped)
            give(t, RMQ_EVENT_RECEIVED, w->receive_tag, -ECANCELED, RMQ_NO_BUFFER, 0);
        if (w->has_stopped_accepting)
            give(t, RMQ_EVENT_ACCEPTED, w->accept_tag, -ECANCELED, RMQ_NO_BUFFER, 0);
        w->has_sent = w->has_stopped = w->has_stopped_accepting = w->is_ended = 0;
        engine->ended_first = w->next_ended;
    }
}

static void take_reads(struct rmq_epoll *engine, struct taking *t)
{
    while (t->count < t->room && engine->read_done.first) {
        struct rmq_read_job *job = rmq_read_queue_pop(&engine->read_done);
        give(t, RMQ_EVENT_READ, job->tag, 0, RMQ_NO_BUFFER, 0);
        free(job);
    }
}

/* Errors of the connection that the kernel reports through accept (accept(2)): the next connection is another matter. */
static int is_of_one_connection(int error)
{
    switch (error) {
    case ECONNABORTED: case EINTR: case EPROTO: case ENOPROTOOPT: case ENONET:
    case ENETDOWN: case ENETUNREACH: case EHOSTDOWN: case EHOSTUNREACH:
        return 1;
    default:
        return 0;
    }
}

static void accept_some(struct taking *t, int fd, struct watched *w)
{
    for (uint32_t i = 0; i < ACCEPTS_AT_ONCE && t->count < t->room; i++) {
        int socket = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (socket >= 0) {
            give(t, RMQ_EVENT_ACCEPTED, w->accept_tag, socket, RMQ_NO_BUFFER, 1);
        } else if (errno == EAGAIN) {
            return;
        } else if (!is_of_one_connection(errno)) {
            w->accepts = 0; /* until the caller asks again: the listener would be reported without end */
            give(t, RMQ_EVENT_ACCEPTED, w->accept_tag, -errno, RMQ_NO_BUFFER, 0);
            return;
        }
    }
}

static void send_rest(struct taking *t, int fd, struct watched *w)
{
    int32_t result = send_now(fd, w->message);
    if (result == -EAGAIN)
        return;
    w->message = NULL;
    give(t, RMQ_EVENT_SENT, w->send_tag, result, RMQ_NO_BUFFER, 0);
}

/* 0: this take has used up the lent buffers. The socket's turn comes in the next one, and the caller lends meanwhile. If
 * nothing was lent, the receive ends. */
static int receive_some(struct rmq_epoll *engine, struct taking *t, int fd, struct watched *w)
{
    int32_t result = -ENOBUFS;
    uint16_t buffer = (uint16_t)RMQ_NO_BUFFER;
    if (engine->lent_tail != engine->lent_head) {
        uint32_t first = engine->lent[engine->lent_tail & engine->buffer_mask];
        ssize_t n = recv(fd, engine->buffers + (size_t)first * engine->buffer_bytes, engine->buffer_bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 1;
        result = n < 0 ? -errno : (int32_t)n;
        if (n > 0) {
            buffer = (uint16_t)first;
            engine->lent_tail++;
            t->received++;
        }
    } else if (t->received) {
        return 0;
    }
    if (result <= 0 || w->receives == RECEIVES_ONCE)
        w->receives = 0;
    give(t, RMQ_EVENT_RECEIVED, w->receive_tag, result, buffer, w->receives != 0);
    return 1;
}

/* Bits that were reported and not asked for, or an end without an operation that waits for it. */
static int is_in_vain(const struct watched *w, uint32_t reported)
{
    uint32_t wanted = wanted_of(w);
    return !wanted || (reported & (EPOLLIN | EPOLLOUT) & ~wanted);
}

/* 0: the report stays for the next take. */
static int take_socket(struct rmq_epoll *engine, struct taking *t, const struct epoll_event *report)
{
    int fd = (int)(uint32_t)report->data.u64;
    struct watched *w = &engine->watched[fd];
    if (!w->registered || w->generation != (uint32_t)(report->data.u64 >> 32))
        return 1;
    int in_vain = is_in_vain(w, report->events);
    uint32_t ends = report->events & (EPOLLERR | EPOLLHUP);
    if (w->message && (ends || report->events & EPOLLOUT))
        send_rest(t, fd, w);
    if (w->accepts)
        accept_some(t, fd, w);
    else if (w->receives && (ends || report->events & EPOLLIN) && !receive_some(engine, t, fd, w))
        return 0;
    if (in_vain) /* or it would be reported without end */
        watch(engine, fd, w, wanted_of(w));
    return 1;
}

static int take_report(struct rmq_epoll *engine, struct taking *t, const struct epoll_event *report)
{
    int fd = (int)(uint32_t)report->data.u64;
    if (fd == engine->wake_fd)
        give(t, RMQ_EVENT_WOKEN, 0, 0, RMQ_NO_BUFFER, 1);
    else if (fd == engine->reads_fd)
        rmq_read_pool_take(&engine->reads, &engine->read_done);
    else
        return take_socket(engine, t, report);
    return 1;
}

uint32_t rmq_epoll_take(struct rmq_epoll *engine, struct rmq_event *events, uint32_t room)
{
    struct taking t = {.events = events, .room = room};
    take_ended(engine, &t);
    while (engine->report_next < engine->report_count && t.room - t.count >= ROOM_OF_REPORT &&
           take_report(engine, &t, &engine->reports[engine->report_next]))
        engine->report_next++;
    take_reads(engine, &t);
    return t.count;
}
