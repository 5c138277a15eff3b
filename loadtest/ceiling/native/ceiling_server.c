#include <errno.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ceiling.h"
#include "wire.h"

enum { OP_ACCEPT, OP_RECV, OP_SEND, CLIENTS_MAX = 16384, RX_BYTES = 1 << 18, RING_ENTRIES = 4096, CQE_BATCH = 256 };

struct server {
    const struct ceiling_config *config;
    struct io_uring ring;
    struct ceiling_log log;
    struct client *clients[CLIENTS_MAX];
    uint8_t answer[ANSWER_SIZE];
    uint8_t *head, *body; /* pulls */
    uint32_t head_len, body_len, answers_max;
    int listener;
};

static volatile sig_atomic_t stopped;

static void on_signal(int signal)
{
    (void)signal;
    stopped = 1;
}

static struct io_uring_sqe *sqe_of(struct server *s)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&s->ring);
    if (sqe == NULL) {
        io_uring_submit(&s->ring);
        sqe = io_uring_get_sqe(&s->ring);
    }
    return sqe;
}

static void arm_recv(struct server *s, struct client *c, int more)
{
    struct io_uring_sqe *sqe = sqe_of(s);
    io_uring_prep_recv(sqe, c->fd, c->rx.base + c->rx.tail, c->rx.cap - mirror_used(&c->rx), 0);
    if (!more)
        sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    io_uring_sqe_set_data64(sqe, (uint64_t)c->fd << 2 | OP_RECV);
    c->reading = 1;
}

static void arm_send(struct server *s, struct client *c)
{
    static struct msghdr messages[CLIENTS_MAX];
    struct msghdr *message = &messages[c->fd];
    *message = (struct msghdr){.msg_iov = c->slices + c->slice_first, .msg_iovlen = c->slice_count - c->slice_first};
    struct io_uring_sqe *sqe = sqe_of(s);
    if (message->msg_iovlen == 1)
        io_uring_prep_send(sqe, c->fd, message->msg_iov->iov_base, message->msg_iov->iov_len,
                           MSG_NOSIGNAL | MSG_WAITALL);
    else
        io_uring_prep_sendmsg(sqe, c->fd, message, MSG_NOSIGNAL | MSG_WAITALL);
    io_uring_sqe_set_data64(sqe, (uint64_t)c->fd << 2 | OP_SEND);
    c->sending = 1;
}

static void add_client(struct server *s, int fd)
{
    struct client *c = fd < CLIENTS_MAX ? calloc(1, sizeof *c) : NULL;
    if (c == NULL || mirror_init(&c->rx, RX_BYTES) < 0) {
        free(c);
        close(fd);
        return;
    }
    c->heads = malloc((size_t)s->answers_max * (s->body ? s->head_len : ANSWER_SIZE));
    if (c->heads == NULL) {
        mirror_free(&c->rx);
        free(c);
        close(fd);
        return;
    }
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->fd = fd;
    s->clients[fd] = c;
    arm_recv(s, c, 0);
}

static void drop(struct server *s, struct client *c)
{
    shutdown(c->fd, SHUT_RDWR);
    if (c->sending || c->reading)
        return;
    s->clients[c->fd] = NULL;
    close(c->fd);
    mirror_free(&c->rx);
    free(c->heads);
    free(c);
}

/* Answers everything that waits, in one send: short answers in one piece, pulls as head and body slices. */
static void answer(struct server *s, struct client *c)
{
    uint32_t n = c->waiting < s->answers_max ? c->waiting : s->answers_max;
    if (c->sending || n == 0)
        return;
    uint8_t *p = c->heads;
    uint32_t head_len = s->body ? s->head_len : ANSWER_SIZE;
    c->slice_first = c->slice_count = 0;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(p, s->body ? s->head : s->answer, head_len);
        put32(p + 13, c->opaques[i]);
        if (s->body) {
            c->slices[c->slice_count++] = (struct iovec){p, head_len};
            c->slices[c->slice_count++] = (struct iovec){s->body, s->body_len};
        }
        p += head_len;
    }
    if (!s->body)
        c->slices[c->slice_count++] = (struct iovec){c->heads, (size_t)(p - c->heads)};
    c->waiting -= n;
    if (c->waiting)
        memmove(c->opaques, c->opaques + n, c->waiting * sizeof *c->opaques);
    arm_send(s, c);
}

