#include "engine.h"

#include <errno.h>
#include <liburing.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "connection.h"
#include "pools.h"

enum { OP_RECV = 0, OP_SEND = 1, RING_ENTRIES = 4096, CQE_BATCH = 256, SEND_MAX = 1 << 20, ANSWER_MIN = 1 << 16 };
static const uint64_t NS = 1000000000u;
static const uint64_t FOREVER = UINT64_MAX;

struct engine {
    const struct engine_config *config;
    const struct scenario *scenario;
    struct engine_result *result;
    struct io_uring ring;
    struct connection *connections;
    struct send_pool sends;
    struct receive_pool receives;
    size_t answer_cap; /* bytes of the largest answer that is taken */
    int shares; /* answers are short enough for shared buffers */
    uint32_t *dirty;
    uint32_t dirty_count;
    uint64_t start_ns, window_begin_ns, stop_ns, drain_end_ns;
    uint64_t outstanding, frames_limit;
    uint64_t due_next; /* open loop: number of the next request over all connections */
    double interval_ns; /* open loop */
    int window_open, stopping;
    struct hist stretch; /* of the interval at hand */
    uint64_t stretch_begin_ns, stretch_messages;
    struct rusage usage_begin;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int signal)
{
    (void)signal;
    interrupted = 1;
}

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static void mark_dirty(struct engine *e, struct connection *c)
{
    if (!c->dirty) {
        c->dirty = 1;
        e->dirty[e->dirty_count++] = c->index;
    }
}

static struct io_uring_sqe *sqe_of(struct engine *e, struct connection *c, unsigned op)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&e->ring);
    if (sqe == NULL) {
        io_uring_submit(&e->ring);
        sqe = io_uring_get_sqe(&e->ring);
    }
    io_uring_sqe_set_data64(sqe, (uint64_t)c->index << 1 | op);
    return sqe;
}

/* Asks for what arrives: once into the connection's own buffer, or on and on into shared ones. */
static void arm_recv(struct engine *e, struct connection *c, int more)
{
    static uint8_t nothing[16]; /* idle connections have no buffer; whatever arrives there is dropped */
    struct io_uring_sqe *sqe = sqe_of(e, c, OP_RECV);
    uint64_t data = sqe->user_data;
    if (c->slots == NULL) {
        io_uring_prep_recv(sqe, c->fd, nothing, sizeof nothing, 0);
    } else if (e->shares) {
        io_uring_prep_recv_multishot(sqe, c->fd, NULL, 0, 0);
        sqe->flags |= IOSQE_BUFFER_SELECT;
        sqe->buf_group = RECEIVE_GROUP;
    } else {
        io_uring_prep_recv(sqe, c->fd, c->rx.base + c->rx.tail, c->rx.cap - mirror_used(&c->rx), 0);
    }
    if (!more)
        sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    sqe->user_data = data;
}

static void arm_send(struct engine *e, struct connection *c)
{
    struct io_uring_sqe *sqe = sqe_of(e, c, OP_SEND);
    uint64_t data = sqe->user_data;
    io_uring_prep_send(sqe, c->fd, c->tx + c->tx_sent, c->tx_len - c->tx_sent, MSG_NOSIGNAL | MSG_WAITALL);
    sqe->user_data = data;
}

static void end_send(struct engine *e, struct connection *c)
{
    send_pool_give(&e->sends, c->tx);
    c->tx = NULL;
}

/* The place of a connection among those of the open loop; negative: it asks as soon as it may. */
static int64_t place_of(const struct engine *e, const struct connection *c)
{
    return e->interval_ns == 0 ? -1 : (int64_t)c->index - e->config->listeners;
}

static uint64_t due_time(const struct engine *e, uint64_t number)
{
    return e->start_ns + (uint64_t)((double)number * e->interval_ns / (double)e->config->burst_ns) * e->config->burst_ns;
}

/* A request of the open loop counts from the time it was due, however late it is written. */
static uint64_t start_of(const struct engine *e, const struct connection *c, uint64_t now)
{
    int64_t place = place_of(e, c);
    return place < 0 ? now : due_time(e, (uint64_t)place + c->next * (e->config->connections - e->config->listeners));
}

static void count_due(struct engine *e, struct connection *c, uint64_t due, uint64_t now)
{
    if (e->window_open && c->free_count)
        hist_add(&e->result->lag, now > due ? now - due : 0);
    c->next++;
    c->due--;
}

