#include "base/sigbus_guard.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

static struct sigaction before;
static int open_error;
static int (*volatile replacement)(void *address);
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* In the thread's static block: a handler may not allocate. */
static _Thread_local sigjmp_buf *volatile landing __attribute__((tls_model("initial-exec")));

static void on_bus_error(int number, siginfo_t *what, void *context)
{
    (void)context;
    int is_sent = what->si_code <= 0;
    if (landing && !is_sent)
        siglongjmp(*landing, 1);
    if (replacement && !is_sent && replacement(what->si_addr))
        return;
    sigaction(number, &before, NULL); /* the access is repeated, and the previous handler gets the signal */
    if (is_sent)
        raise(number);
}

static void take_over(void)
{
    struct sigaction ours = {.sa_sigaction = on_bus_error,
                             .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK}; /* left by a jump */
    sigemptyset(&ours.sa_mask);
    open_error = sigaction(SIGBUS, &ours, &before) < 0 ? -errno : 0;
}

int rmq_sigbus_guard_open(void)
{
    int rc = pthread_once(&once, take_over);
    return rc ? -rc : open_error;
}

void rmq_sigbus_guard_replace(int (*replace)(void *address)) { replacement = replace; }

int rmq_sigbus_guard_run(void (*work)(void *), void *argument)
{
    sigjmp_buf here;
    if (sigsetjmp(here, 0)) {
        landing = NULL;
        return -EFAULT;
    }
    landing = &here;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* all of the work lies between, whatever is inlined */
    work(argument);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    landing = NULL;
    return 0;
}
