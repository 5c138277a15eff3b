/* header_fields.c: fields of a header as text, numbers and words (frame_header.h). */
#include <string.h>

#include "codec/frame_header.h"
#include "codec/json_text.h"

#define DIGITS_MAX 18 /* of a number that fits any reader's integer */
#define FIELD_BYTES_MAX 192 /* of a number or word with escapes */

static int is_text(const uint8_t *text, uint32_t length, const char *word)
{
    return length == strlen(word) && !memcmp(text, word, length);
}

int rmq_bare_is_text(const struct rmq_ext_entry *e)
{
    const uint8_t *text = e->value;
    uint32_t length = e->value_length, at = length && text[0] == '-';
    if (is_text(text, length, "true") || is_text(text, length, "false"))
        return 1;
    if (length == at || length - at > DIGITS_MAX || (text[at] == '0' && length > 1))
        return 0;
    while (at < length && text[at] >= '0' && text[at] <= '9')
        at++;
    return at == length;
}

int rmq_odd_text(const struct rmq_ext_entry *e, uint8_t *room, uint32_t room_bytes, const uint8_t **text, uint32_t *length)
{
    if (e->escaped == RMQ_TEXT_BARE)
        return rmq_bare_is_text(e);
    int64_t unescaped = e->value_length <= room_bytes ? rmq_json_unescape_to(room, e->value, e->value_length) : -1;
    *text = room;
    *length = unescaped < 0 ? 0 : (uint32_t)unescaped;
    return unescaped >= 0;
}

/* A number or word: escapes are undone in `room`, of FIELD_BYTES_MAX bytes. 0 = it is too long for one, or not well formed. */
static int short_text(const struct rmq_ext_entry *e, uint8_t *room, const uint8_t **text, uint32_t *length)
{
    *text = e->value;
    *length = e->value_length;
    return e->escaped != RMQ_TEXT_ESCAPED || rmq_odd_text(e, room, FIELD_BYTES_MAX, text, length);
}

int rmq_escaped_int32(const struct rmq_ext_entry *e, int32_t *out)
{
    uint8_t room[FIELD_BYTES_MAX];
    const uint8_t *text;
    uint32_t length;
    return short_text(e, room, &text, &length) && rmq_text_int32(text, length, out);
}

int rmq_escaped_int64(const struct rmq_ext_entry *e, int64_t *out)
{
    uint8_t room[FIELD_BYTES_MAX];
    const uint8_t *text;
    uint32_t length;
    return short_text(e, room, &text, &length) && rmq_text_int64(text, length, out);
}

int rmq_field_is(const struct rmq_ext_entry *e, const char *word)
{
    uint8_t room[FIELD_BYTES_MAX];
    const uint8_t *text;
    uint32_t length;
    return short_text(e, room, &text, &length) && is_text(text, length, word);
}

int rmq_is_true(const struct rmq_ext_entry *e)
{
    static const char word[4] = {'t', 'r', 'u', 'e'};
    uint8_t room[FIELD_BYTES_MAX];
    const uint8_t *text;
    uint32_t length;
    if (!short_text(e, room, &text, &length) || length != sizeof word)
        return 0;
    for (uint32_t i = 0; i < sizeof word; i++)
        if ((text[i] | 0x20) != word[i])
            return 0;
    return 1;
}
