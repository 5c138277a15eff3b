/* Fuzz driver of the frame parsers, built with sanitizers by test_frame_header.py. Input: frames, each with a u32 length in
 * front (machine order). Every frame is parsed as it is, then with random damage; every entry is read, unescaped and put
 * into an answer, inside buffers of exactly the right size. Prints how many parsed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "frame_header.h"

static uint64_t state = 88172645463325252ull;

static uint32_t next_random(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % below;
}

static void answer_with(const struct rmq_ext_entry *e, uint32_t serialise)
{
    static const struct rmq_answer_house house = {.region = "r\"", .host_hex = "0000000000000000", .region_length = 2,
                                                  .host_hex_length = 16};
    struct rmq_send_answer a = {.head = {.remark = (const char *)e->value, .remark_length = e->value_length, .serialise = serialise},
                                .house = &house, .uniq_key = e->value, .uniq_key_length = e->value_length,
                                .batch = e->value, .batch_length = e->value_length};
    size_t bound = rmq_send_answer_bound(&a);
    uint8_t *to = malloc(bound);
    if (rmq_send_answer_put(to, &a) > bound)
        abort();
    free(to);
}

static int run(const uint8_t *bytes, uint32_t length)
{
    uint8_t *frame = malloc(length ? length : 1); /* exact size: an overrun is seen */
    struct rmq_frame_header h;
    memcpy(frame, bytes, length);
    int ok = rmq_frame_header_parse(frame, length, &h) == 0;
    for (uint32_t i = 0; ok && i < h.ext_count; i++) {
        struct rmq_ext_entry *e = &h.ext[i];
        int32_t small;
        int64_t large;
        if (e->key < frame || e->key + e->key_length > frame + length || e->value < frame || e->value + e->value_length > frame + length)
            abort();
        rmq_text_int32(e->value, e->value_length, &small);
        rmq_text_int64(e->value, e->value_length, &large);
        answer_with(e, next_random(2));
        uint8_t *copy = malloc(e->value_length ? e->value_length : 1);
        memcpy(copy, e->value, e->value_length);
        if (rmq_json_unescape(copy, e->value_length) > (int64_t)e->value_length)
            abort();
        free(copy);
    }
    free(frame);
    return ok;
}

static uint32_t damage(uint8_t *frame, uint32_t length)
{
    static const uint8_t tokens[] = "\"\\{}[],:u0d-1\x01\x02\xff\x7f\0 n";
    for (uint32_t n = 1 + next_random(4); n && length; n--) {
        uint32_t at = next_random(length);
        switch (next_random(5)) {
        case 0: frame[at] ^= (uint8_t)(1u << next_random(8)); break;
        case 1: frame[at] = tokens[next_random(sizeof tokens - 1)]; break;
        case 2: length = at; break;
        case 3:
            if (length > 8)
                memmove(frame + next_random(length - 8), frame + next_random(length - 8), 8);
            break;
        default: frame[at] = (uint8_t)next_random(256);
        }
    }
    return length;
}

int main(int argc, char **argv)
{
    long turns = argc > 2 ? atol(argv[2]) : 1000;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!file)
        return 2;
    long parsed = 0;
    uint32_t length;
    while (fread(&length, sizeof length, 1, file) == 1) {
        uint8_t *frame = malloc(length), *copy = malloc(length);
        if (fread(frame, 1, length, file) != length)
            return 2;
        parsed += run(frame, length);
        for (long turn = 0; turn < turns; turn++) {
            memcpy(copy, frame, length);
            run(copy, damage(copy, length));
        }
        free(frame);
        free(copy);
    }
    fclose(file);
    printf("%ld\n", parsed);
    return 0;
}
