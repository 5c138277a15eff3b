/* sigbus_guard.h: touching a mapped file where the file system may have no page to give. C only.
 *
 * A store into a mapping has no result: what a write would report (full disk, I/O error) comes as SIGBUS. Work under
 * the guard is given up there instead.
 */
#ifndef RMQ_SIGBUS_GUARD_H
#define RMQ_SIGBUS_GUARD_H

/* Installs the handler of SIGBUS, once per process. Outside of guarded work SIGBUS has its former effect. 0 or -errno. */
int rmq_sigbus_guard_open(void);
/* Runs work(argument). 0, or -EFAULT when a page was missing: the work is half done. It may hold nothing (locks,
 * memory), and it may not nest. */
int rmq_sigbus_guard_run(void (*work)(void *), void *argument);
/* Outside of guarded work `replace` gets the address of each missing page. If it maps another page there it returns 1, and the
 * access is repeated. It runs in the handler of a signal. One per process, NULL = none. */
void rmq_sigbus_guard_replace(int (*replace)(void *address));
#endif
