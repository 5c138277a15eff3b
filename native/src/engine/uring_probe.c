/* Does this host allow io_uring, with all that the engine needs? */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/uring.h"

#define PROBE_ENTRIES 1024u /* a reader's ring */

static const char *advice(int error, const char *call)
{
    if (error == -EPERM || error == -EACCES)
        return strstr(call, "setup") ? "allow it with `sysctl kernel.io_uring_disabled=0` (or membership in kernel.io_uring_group), "
                                       "or with a container seccomp profile that permits io_uring_setup, io_uring_enter and "
                                       "io_uring_register"
                                     : "the container's seccomp profile must permit io_uring_setup, io_uring_enter and "
                                       "io_uring_register";
    if (error == -ENOSYS)
        return "the kernel has no io_uring or a seccomp profile hides it: Linux 6.0 or later is needed, and a profile that permits "
               "io_uring_setup, io_uring_enter and io_uring_register";
    if (error == -ENOMEM)
        return "raise the locked-memory limit (ulimit -l, LimitMEMLOCK=)";
    if (error == -EMFILE)
        return "raise the limit of open files (ulimit -n, LimitNOFILE=)";
    if (error == -ENFILE)
        return "raise the machine's limit of open files (sysctl fs.file-max)";
    return "Linux 6.0 or later is needed";
}

/* Multishot receive into a lent buffer over a socket pair: the newest thing that the engine needs (Linux 6.0). */
static int probe_receive(struct rmq_uring *engine, const char **call)
{
    int pair[2], rc;
    *call = "socketpair";
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return -errno;
    *call = "io_uring_enter(IORING_OP_RECV, multishot)";
    rmq_uring_lend(engine, &(uint32_t){0}, 1);
    rc = rmq_uring_receive(engine, pair[0], 1);
    if (rc == 0 && write(pair[1], "x", 1) != 1)
        rc = -errno;
    if (rc == 0)
        rc = rmq_uring_wait(engine, 1000000000);
    if (rc == 0) {
        struct rmq_event event;
        rc = -ETIME;
        if (rmq_uring_take(engine, &event, 1) == 1)
            rc = event.result < 0 ? event.result : event.more ? 0 : -EINVAL;
    }
    close(pair[0]);
    close(pair[1]);
    return rc;
}

int rmq_uring_probe(char *why, size_t why_bytes)
{
    static uint8_t buffers[8 * 64];
    struct rmq_engine_options options = {.buffers = buffers, .buffer_bytes = 64, .buffer_count = 8, .entries = PROBE_ENTRIES, .wake_fd = -1};
    struct rmq_uring *engine;
    const char *call = "";
    int rc = rmq_uring_open(&engine, &options, &call);
    if (rc == 0) {
        rc = probe_receive(engine, &call);
        rmq_uring_close(engine);
    }
    if (rc < 0 && why_bytes)
        snprintf(why, why_bytes, "io_uring is refused: %s answered %s (%s); %s", call, strerrorname_np(-rc), strerror(-rc),
                 advice(rc, call));
    return rc;
}