static void drop(struct engine *e, struct connection *c, const char *why)
{
    if (c->fd < 0)
        return;
    shutdown(c->fd, SHUT_RDWR); /* a receive that stays armed would keep it open */
    close(c->fd);
    c->fd = -1;
    uint32_t lost = c->slots ? c->depth - c->free_count : 0;
    e->outstanding -= lost;
    e->result->unanswered += lost;
    e->result->disconnects++;
    e->result->still_open--;
    if (e->result->trouble[0] == 0)
        snprintf(e->result->trouble, sizeof e->result->trouble, "connection %u: %s", c->index, why);
    if (e->result->still_open == 0)
        e->stopping = 1;
}

/* Writes as many requests as the connection may have on its way, and sends them together. */
static void fill(struct engine *e, struct connection *c, uint64_t now)
{
    if (c->tx != NULL || c->fd < 0 || e->stopping || c->slots == NULL || c->free_count == 0)
        return;
    int is_open = place_of(e, c) >= 0;
    if (is_open && c->due == 0)
        return;
    c->tx = send_pool_take(&e->sends);
    if (c->tx == NULL) {
        drop(e, c, "no memory for a request");
        return;
    }
    c->tx_len = c->tx_sent = 0;
    while ((size_t)c->tx_len + e->scenario->frame_max <= e->sends.bytes && e->result->frames_sent < e->frames_limit) {
        if (is_open && c->due == 0)
            break;
        struct slot *slot = connection_take(c);
        if (slot == NULL)
            break;
        slot->start_ns = start_of(e, c, now);
        uint32_t len = e->scenario->write(e->scenario->self, c->index, slot, c->tx + c->tx_len);
        if (len == 0) {
            connection_untake(c, slot);
            break;
        }
        if (is_open)
            count_due(e, c, slot->start_ns, now);
        c->tx_len += len;
        e->outstanding++;
        e->result->frames_sent++;
    }
    if (c->tx_len == 0) {
        end_send(e, c);
        return;
    }
    if (e->window_open)
        e->result->bytes_out += c->tx_len;
    arm_send(e, c);
}

static void take_answer(struct engine *e, struct connection *c, const struct answer *answer, uint64_t now)
{
    struct engine_result *r = e->result;
    if (answer->is_request)
        return;
    struct slot *slot = connection_release(c, answer->opaque);
    if (slot == NULL) {
        r->bad_answers++;
        return;
    }
    e->outstanding--;
    int messages = 0;
    if (answer->code == ANSWER_SUCCESS) {
        messages = e->scenario->answer(e->scenario->self, slot, answer);
        if (messages < 0)
            r->bad_answers++;
    } else if (e->scenario->refused == NULL || !e->scenario->refused(e->scenario->self, slot, answer)) {
        if (r->code_count == 0)
            wire_remark(answer, r->remark, sizeof r->remark);
        result_count_code(r, answer->code);
    }
    if (messages > 0)
        r->all_messages += (uint64_t)messages;
    r->last_answer_ns = now;
    if (!e->window_open)
        return;
    r->answers++;
    if (messages > 0)
        r->messages += (uint64_t)messages;
    uint64_t took_ns = now > slot->start_ns ? now - slot->start_ns : 0;
    hist_add(&r->latency, took_ns);
    if (e->config->interval_s > 0) {
        hist_add(&e->stretch, took_ns);
        e->stretch_messages += messages > 0 ? (uint64_t)messages : 0;
    }
}

/* Takes every whole answer in `data`; how many bytes they have, or 0 with the connection dropped. */
static size_t take_answers(struct engine *e, struct connection *c, const uint8_t *data, size_t used, uint64_t now)
{
    size_t at = 0;
    while (used - at >= 4) {
        size_t len = 4 + (size_t)get32(data + at);
        if (len > e->answer_cap) {
            drop(e, c, "an answer is larger than the receive buffer");
            return 0;
        }
        if (used - at < len)
            break;
        struct answer answer;
        if (wire_decode(data + at, len, &answer) < 0) {
            drop(e, c, "an answer is no remoting frame");
            return 0;
        }
        take_answer(e, c, &answer, now);
        at += len;
    }
    return at;
}

/* The begin of an answer waits for its end in the connection's own buffer. */
static void keep(struct engine *e, struct connection *c, const uint8_t *data, size_t len)
{
    if (c->rx.base == NULL && mirror_init(&c->rx, e->answer_cap + RECEIVE_BYTES) < 0) {
        drop(e, c, "no memory for an answer");
        return;
    }
    memcpy(c->rx.base + c->rx.tail, data, len);
    c->rx.tail += len;
}