/* Takes frames from the buffer; -EBADMSG for what is none. */
static int take_frames(struct server *s, struct client *c)
{
    while (mirror_used(&c->rx) >= 4 && c->waiting < OPAQUES_MAX) {
        uint8_t *frame = mirror_data(&c->rx);
        size_t len = 4 + (size_t)get32(frame);
        if (len < 8 + 13 || len > c->rx.cap)
            return -EBADMSG;
        if (mirror_used(&c->rx) < len)
            break;
        if (s->log.base != NULL)
            ceiling_log_append(&s->log, frame, len);
        c->opaques[c->waiting++] = get32(frame + 13);
        mirror_consume(&c->rx, len);
    }
    return 0;
}

static void on_received(struct server *s, struct client *c, const struct io_uring_cqe *cqe)
{
    c->reading = 0;
    if (cqe->res <= 0) {
        drop(s, c);
        return;
    }
    c->rx.tail += (size_t)cqe->res;
    if (take_frames(s, c) < 0) {
        drop(s, c);
        return;
    }
    answer(s, c);
    if (mirror_used(&c->rx) < c->rx.cap)
        arm_recv(s, c, cqe->flags & IORING_CQE_F_SOCK_NONEMPTY);
}

static void on_sent(struct server *s, struct client *c, const struct io_uring_cqe *cqe)
{
    c->sending = 0;
    if (cqe->res <= 0) {
        drop(s, c);
        return;
    }
    size_t sent = (size_t)cqe->res;
    while (c->slice_first < c->slice_count && sent >= c->slices[c->slice_first].iov_len)
        sent -= c->slices[c->slice_first++].iov_len;
    if (c->slice_first < c->slice_count) {
        struct iovec *slice = &c->slices[c->slice_first];
        slice->iov_base = (uint8_t *)slice->iov_base + sent;
        slice->iov_len -= sent;
        arm_send(s, c);
        return;
    }
    if (take_frames(s, c) < 0) {
        drop(s, c);
        return;
    }
    answer(s, c);
    if (!c->reading && mirror_used(&c->rx) < c->rx.cap)
        arm_recv(s, c, 0);
}

static void arm_accept(struct server *s)
{
    struct io_uring_sqe *sqe = sqe_of(s);
    io_uring_prep_multishot_accept(sqe, s->listener, NULL, NULL, SOCK_CLOEXEC);
    io_uring_sqe_set_data64(sqe, OP_ACCEPT);
}

static int loop(struct server *s)
{
    arm_accept(s);
    while (!stopped) {
        int rc = io_uring_submit_and_wait(&s->ring, 1);
        if (rc < 0 && rc != -EINTR)
            return rc;
        struct io_uring_cqe *cqes[CQE_BATCH];
        unsigned n = io_uring_peek_batch_cqe(&s->ring, cqes, CQE_BATCH);
        for (unsigned i = 0; i < n; i++) {
            uint64_t data = io_uring_cqe_get_data64(cqes[i]);
            struct client *c = s->clients[data >> 2];
            if ((data & 3) == OP_ACCEPT) {
                if (cqes[i]->res >= 0)
                    add_client(s, cqes[i]->res);
                if (!(cqes[i]->flags & IORING_CQE_F_MORE))
                    arm_accept(s);
            } else if ((data & 3) == OP_RECV) {
                on_received(s, c, cqes[i]);
            } else {
                on_sent(s, c, cqes[i]);
            }
        }
        io_uring_cq_advance(&s->ring, n);
    }
    return 0;
}

static int listen_on(struct server *s)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->config->port)};
    socklen_t len = sizeof address;
    int one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->listener < 0)
        return -errno;
    setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s->listener, (struct sockaddr *)&address, len) < 0 || listen(s->listener, 4096) < 0 ||
        getsockname(s->listener, (struct sockaddr *)&address, &len) < 0)
        return -errno;
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return 0;
}

int ceiling_serve(const struct ceiling_config *config)
{
    static struct server server;
    struct server *s = &server;
    s->config = config;
    s->answers_max = OPAQUES_MAX;
    ceiling_answer(s->answer);
    if (config->pull_count) {
        s->body = ceiling_pull_body(config->pull_count, config->pull_size, &s->body_len);
        s->head = s->body ? ceiling_pull_head(s->body_len, &s->head_len) : NULL;
        s->answers_max = SLICES_MAX / 2;
        if (s->head == NULL)
            return -ENOMEM;
    }
    if (config->log_path != NULL) {
        int rc = ceiling_log_open(&s->log, config->log_path, config->log_bytes);
        if (rc < 0)
            return rc;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE};
    p.cq_entries = 4 * RING_ENTRIES;
    int rc = io_uring_queue_init_params(RING_ENTRIES, &s->ring, &p);
    if (rc < 0)
        return rc;
    rc = listen_on(s);
    return rc < 0 ? rc : loop(s);
}
