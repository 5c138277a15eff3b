/* layout.h: the shared-memory plane, and the protocol by which processes write, read and replace one another in it.
 *
 * All workers of one broker map the same three kinds of files under /dev/shm:
 *   <name>-watermarks   one page; processes outside the broker may map it, too (Spark, `store inspect`)
 *   <name>-plane        tables, rings, journal: struct rmq_plane_header says where
 *   <name>-arena<P>     the bytes that requests of port P point into
 * <name> is ringmq-<st_dev>-<st_ino> of the store root in hex: a store has one plane. The main process (the role
 * SUPERVISOR) makes the plane again whenever it opens the store. All integers are in the machine's own order.
 *
 * Version: build_native.py computes RMQ_PLANE_VERSION from the text of this header and of the other sources that define the
 * plane. rmq_plane_check refuses a plane whose magic, version or size of the header differ from those of its own build.
 *
 * What must stay true:
 *  1. One writer per word. The comment behind each block names the role that writes it. Exceptions: a bell's
 *     `sleeping`, a role's `activation_requested`, the head of the inbox, and words of a dead role, which the
 *     supervisor resets. The journal and append_offset have one writer at a time, which the journal names (journal.h).
 *  2. A word is published after what it promises (release), and read before it is relied on (acquire).
 *  3. Any worker may die between any two stores. [name] below is the crash point (RMQ_CRASH) that stands there.
 *  4. Ids of topics and groups, and queue slots, are never reused while the plane lives.
 *  5. Every wait of a role has a time-out. A waker that dies before it rings delays what it has published, no more:
 *     by 100 ms at write, flush and dispatch, by 250 ms at control, by 1 s at a read worker.
 *
 * 1. SPSC RINGS (struct rmq_ring, ring.h). The producer owns head, the consumer owns tail. Both only grow.
 *
 *     producer: fill the slots from head on; store head + n; fence; if the consumer's `sleeping` is set, exchange it
 *               for 0 and write its eventfd
 *     consumer: store `sleeping`; fence; look at head once more; wait; use the slots; store tail + n
 *
 *   The two fences let the producer see `sleeping` or the consumer see the head. A death leaves
 *     slots behind head      no process has read them. The next producer fills them again.
 *                            [port-request-filled, reader-request-filled, verdict-filled, reader-commit-filled,
 *                            port-commits-filled, dispatch-arrival]
 *     a head without a bell  rule 5. [port-requests-published, reader-requests-published, reader-commit-published,
 *                            port-commits-published, dispatch-arrived-head, write-append-offset, flush-completed-head]
 *     used slots before the store of tail
 *                            the next consumer takes them once more. A read worker drops them by their generation
 *                            [reader-completions-answered, reader-verdicts-applied]. Control stores the same offsets
 *                            again [control-commits-taken]. The completer knows each answer's place (4).
 *
 * 2. ASKS (asks.c). An ask is a request of one role (the asker) to another (the answerer). Each answerer has one inbox, a byte
 *   ring of rmq_inbox_record with many producers. It has a ring of answers (rmq_verdict, SPSC) to each role that asks it.
 *   Control is the first answerer.
 *
 *   The asker
 *     1  stores the inbox's number and its head as claim_position in its own role block; fence
 *     2  moves head by compare-and-swap, or begins again. If the record does not fit before the ring's end, a PAD record
 *        fills the rest
 *     3  stores the negative length                                   [inbox-claimed]
 *     4  fills the record                                             [inbox-filled]
 *     5  stores the positive length, which commits the record; stores ~0 as claim_position
 *     6  sets `activation_requested` of an answerer that may be dormant [worker-activation-requested]
 *     7  rings the answerer; a read worker does 6 and 7 behind the asks of a turn, at least behind 32
 *   The answerer stops at a length that is not positive. Of each record before that it
 *     1  takes a copy
 *     2  stores the record's end as consumed_to                       [inbox-given-up]
 *     3  makes the record a PAD                                       [inbox-padded]
 *     4  clears the bytes behind the first eight                      [inbox-cleared]
 *     5  zeroes the length                                            [inbox-zeroed]
 *     6  stores tail                                                  [inbox-taken]
 *     7  fills a record of the asker's ring of answers [verdict-filled], stores head [verdict-published], rings the asker;
 *        an answerer with many answers rings behind several, and at the end of its turn
 *
 *   Consumed bytes are zero, so that no stale length counts as a record.
 *
 *   A dead asker leaves an orphan, which stops the inbox: a length of 0 (death between 2 and 3) or a negative length. The
 *   supervisor stores ~0 into the dead role's claim_position and rings control. The answerer makes a PAD of the orphan when no
 *   role claims at or below the inbox's tail. So the answerer waits for an asker that is only stopped. A length of 0 does not
 *   tell the size of the claim. The PAD then ends at the next length that is not 0, at the ring's end, at head, or where a
 *   living role may have claimed.
 *
 *   A dead answerer leaves a PAD, which its replacement skips, or a length of 0, which its replacement treats as an orphan.
 *
 *   Lost asks: an ask is done, or its client is told to try again. Control's askers see control's new generation and give up
 *   everything that they have asked. Any other answerer may be dormant when it is asked. So an ask waits for it, at most
 *   RMQ_ASK_TIMEOUT_MS, and the answerer publishes at its start which asks it takes.
 *
 *   The answerer at its start
 *     1  stores start_position: tail, or consumed_to if that is larger [answerer-begins]
 *     2  stores state = serving; fence                                [answerer-serves]
 *     3  stores serving_since_ns = clock                              [answerer-served]
 *     4  stores start_generation = the role's generation              [answerer-begun]
 *     5  takes asks. An ask is void if it was received RMQ_ASK_TIMEOUT_MS or longer before serving_since_ns.
 *   The asker
 *     if start_generation is the role's generation: gives up asks before start_position, which were lost with the dead
 *         answerer, and void asks. The others wait.
 *     if the role is not serving: reads the clock, then the state, and gives up asks that have waited RMQ_ASK_TIMEOUT_MS. The
 *         answerer reads its own clock later, so these asks are void.
 *
 *   Dropped answers: a verdict may say TELLS. If the reader drops its answer before the first byte has left (the connection is
 *   gone, the ask was given up, a record is gone), it puts UNSENT into the inbox, and the answerer takes its decision back. UNSENT
 *   names the answerer's generation, and means nothing to another one. While 4,096 of them wait for room, the reader takes no
 *   verdict of that answerer. A reader that dies sends none for the answers that it had taken. Those that it had not taken are
 *   still in its ring [verdict-published]: the answerer finds them there when it sees the reader's new generation, and the
 *   replacement sends UNSENT when it drops them [reader-verdicts-applied]. The first of the two words counts.
 *
 *   Held polls: HOLD takes an ask out of the pending entries into a slot of the reader that the answerer names [reader-poll-held].
 *   Slot, serial and both generations name the poll in later verdicts [reader-poll-answered]; a stale one is dropped. Nothing of
 *   it is in shared memory but asks and verdicts, so a death of the reader ends its polls with its connections.
 *     the answerer  looks for messages again behind HOLD: one that came in between finds the poll, or is found. It looks for room
 *                   in the reader's ring before it decides. At a new generation of the reader it forgets the polls of the old one
 *                   before it gives a message to any.
 *     the reader    takes verdicts before it looks at deadlines, and answers what is over for RMQ_HELD_GRACE_MS itself. At a
 *                   new generation of the answerer (start_generation, or that of a verdict) it moves all polls out of its slots
 *                   [reader-polls-emptied], before it takes a verdict of the new one. It asks for them again, at most 1,024 a
 *                   turn [reader-poll-asked-again]. Such an ask is made once more if it is lost with the next answerer.
 *                   The third answerer that dies with it is the last one: then the reader answers the poll itself.
 *
 * 3. A REQUEST'S WAY THROUGH ITS PORT (port.c, writer.c, write_plan.c, write_batch.c). A death of the actor behind a
 *   step leaves what stands beside it.
 *
 *     owner  bytes into the arena             bytes of no request                           [reader-properties-ready]
 *            slots behind request.head        slots that no process has read                [..-request-filled]
 *            request.head                     requests that write takes                     [..-requests-published]
 *     write  plan                             nothing: it stores nothing
 *            journal.intent_high              bytes between append_offset and intent_high:  [write-intent]
 *            records, blanks                  the next write zeroes them [write-element, write-element-offset,
 *                                             write-blank, write-record]
 *            completions, parked entries      slots that no process has read                [write-answer]
 *            entry of generation + 1          an entry that no process reads                [write-journal-entry]
 *            journal.generation               THE COMMIT: the batch has happened as a whole [write-journal]
 *            request tails                    \ the next write stores them as the entry says, before it takes
 *            appended heads                    | requests: absolute values, the same any number of times
 *            parked head                       | [write-request-tail, write-completion-head, write-parked-head,
 *            append_offset                    /  write-append-offset]
 *            bells                            rule 5
 *     owner  uses the completion              the next owner takes it again
 *            tail of its ring                 the arena's bytes are free                    [port-completions-done]
 *
 *   Write drops a request whose generation is not its port's: it stores nothing and fills no completion. A refused request
 *   has a completion with bytes = 0. rmq_port_settled and rmq_port_answered read the journal, because a write that died in
 *   its redo has moved only some of the words. A slave has no write. Its ha commits whole records by the same generation,
 *   and wipes the rest (ha_receiver.c) [receive-intent, receive-bytes, receive-journal, receive-append-offset,
 *   receive-wiped]. At its start it copies the positions of the ports into the entry that is not the newest one
 *   [receive-parked-kept, receive-ports-kept]. It changes none, so both entries keep them for the write that follows it.
 *   journal.h has the passing of the journal between the two.
 *
 *   TIED REQUESTS. RMQ_APPEND_FLAG_WITH_NEXT ties a request to its successor in the ring. A chain is one unit: one store
 *   of request.head publishes it, one batch takes it, and so one generation of the journal commits it, with the
 *   completions of all its requests. A death of write or of the owner leaves the whole chain or none of it.
 *     place     a chain that begins within its port's share of a batch is taken whole. Its excess is taken off the port's
 *               next shares. A chain moves to the next log file at most once, and waits as a whole for a missing file.
 *     room      it waits until rings and parked_max have room for all of its requests. While it waits for room in
 *               `parked`, the other ports leave as many places free as it needs.
 *     refusal   a request at fault refuses the chain: it has its own cause, the others have its code and CHAIN_REFUSED.
 *               In an ordered port refused_at is then the position behind the chain's last request.
 *     bytes     at most maxMessageSize + 64 KiB + RMQ_BATCH_BYTES, and the size of a file: CHAIN_BYTES.
 *     broken    more than RMQ_CHAIN_MAX requests, more than parked_max, or no end before request.head, because write never
 *               waits for an end. The first request has CHAIN_BROKEN. Write refuses the others one by one, perhaps in
 *               several batches. refused_at has the progress, also in a port without order.
 *     drop      a chain of an older generation: its requests leave the ring one by one, because none is stored.
 *   The generation of the journal lies in shared memory. A power cut, a kill of all processes at once or a lost master may
 *   cut a chain: the log then has its first records without the others. The order of a chain makes that harmless: the
 *   records that keep something come first, the record that ends something comes last (docs/decisions/cut-chains.md).
 *
 * 4. PARKED -> COMPLETED (completer.c, a part of flush). A request that waits for the disk or for replicas gets an
 *   entry in `parked` instead of a completion. Its answer has a fixed place in the port's `completed`:
 *   completed_position, the number of the port's requests that were parked before it. The journal counts them. Write
 *   parks a request only when this place is free, so the completer waits for no owner.
 *
 *     completer: fill the slots of the entries from parked.tail on that can be answered [flush-answer]; store each
 *                port's completed.head [flush-completed-head] and ring its owner; store parked.tail
 *                [flush-parked-tail]
 *
 *   The next flush passes over an entry whose place lies before completed.head: it is answered already. So no answer
 *   comes twice, and none is skipped.
 *
 *   A port at its cap, or a full `parked`, makes write store awaits_parked, arm its bell and look once more. The completer
 *   stores parked.tail, fences, looks at awaits_parked and rings write. A dead write leaves the word as it was, and the
 *   completer rings without effect until the replacement stores the word.
 *
 * 5. TABLES (plane_tables.c; control writes, dispatch its half of a queue).
 *     hash            of names, expressions and pairs of ids: with name_secret, because clients choose these keys. It stays in
 *                     the header alone: not in logs, metrics or other files.
 *     add             fill the entry [control-topic-filled, and alike for queue, group, offset]; store the count
 *                     [-counted]; store the cell of the hash [-findable]. A death before the count: the next control
 *                     fills the entry again. A death between count and cell: a search does not find the name (it may find
 *                     a queue, beside queue 0 of its topic). The next control adds the name again, and this plane loses
 *                     the place of the first entry.
 *     settings        of a topic or a group are one word, of the broker a word each: one store changes them.
 *     subscription    control fills copy[(version + 1) & 1] [control-subscription-filled], then stores version + 1
 *                     [control-subscription-published]. A reader copies copy[version & 1], then checks that version is the
 *                     same. Control may give an entry that says NONE to another pair [control-subscription-unlinked,
 *                     -nameless, -named]. A new control withdraws all subscriptions: their clients register again.
 *                     admission_rules.c publishes admission rules in the same way.
 *     half shares     transactions alone stores the counts of open halves, cell by cell, then open and arrived. Readers refuse
 *                     half messages by them. half_shares_layout.h says what a death leaves; the replacement counts anew.
 *     filter          a compiled condition in a slot. Control stores an even version [control-filter-withdrawn], fills the
 *                     slot [control-filter-filled], then stores an odd version [control-filter-published]. A reader
 *                     copies the program, checks that the version is the same, and verifies its copy. A subscription names
 *                     slot and version. If the slot has another version, the reader asks control. A new control withdraws
 *                     all programs.
 *     consumer offset one store. Commits that readers and other owners of ports put into their
 *                     commit rings move it, or requests.
 *     queue           dispatch writes the units, then stores times [dispatch-queue-times], min_offset
 *                     [dispatch-queue-min] and max_offset [dispatch-queue-max]. A reader that parks a pull stores its flag
 *                     [reader-parked-flagged], fences, and reads max_offset. Dispatch stores max_offset, fences, and reads
 *                     the flag. So one of the two sees the other.
 *
 * 6. WATERMARKS (watermarks_layout.h). All are positions in the log, in bytes.
 *
 *     append_offset >= flushed_offset, replicated_offset, confirmed;   confirmed >= dispatched_offset
 *
 *     append_offset      write (a slave: ha)  by the journal, behind the commit
 *     flushed_offset     flush                read append_offset, sync every file up to it [flush-synced], store it
 *                                             [flush-flushed-offset]. After a death those bytes are flushed again. Flush
 *                                             first makes their pages dirty, because a failed sync leaves clean pages.
 *     replicated_offset  ha of a master       from the reports of slaves; only grows [ha-replicated]
 *     confirm_limit      ha                   before replicated_offset, as a client that is answered may read at once
 *                                             [ha-confirmed]; a slave's may fall
 *     confirmed          no word              rmq_confirm_offset: append_offset (by the policy flushed_offset), at
 *                                             most confirm_limit, and never below dispatched_offset
 *     dispatched_offset  dispatch             behind units, index and queues [dispatch-dispatched-offset]. After a
 *                                             death everything behind it is dispatched again.
 *     min_offset         flush                the log's first byte; only grows
 *     tenure             control              no position: the side of this broker. Control alone changes it while workers run,
 *                                             so that it is one word for all of them. A reader looks again at each decision
 *                                             and keeps no copy.
 *
 *   Each of these relations, and tail <= head <= tail + capacity of each ring, is checked by the role that uses it, once a
 *   batch (invariant.h). The check reads the word that only grows last. A relation that does not hold ends the process.
 *
 * 7. GENERATIONS AND REPLACEMENTS. The supervisor adds 1 to role.generation and clears the bell before it starts the
 *   process. Requests, completions, asks and answers carry a generation. worker_activation.h has the start of a
 *   dormant worker. When the supervisor dies, all workers end.
 *     port         its owner's, taken over by rmq_port_claim [port-claimed]: requests of an older one are dropped
 *     connection   (reader generation, index, generation of the index): in asks and answers
 *     pending      a reader's token is index | turn << RMQ_PENDING_INDEX_BITS, and each release moves the turn
 *     journal      odd and even numbers name the two entries
 *
 *   First steps of the replacement of a dead worker:
 *     read      claims. Lends no buffer before its request ring is empty, as write may read the arena, and before
 *               control has taken the asks that were in the inbox (at most 5 s) [reader-started]. For 5 s and
 *               syncFlushTimeout it uses half of its slots: completions of old requests may still need room in its rings.
 *     control   withdraws subscriptions; claims; waits for rmq_port_settled and reads the log from its last snapshot
 *               on. Read workers see its generation: they answer 2 to its open requests and close registered connections.
 *     write     redo (3); zeroes up to intent_high; queue offsets = max_offset of queues, and the records behind
 *               dispatched_offset.
 *     flush     dirties pages from flushed_offset on; continues at parked.tail.
 *     dispatch  goes on at dispatched_offset: units have fixed places, index entries are recognised.
 *     ha        of a master: forgets its peers; its words keep their values until slaves are back. Of a slave: takes
 *               the journal's append_offset, zeroes up to intent_high, connects.
 *     service   claims; waits for rmq_port_answered; peeks at the completions, and saves its progress by their tokens;
 *               rmq_port_done; rmq_port_acknowledge if the port is ordered; continues. After a death between two of these
 *               steps the next replacement begins at the first. A request of the dead worker was not stored if its token
 *               is neither in the progress nor among the completions. (rmq_port_take drops completions of dead workers.)
 *
 *   An ordered port (RMQ_PORT_ORDERED): write refuses all requests after a refused one, so that n is never missing while
 *   n + 1 is stored. The journal keeps refused_at, the position behind the refusal, over deaths of write. The owner
 *   stores `acknowledged` = request.head [port-acknowledged]. Write takes requests from there on again. A dropped request
 *   neither sets nor ends a refusal. rmq_port_refusal (port.h) is the rule.
 *
 * 8. THE TWO WAKE-UPS OF FLUSH. rmq_role_wake_asleep rings at RMQ_BELL_ASLEEP alone, rmq_role_wake at RMQ_BELL_AT_DISK,
 *   too. Here with SYNC_FLUSH and SYNC_MASTER; time runs down, (0), (ASLEEP) and (AT_DISK) are flush's `sleeping`.
 *
 *     write                         flush                                          ha
 *     append_offset of batch 1      sleeps (ASLEEP)
 *       wake_asleep ---- rings ---> sync 1 begins. The oldest entry waits
 *                                   for the disk: polls every 20 ms (0)
 *     append_offset of batch 2                                                     replicated_offset: half of batch 1
 *       wake_asleep -- no ring      sync 1 ends: flushed_offset. Answers           no ring -- wake
 *                                   half of batch 1. append_offset is larger:
 *                                   sync 2 begins by itself. The oldest entry
 *                                   is on disk: listens for replicas (AT_DISK)
 *     append_offset of batch 3
 *       wake_asleep -- no ring                                                     replicated_offset: all of batch 1
 *                                   answers the rest of batch 1 <------------------- rings -- wake
 *                                   The oldest entry waits for the disk: polls (0) replicated_offset: all
 *                                   sync 2 ends: answers batch 2                   no ring -- wake
 *                                   sync 3 begins by itself; ends: answers batch 3
 *                                   nothing to do: stores ASLEEP, fences, looks
 *                                   once more, waits at most 100 ms (ASLEEP)
 *
 *   Each "no ring" saves its waker a system call and flush a turn. It loses nothing, because flush reads the marks after
 *   the sync. Failures of replication ring as reports do: ha rings when replication_state changes, and write when it has
 *   parked requests while the state is set. Without SYNC_FLUSH write rings for log files alone, when it has begun one or
 *   needs one; flush syncs by the clock. flusher.c has the rule for each state, and the reasons.
 */
