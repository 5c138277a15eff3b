/* fuzz_answers.h: an answerer of a read worker that says every verdict. It names records of a log of one file. */
#ifndef FUZZ_ANSWERS_H
#define FUZZ_ANSWERS_H

#include "plane/plane.h"

enum { LOG_BYTES = 1 << 20, PIECES_MAX = 24, RECORDS_MAX = 4096 };

struct waiting { /* a cold frame that is not answered yet */
    uint32_t connection, connection_generation, pending, reader_generation, answerer;
};

void fuzz_give_verdict(struct rmq_plane *plane, const struct waiting *w); /* perhaps a question of its own, too */
void fuzz_make_log(struct rmq_plane *plane, const char *folder);
void fuzz_change_log(struct rmq_plane *plane);
#endif
