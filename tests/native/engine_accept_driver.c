/* Scenes of accepting (engine_kit.h). */
#include <sys/resource.h>
#include <sys/syscall.h>

#include "engine_kit.h"

static int accept_error, accept_errors;

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    if (accept_errors) {
        accept_errors--;
        errno = accept_error;
        return -1;
    }
    return (int)syscall(SYS_accept4, fd, address, length, flags);
}

static void accepts(void)
{
    struct sockaddr_in at;
    int listen_fd = listener(&at), clients[MANY];
    open_engine(BUFFERS);
    MUST(rmq_engine_accept(engine, listen_fd, 1) == 0);
    no_event();
    for (int i = 0; i < MANY; i++)
        clients[i] = connected(&at);
    for (int i = 0; i < MANY; i++) {
        struct rmq_event event = next_of(RMQ_EVENT_ACCEPTED, 1);
        MUST(event.result >= 0 && event.more && fcntl(event.result, F_GETFD) & FD_CLOEXEC);
        rmq_engine_hang_up(engine, event.result);
    }
    MUST(rmq_engine_accept_stop(engine, listen_fd, 1) == 0);
    struct rmq_event event = next_of(RMQ_EVENT_ACCEPTED, 1);
    MUST(event.result == -ECANCELED && !event.more);
    connected(&at);
    no_event(); /* it waits in the socket for the next accept */
    MUST(rmq_engine_accept(engine, listen_fd, 2) == 0);
    event = next_of(RMQ_EVENT_ACCEPTED, 2);
    MUST(event.result >= 0 && event.more);
    close(clients[0]);
}

/* The descriptors are used up: the accept ends with the error, costs nothing meanwhile, and goes on when it is asked again. */
static void accepts_without_descriptors(void)
{
    struct sockaddr_in at;
    struct rlimit limit, none;
    int listen_fd = listener(&at), clients[2];
    open_engine(BUFFERS);
    MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    clients[0] = socket(AF_INET, SOCK_STREAM, 0);
    clients[1] = socket(AF_INET, SOCK_STREAM, 0);
    none = (struct rlimit){(rlim_t)clients[1] + 1, limit.rlim_max};
    MUST(setrlimit(RLIMIT_NOFILE, &none) == 0); /* before the accept: io_uring notes the limit when it is asked */
    MUST(rmq_engine_accept(engine, listen_fd, 1) == 0); /* and takes a descriptor before there is a connection */
    for (int i = 0; i < 2; i++)
        MUST(connect(clients[i], (struct sockaddr *)&at, sizeof at) == 0);
    struct rmq_event event = next_of(RMQ_EVENT_ACCEPTED, 1);
    MUST(event.result == -EMFILE && !event.more);
    no_event();
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    MUST(rmq_engine_accept(engine, listen_fd, 1) == 0);
    for (int i = 0; i < 2; i++) {
        event = next_of(RMQ_EVENT_ACCEPTED, 1);
        MUST(event.result >= 0 && event.more);
    }
}

/* The kernel says so of a connection that its client has given up, and of the whole machine. Stand-ins: neither can be had here. */
static void accepts_beside_others(void)
{
    static const int errors[] = {ECONNABORTED, EPROTO, ENETDOWN, EINTR};
    struct sockaddr_in at;
    int listen_fd = listener(&at);
    open_engine(BUFFERS);
    MUST(rmq_engine_accept(engine, listen_fd, 1) == 0);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        accept_error = errors[i];
        accept_errors = 3;
        connected(&at);
        struct rmq_event event = next_of(RMQ_EVENT_ACCEPTED, 1);
        MUST(event.result >= 0 && event.more); /* the next one is another matter */
    }
    if (kind != RMQ_ENGINE_EPOLL)
        return; /* the kernel's accept has no stand-in */
    accept_error = ENFILE;
    accept_errors = 1;
    connected(&at);
    struct rmq_event event = next_of(RMQ_EVENT_ACCEPTED, 1);
    MUST(event.result == -ENFILE && !event.more);
    no_event();
    MUST(rmq_engine_accept(engine, listen_fd, 2) == 0);
    event = next_of(RMQ_EVENT_ACCEPTED, 2);
    MUST(event.result >= 0 && event.more);
}

/* A listener that the other engine has used, as over a restart of the broker (descriptor store). */
static void accepts_after_the_other_engine(void)
{
    struct sockaddr_in at;
    int listen_fd = listener(&at), flags = fcntl(listen_fd, F_GETFL);
    fcntl(listen_fd, F_SETFL, kind == RMQ_ENGINE_EPOLL ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
    open_engine(BUFFERS);
    MUST(rmq_engine_accept(engine, listen_fd, 1) == 0);
    no_event();
    connected(&at);
    struct rmq_event event = next_of(RMQ_EVENT_ACCEPTED, 1);
    MUST(event.result >= 0 && event.more && !(fcntl(event.result, F_GETFL) & O_NONBLOCK));
    no_event();
}

static const struct scene scenes[] = {
    {"accepts", accepts},
    {"accepts_without_descriptors", accepts_without_descriptors},
    {"accepts_beside_others", accepts_beside_others},
    {"accepts_after_the_other_engine", accepts_after_the_other_engine},
};

int main(int argc, char **argv) { return play_scene(argc, argv, scenes, sizeof scenes / sizeof *scenes); }
