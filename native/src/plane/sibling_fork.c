/* sibling_fork.c: fork() with CLONE_PARENT.
 *
 * glibc has no call for it, so this is the system call with the work that glibc's fork does around it in a process with
 * one thread. No other thread can hold a lock of malloc, stdio or the loader then, so two words remain:
 *
 * - glibc keeps the thread's id in its thread descriptor. Recursive and robust mutexes compare it with their owner. The
 *   child's kernel part must store the new id there, and clear the word when the thread ends. The address is no public
 *   name, but the kernel knows it: glibc has registered it (set_tid_address(2), or CLONE_CHILD_CLEARTID of fork).
 * - The kernel forgets the list of held robust mutexes in a child. The child registers the same list head again.
 *
 * Handlers of pthread_atfork do not run. Libraries that have some (OpenSSL up to 1.1, OpenBLAS) must not depend on them
 * here: tests/ipc/test_image.py looks at OpenSSL's random bytes, and numpy is loaded behind the fork. */
#include "plane/sibling_fork.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The word with the thread's id in the thread descriptor. NULL if the kernel does not say, or if it is another word. */
static int *thread_id_word(void)
{
    int *word = NULL;
    if (prctl(PR_GET_TID_ADDRESS, &word, 0, 0, 0) != 0 || word == NULL || *word != (int)syscall(SYS_gettid))
        return NULL;
    return word;
}

int rmq_sibling_fork_probe(void)
{
    return thread_id_word() == NULL ? -ENOTSUP : 0;
}

int rmq_sibling_fork(void (*before)(void), void (*after_in_parent)(void), void (*after_in_child)(void))
{
    int *word = thread_id_word();
    if (word == NULL)
        return -ENOTSUP;
    struct robust_list_head *robust = NULL;
    size_t robust_size = 0;
    if (syscall(SYS_get_robust_list, 0, &robust, &robust_size) != 0)
        robust = NULL;
    before();
    long flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
#if defined(__x86_64__)
    long pid = syscall(SYS_clone, flags, NULL, NULL, word, NULL); /* stack, parent's word, child's word, TLS */
#elif defined(__s390__)
#error "the order of clone's arguments is another one here"
#else
    long pid = syscall(SYS_clone, flags, NULL, NULL, NULL, word); /* stack, parent's word, TLS, child's word */
#endif
    if (pid == 0) {
        if (robust != NULL)
            syscall(SYS_set_robust_list, robust, robust_size);
        after_in_child();
        return 0;
    }
    int error = errno;
    after_in_parent();
    return pid > 0 ? (int)pid : -error;
}
