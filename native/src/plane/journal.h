/* journal.h: the owner of the journal of write, and how it passes between write and ha when this broker changes its side.
 *
 * The owner alone changes the journal and append_offset. `owner` names it, and its writer is the role that it names:
 *
 *     owner of the old side   ends its turn, closes what it has of the log
 *                             stores opened = 0                       [journal-closed]
 *                             stores owner = the other role           [journal-given], rings it
 *     owner of the new side   sees its number, opens the log
 *                             stores opened = the tenure              [journal-opened]
 *
 * In TAKING the owner of the new side is write. It opens the log behind `may_open`, which control stores [journal-let]: control
 * makes the entries of all queues before, because write counts the offsets of the queues that it finds.
 *
 * A death before [journal-given] leaves the old owner: its replacement opens the journal, finds nothing to do, and gives it away.
 * A death behind it leaves the new one, which opens the journal as after any death.
 *
 * write gives the journal away when no owner of a port submits requests any more, the rings are empty, and nothing is parked. An
 * owner that lives says so by `stands`: it has seen the tenure behind the last request that it has published.
 */
#ifndef RMQ_JOURNAL_H
#define RMQ_JOURNAL_H
#include "plane/plane.h"

/* cdef-begin */
/* The role to which the tenure gives the journal: RMQ_ROLE_WRITE in TAKING and MASTER, else RMQ_ROLE_HA. */
uint32_t rmq_journal_role(const struct rmq_watermarks *watermarks);
/* 1: the role owns the journal. */
int rmq_journal_is_owned(struct rmq_plane *plane, uint32_t role);
/* 1: the role owns the journal, and may open the log. In TAKING write waits until control has let it. */
int rmq_journal_may_open(struct rmq_plane *plane, uint32_t role);
/* Control has made the entries of the queues of all records: write may open the log in this tenure. */
void rmq_journal_let_open(struct rmq_plane *plane);
/* The owner has opened the log. */
void rmq_journal_opened(struct rmq_plane *plane);
/* 1: the role to which the tenure gives the journal owns it. */
int rmq_journal_has_passed(struct rmq_plane *plane);
/* 1: that role has opened the log in this tenure. */
int rmq_journal_has_opened(struct rmq_plane *plane);
/* 1 in TAKING: write has opened the log in another tenure, to give it back. It has to count the queues anew. */
int rmq_journal_is_stale(struct rmq_plane *plane);
/* Control publishes the tenure, and all roles look at it. */
void rmq_tenure_publish(struct rmq_plane *plane, uint64_t tenure);
/* The owner of a port, behind its last request: it submits no more unless this broker is the master. */
void rmq_port_stand(struct rmq_plane *plane, uint32_t port);
/* The owner `from` has closed the log. */
void rmq_journal_give(struct rmq_plane *plane, uint32_t from, uint32_t to);
/* cdef-end */

/* 1: no owner of a port submits requests in this tenure. */
int rmq_ports_stand(struct rmq_plane *plane);
#endif
