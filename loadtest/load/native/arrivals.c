#include "arrivals.h"

#include <errno.h>
#include <stdlib.h>

#include "engine.h"
#include "message.h"

int arrivals_init(struct arrivals *a, uint64_t room, uint32_t groups)
{
    *a = (struct arrivals){.room = room, .groups = groups};
    a->sent_ns = calloc(room ? room : 1, sizeof *a->sent_ns);
    a->left = calloc(room ? room : 1, sizeof *a->left);
    hist_init(&a->late);
    hist_init(&a->whole);
    return a->sent_ns == NULL || a->left == NULL ? -ENOMEM : 0;
}

void arrivals_free(struct arrivals *a)
{
    free(a->sent_ns);
    free(a->left);
}

void arrivals_sent(struct arrivals *a, uint64_t sequence, uint64_t sent_ns)
{
    a->sent_ns[sequence] = sent_ns;
    a->left[sequence] = a->groups;
}

void arrivals_take(struct arrivals *a, const struct record *record)
{
    char digits[SEQUENCE_DIGITS + 1] = "", *end = digits;
    if (record->body_len >= SEQUENCE_DIGITS)
        memcpy(digits, record->body, SEQUENCE_DIGITS);
    uint64_t sequence = strtoull(digits, &end, 16);
    a->received++;
    if (end != digits + SEQUENCE_DIGITS || sequence >= a->room || a->left[sequence] == 0) {
        a->unknown++;
        return;
    }
    a->left[sequence]--;
    if (a->sent_ns[sequence] == 0)
        return;
    uint64_t late_ns = now_ns() - a->sent_ns[sequence];
    hist_add(&a->late, late_ns);
    if (a->left[sequence] == 0)
        hist_add(&a->whole, late_ns);
}
