#include "reader/unsent.h"

#include <stdlib.h>
#include <string.h>

#define NOTES_FIRST 64u

void rmq_unsents_open(struct rmq_unsents *unsents, struct rmq_read_context *context)
{
    *unsents = (struct rmq_unsents){.context = context};
}

void rmq_unsents_close(struct rmq_unsents *unsents)
{
    for (uint32_t a = 0; a < RMQ_ANSWERERS_MAX; a++)
        free(unsents->of[a].ring);
}

struct rmq_note rmq_note_of(const struct rmq_verdict *v, uint32_t answerer)
{
    return (struct rmq_note){
        .connection = v->connection,
        .connection_generation = v->connection_generation,
        .pending = v->pending,
        .said = {.answerer_generation = v->answerer_generation,
                 .asker_generation = v->asker_generation,
                 .serial = v->serial,
                 .flags = v->flags},
        .answerer = answerer,
    };
}

/* 0, or -ENOBUFS: later. */
static int put(struct rmq_unsents *unsents, const struct rmq_note *note)
{
    const struct rmq_read_context *context = unsents->context;
    const struct rmq_answerer *a = rmq_answerer_at(context->plane, note->answerer);
    const struct rmq_role *role = &context->header->roles[a->role];
    if (rmq_load(&role->state) != 2 || rmq_load(&a->start_generation) != note->said.answerer_generation ||
        rmq_load(&role->generation) != note->said.answerer_generation)
        return 0; /* a new owner does not know of it */
    struct rmq_inbox_record record = {
        .type = RMQ_INBOX_UNSENT,
        .role = (uint16_t)context->role_number,
        .role_generation = context->generation,
        .connection = note->connection,
        .connection_generation = note->connection_generation,
        .pending = note->pending,
    };
    return rmq_inbox_put(context->plane, note->answerer, &record, &note->said, sizeof note->said, NULL) < 0 ? -ENOBUFS : 0;
}

/* 0: no memory. */
static int grow(struct rmq_notes *notes)
{
    uint32_t capacity = notes->capacity ? notes->capacity * 2 : NOTES_FIRST;
    struct rmq_note *ring = malloc(capacity * sizeof *ring);
    if (!ring)
        return 0;
    for (uint32_t i = 0; i < notes->count; i++)
        ring[i] = notes->ring[(notes->head + i) & (notes->capacity - 1)];
    free(notes->ring);
    *notes = (struct rmq_notes){.ring = ring, .count = notes->count, .capacity = capacity};
    return 1;
}

void rmq_unsent_tell(struct rmq_unsents *unsents, const struct rmq_note *note, uint32_t reason)
{
    struct rmq_notes *notes = &unsents->of[note->answerer];
    struct rmq_note told = *note;
    told.said.reason = (uint16_t)reason;
    unsents->context->counters[RMQ_READ_UNSENT]++;
    if ((!notes->count && put(unsents, &told) == 0) || (notes->count == notes->capacity && !grow(notes)))
        return; /* without memory the answerer waits until its own time for the answer is over */
    notes->ring[(notes->head + notes->count++) & (notes->capacity - 1)] = told;
    unsents->waiting++;
}

void rmq_unsents_send_all(struct rmq_unsents *unsents)
{
    for (uint32_t a = 0; a < RMQ_ANSWERERS_MAX; a++) {
        struct rmq_notes *notes = &unsents->of[a];
        while (notes->count && put(unsents, &notes->ring[notes->head]) == 0) {
            notes->head = (notes->head + 1) & (notes->capacity - 1);
            notes->count--;
            unsents->waiting--;
        }
        if (!notes->count && notes->capacity > NOTES_FIRST) {
            free(notes->ring);
            *notes = (struct rmq_notes){0};
        }
    }
}