static void take_shared(struct engine *e, struct connection *c, const uint8_t *data, size_t len, uint64_t now)
{
    if (mirror_used(&c->rx) == 0) {
        size_t taken = take_answers(e, c, data, len, now);
        if (c->fd >= 0 && taken < len)
            keep(e, c, data + taken, len - taken);
        return;
    }
    keep(e, c, data, len);
    mirror_consume(&c->rx, take_answers(e, c, mirror_data(&c->rx), mirror_used(&c->rx), now));
}

static void on_received(struct engine *e, struct connection *c, const struct io_uring_cqe *cqe, uint64_t now)
{
    if (c->fd < 0)
        return;
    if (cqe->res == -ENOBUFS) { /* all shared ones are in use; they are back by the time it is asked again */
        arm_recv(e, c, 1);
        return;
    }
    if (cqe->res <= 0) {
        drop(e, c, cqe->res == 0 ? "closed by the server" : strerror(-cqe->res));
        return;
    }
    if (e->window_open)
        e->result->bytes_in += (uint64_t)cqe->res;
    if (cqe->flags & IORING_CQE_F_BUFFER) {
        take_shared(e, c, receive_pool_at(&e->receives, cqe->flags >> IORING_CQE_BUFFER_SHIFT), (size_t)cqe->res, now);
    } else if (c->slots != NULL) {
        c->rx.tail += (size_t)cqe->res;
        mirror_consume(&c->rx, take_answers(e, c, mirror_data(&c->rx), mirror_used(&c->rx), now));
    }
    if (c->fd < 0)
        return;
    if (c->slots != NULL)
        mark_dirty(e, c);
    if (!(cqe->flags & IORING_CQE_F_MORE))
        arm_recv(e, c, cqe->flags & IORING_CQE_F_SOCK_NONEMPTY);
}

static void on_sent(struct engine *e, struct connection *c, const struct io_uring_cqe *cqe)
{
    if (c->fd >= 0 && cqe->res <= 0)
        drop(e, c, strerror(-cqe->res));
    else
        c->tx_sent += (uint32_t)cqe->res;
    if (c->fd >= 0 && c->tx_sent < c->tx_len) {
        arm_send(e, c);
        return;
    }
    end_send(e, c);
    mark_dirty(e, c);
}

static void begin_stretch(struct engine *e, uint64_t now)
{
    hist_init(&e->stretch);
    e->stretch_begin_ns = now;
    e->stretch_messages = 0;
}

/* Keeps the figures of the interval that ends now and begins the next one. */
static void end_stretch(struct engine *e, uint64_t now)
{
    struct interval found = {
        .at_s = (double)(e->stretch_begin_ns - e->window_begin_ns) / 1e9,
        .seconds = (double)(now - e->stretch_begin_ns) / 1e9,
        .messages = e->stretch_messages,
    };
    if (now > e->stretch_begin_ns)
        result_add_interval(e->result, found, &e->stretch);
    begin_stretch(e, now);
}

static uint64_t stretch_end_ns(const struct engine *e)
{
    return e->stretch_begin_ns + (uint64_t)(e->config->interval_s * 1e9);
}

static void open_window(struct engine *e)
{
    e->window_open = 1;
    e->window_begin_ns = now_ns();
    begin_stretch(e, e->window_begin_ns);
    getrusage(RUSAGE_SELF, &e->usage_begin);
    if (e->config->watch != NULL)
        watch_begin(e->config->watch);
}

static void close_window(struct engine *e, uint64_t end_ns)
{
    if (!e->window_open)
        return;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (e->config->watch != NULL)
        watch_end(e->config->watch);
    e->window_open = 0;
    if (e->config->interval_s > 0 && e->stretch.count)
        end_stretch(e, end_ns);
    e->result->window_s = (double)(end_ns - e->window_begin_ns) / 1e9;
    e->result->user_s = seconds_of(usage.ru_utime) - seconds_of(e->usage_begin.ru_utime);
    e->result->system_s = seconds_of(usage.ru_stime) - seconds_of(e->usage_begin.ru_stime);
}

/* Hands every request whose time has come to its connection. */
static void release_due(struct engine *e, uint64_t now)
{
    while (due_time(e, e->due_next) <= now) {
        uint32_t first = e->config->listeners;
        struct connection *c = &e->connections[first + e->due_next++ % (e->config->connections - first)];
        c->due++;
        mark_dirty(e, c);
    }
}

