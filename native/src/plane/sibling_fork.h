/* sibling_fork.h: forks a child whose parent is the caller's parent, so that the parent waits for it and owns it. */
#ifndef RMQ_SIBLING_FORK_H
#define RMQ_SIBLING_FORK_H

/* cdef-begin */
/* Forks. The child's parent is the parent of this process (CLONE_PARENT). Returns 0 in the child, the child's process
 * id in the caller, or -errno: -ENOTSUP if the kernel does not say which word holds glibc's thread id.
 *
 * The hooks are PyOS_BeforeFork, PyOS_AfterFork_Parent and PyOS_AfterFork_Child. The caller holds the interpreter's
 * lock, so it calls through a pointer, not through `lib`. The process must have one thread. */
int rmq_sibling_fork(void (*before)(void), void (*after_in_parent)(void), void (*after_in_child)(void));
/* 0 if rmq_sibling_fork can work here, or -ENOTSUP. */
int rmq_sibling_fork_probe(void);
/* cdef-end */

#endif