#ifndef RMQ_LAYOUT_H
#define RMQ_LAYOUT_H
#include "plane/admission_layout.h"
#include "plane/asks_layout.h"
#include "plane/filter_layout.h"
#include "plane/half_shares_layout.h"
#include "plane/metrics_layout.h"
#include "plane/ports_layout.h"
#include "plane/replication_layout.h"
#include "plane/roles_layout.h"
#include "plane/settings_layout.h"
#include "plane/tables_layout.h"
#include "plane/watermarks_layout.h"

/* cdef-begin */
/* First pages of the plane. */
struct rmq_plane_header {
    uint64_t magic;    /* "RMQPLANE" */
    uint32_t version;
    uint32_t header_bytes;
    uint64_t plane_bytes;
    uint64_t start_id;
    uint64_t recovered_end;      /* supervisor, once: the end of the recovered part that may be read; dispatch reaches it */
    uint64_t name_secret[2];     /* supervisor, once: of the hashes of all tables (name_hash.h) */
    uint64_t first_append;       /* supervisor; control in TAKING: end of the records of other masters and of earlier starts */
    uint64_t pop_compared;       /* supervisor, then pop: the tenure for which POP's memory has been compared with the log */
    struct rmq_tables tables;    /* control; dispatch: its half of a queue */
    struct rmq_memory memory;    /* supervisor */
    struct rmq_settings settings; /* supervisor; control: live properties */
    struct rmq_role roles[RMQ_ROLES_MAX]; /* the role itself; supervisor */
    struct rmq_ports ports;      /* supervisor: rows; owners: requests; write: answers, journal; flush: answers of parked */
    struct rmq_asks asks;        /* askers and answerers */
    struct rmq_replication replication; /* ha; control: commands */
    struct rmq_latency latency[RMQ_ROLES_MAX][RMQ_LATENCY_STAGES]; /* the role itself */
    struct rmq_admission admission; /* control */
    struct rmq_filters filters;  /* control */
    struct rmq_half_shares half_shares; /* transactions */
};
/* cdef-end */

#define RMQ_PLANE_MAGIC 0x454e414c50514d52ull /* "RMQPLANE" */
#ifndef RMQ_PLANE_VERSION
#define RMQ_PLANE_VERSION 0 /* a build by hand; the build of the package reckons it from the sources of the plane */
#endif
#endif