static uint64_t left_waiting(const struct engine *e) { return e->scenario->left_waiting ? e->scenario->left_waiting(e->scenario->self) : 0; }

/* Ends a run that gets no answers any more; what is on its way counts as unanswered. */
static void end_if_stalled(struct engine *e, uint64_t now)
{
    uint64_t last = e->result->last_answer_ns > e->start_ns ? e->result->last_answer_ns : e->start_ns;
    if (e->stopping || e->outstanding <= left_waiting(e) || now - last < (uint64_t)(e->config->drain_s * 1e9))
        return;
    snprintf(e->result->trouble, sizeof e->result->trouble, "no answer for %.0f s", e->config->drain_s);
    close_window(e, now);
    e->stopping = 1;
    e->drain_end_ns = now;
}

/* Moves the run from warm-up to measuring to draining; returns when to look again. */
static uint64_t advance(struct engine *e, uint64_t now)
{
    const struct scenario *s = e->scenario;
    end_if_stalled(e, now);
    int all_asked = e->result->frames_sent >= e->frames_limit || (s->done != NULL && s->done(s->self));
    if (!e->stopping && (interrupted || now >= e->stop_ns || all_asked)) {
        e->stopping = 1;
        /* A run of fixed length ends now; one of fixed size ends with its last answer. */
        if (e->config->seconds > 0)
            close_window(e, now);
    }
    if (e->stopping) {
        if (e->drain_end_ns == 0)
            e->drain_end_ns = now + (uint64_t)(e->config->drain_s * 1e9);
        return e->drain_end_ns;
    }
    uint64_t begin = e->start_ns + (uint64_t)(e->config->warmup_s * 1e9);
    if (!e->window_open && now >= begin)
        open_window(e);
    uint64_t next = e->window_open ? e->stop_ns : begin;
    if (e->window_open && e->config->interval_s > 0) {
        if (now >= stretch_end_ns(e))
            end_stretch(e, now);
        next = stretch_end_ns(e) < next ? stretch_end_ns(e) : next;
    }
    if (e->interval_ns != 0) {
        release_due(e, now);
        uint64_t due = due_time(e, e->due_next);
        next = due < next ? due : next;
    }
    return next;
}

static int wait_for_events(struct engine *e, uint64_t until)
{
    struct io_uring_cqe *cqe;
    uint64_t now = now_ns();
    uint64_t ns = until == FOREVER || until > now + NS ? NS : until > now ? until - now : 0;
    struct __kernel_timespec limit = {.tv_sec = (long long)(ns / NS), .tv_nsec = (long long)(ns % NS)};
    int rc = io_uring_submit_and_wait_timeout(&e->ring, &cqe, 1, &limit, NULL);
    return rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN ? rc : 0;
}

static void handle_events(struct engine *e)
{
    struct io_uring_cqe *cqes[CQE_BATCH];
    unsigned n;
    while ((n = io_uring_peek_batch_cqe(&e->ring, cqes, CQE_BATCH)) > 0) {
        uint64_t now = now_ns();
        for (unsigned i = 0; i < n; i++) {
            uint64_t data = io_uring_cqe_get_data64(cqes[i]);
            struct connection *c = &e->connections[data >> 1];
            if ((data & 1) == OP_SEND)
                on_sent(e, c, cqes[i]);
            else
                on_received(e, c, cqes[i], now);
            if (cqes[i]->flags & IORING_CQE_F_BUFFER)
                receive_pool_give(&e->receives, cqes[i]->flags >> IORING_CQE_BUFFER_SHIFT);
        }
        io_uring_cq_advance(&e->ring, n);
        if (n < CQE_BATCH)
            break;
    }
}

static int loop(struct engine *e)
{
    for (;;) {
        uint64_t now = now_ns();
        uint64_t until = advance(e, now);
        uint32_t count = e->dirty_count;
        e->dirty_count = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct connection *c = &e->connections[e->dirty[i]];
            c->dirty = 0;
            fill(e, c, now);
        }
        if (e->stopping && (e->outstanding <= left_waiting(e) || now >= e->drain_end_ns))
            return 0;
        int rc = wait_for_events(e, until);
        if (rc < 0)
            return rc;
        handle_events(e);
    }
}

