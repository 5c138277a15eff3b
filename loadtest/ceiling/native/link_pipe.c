#include "link_pipe.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { READ_MAX = 1 << 18 }; /* per call: stays in the processor's cache until it is written */

int link_pipe_init(struct link_pipe *p, size_t buffer_bytes, uint64_t delay_ns)
{
    *p = (struct link_pipe){.delay_ns = delay_ns};
    p->marks = calloc(LINK_MARKS, sizeof *p->marks);
    if (p->marks == NULL)
        return -ENOMEM;
    int rc = mirror_init(&p->buffer, buffer_bytes);
    if (rc < 0)
        link_pipe_free(p);
    return rc;
}

void link_pipe_free(struct link_pipe *p)
{
    mirror_free(&p->buffer);
    free(p->marks);
    p->marks = NULL;
}

int link_pipe_has_room(const struct link_pipe *p)
{
    return !p->ended && p->count < LINK_MARKS && mirror_used(&p->buffer) < p->buffer.cap;
}

int link_pipe_read(struct link_pipe *p, int fd, uint64_t now_ns)
{
    size_t room = p->buffer.cap - mirror_used(&p->buffer);
    ssize_t n = recv(fd, p->buffer.base + p->buffer.tail, room < READ_MAX ? room : READ_MAX, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0) {
        p->ended = 1;
        return 0;
    }
    p->buffer.tail += (size_t)n;
    p->in_bytes += (uint64_t)n;
    p->marks[(p->first + p->count++) % LINK_MARKS] = (struct link_mark){p->in_bytes, now_ns + p->delay_ns};
    return 0;
}

/* Bytes that may leave at `now_ns`. */
static size_t due_bytes(const struct link_pipe *p, uint64_t now_ns)
{
    uint64_t end = p->out_bytes;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct link_mark *mark = &p->marks[(p->first + i) % LINK_MARKS];
        if (mark->due_ns > now_ns || mark->end - p->out_bytes > READ_MAX)
            break;
        end = mark->end;
    }
    return (size_t)(end - p->out_bytes);
}

int link_pipe_write(struct link_pipe *p, int fd, uint64_t now_ns)
{
    size_t due;
    while (!p->held && (due = due_bytes(p, now_ns)) > 0) {
        ssize_t n = send(fd, mirror_data(&p->buffer), due, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN ? 1 : errno == EINTR ? 0 : -errno;
        mirror_consume(&p->buffer, (size_t)n);
        p->out_bytes += (uint64_t)n;
        while (p->count > 0 && p->marks[p->first].end <= p->out_bytes) {
            p->first = (p->first + 1) % LINK_MARKS;
            p->count--;
        }
    }
    return 0;
}

uint64_t link_pipe_due(const struct link_pipe *p)
{
    return p->held || p->count == 0 ? UINT64_MAX : p->marks[p->first].due_ns;
}

int link_pipe_done(const struct link_pipe *p)
{
    return p->ended && p->count == 0;
}
