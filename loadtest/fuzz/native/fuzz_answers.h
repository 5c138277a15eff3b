/* fuzz_answers.h: an answerer of a read worker that says every verdict: to asks, to polls that it has held, and to those that it
 * has not. It names records of a log of one file.
 */
#ifndef FUZZ_ANSWERS_H
#define FUZZ_ANSWERS_H

#include "plane/plane.h"

enum { LOG_BYTES = 1 << 20, PIECES_MAX = 24, RECORDS_MAX = 4096, SLOTS = 40, SERIALS = 2 };

struct waiting { /* a cold frame that is not answered yet */
    uint32_t connection, connection_generation, pending, reader_generation, answerer;
    uint32_t ask_bytes; /* 0: its frame is kept, so that it cannot be held */
};

/* Perhaps of another one, too. */
void fuzz_give_verdict(struct rmq_plane *plane, const struct waiting *w, int64_t now_ns);
int fuzz_may_hold(const struct rmq_inbox_record *record);
void fuzz_make_log(struct rmq_plane *plane, const char *folder);
void fuzz_change_log(struct rmq_plane *plane);
#endif