static int ring_open(struct io_uring *ring)
{
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE};
    p.cq_entries = 4 * RING_ENTRIES;
    int rc = io_uring_queue_init_params(RING_ENTRIES, ring, &p);
    if (rc != -EINVAL)
        return rc;
    memset(&p, 0, sizeof p);
    return io_uring_queue_init_params(RING_ENTRIES, ring, &p);
}

/* Buffers for requests and answers of these sizes, and a ring that may use them. */
static int buffers_open(struct engine *e)
{
    const struct scenario *s = e->scenario;
    size_t wanted = (size_t)s->frame_max * e->config->depth;
    wanted = wanted < SEND_MAX ? wanted : SEND_MAX;
    e->answer_cap = s->answer_max > ANSWER_MIN ? s->answer_max : ANSWER_MIN;
    e->shares = e->answer_cap == ANSWER_MIN;
    int rc = send_pool_open(&e->sends, wanted > s->frame_max ? wanted : s->frame_max, e->config->connections);
    return rc == 0 && e->shares ? receive_pool_open(&e->receives, &e->ring) : rc;
}

static int connect_all(struct engine *e, uint32_t all)
{
    for (uint32_t i = 0; i < all; i++) {
        struct connection *c = &e->connections[i];
        int active = e->scenario->frame_max != 0 && i < e->config->connections;
        int rc = connection_open(c, i, e->config, active);
        if (rc >= 0 && active && !e->shares)
            rc = mirror_init(&c->rx, e->answer_cap);
        if (rc < 0) {
            snprintf(e->result->trouble, sizeof e->result->trouble, "connect to %s:%d: %s", e->config->host,
                     e->config->port, strerror(-rc));
            return rc;
        }
        e->result->connected = e->result->still_open = i + 1;
    }
    return 0;
}

static int start(struct engine *e)
{
    const struct engine_config *config = e->config;
    struct engine_result *r = e->result;
    int rc = ring_open(&e->ring);
    if (rc < 0) {
        snprintf(r->trouble, sizeof r->trouble, "io_uring_setup: %s", strerror(-rc));
        return rc;
    }
    io_uring_register_ring_fd(&e->ring); /* only saves a look-up: may fail */
    rc = buffers_open(e);
    if (rc < 0) {
        snprintf(r->trouble, sizeof r->trouble, "buffers of the load loop: %s", strerror(-rc));
        return rc;
    }
    uint32_t all = config->connections + config->idle;
    e->connections = calloc(all, sizeof *e->connections);
    e->dirty = calloc(all, sizeof *e->dirty);
    if (e->connections == NULL || e->dirty == NULL)
        return -ENOMEM;
    rc = connect_all(e, all);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < all; i++) {
        arm_recv(e, &e->connections[i], 0);
        mark_dirty(e, &e->connections[i]);
    }
    return 0;
}

static void finish(struct engine *e)
{
    close_window(e, e->config->seconds > 0 || e->result->last_answer_ns == 0 ? now_ns() : e->result->last_answer_ns);
    uint64_t waiting = left_waiting(e);
    e->result->unanswered += e->outstanding > waiting ? e->outstanding - waiting : 0;
    /* The ring goes first: it may still point into the buffers. */
    io_uring_queue_exit(&e->ring);
    for (uint32_t i = 0; e->connections != NULL && i < e->result->connected; i++)
        connection_close(&e->connections[i]);
    free(e->connections);
    free(e->dirty);
    send_pool_close(&e->sends);
    receive_pool_close(&e->receives);
}

int engine_run(const struct engine_config *config, const struct scenario *scenario, struct engine_result *out)
{
    struct engine e = {.config = config, .scenario = scenario, .result = out};
    memset(out, 0, sizeof *out);
    hist_init(&out->latency);
    hist_init(&out->lag);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* The default slack of 50 us would make an open loop late. */
    prctl(PR_SET_TIMERSLACK, 1);
    uint32_t per_frame = scenario->messages_per_frame ? scenario->messages_per_frame : 1;
    e.frames_limit = config->messages ? (config->messages + per_frame - 1) / per_frame : FOREVER;
    e.interval_ns = config->rate > 0 ? 1e9 * per_frame / config->rate : 0;
    e.ring.ring_fd = -1;
    int rc = start(&e);
    if (rc == 0) {
        e.start_ns = now_ns();
        double length_s = config->warmup_s + config->seconds;
        e.stop_ns = config->seconds > 0 ? e.start_ns + (uint64_t)(length_s * 1e9) : FOREVER;
        rc = loop(&e);
    }
    if (e.ring.ring_fd >= 0)
        finish(&e);
    return rc;
}
