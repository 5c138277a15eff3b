#include "message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crc32.h"
#include "wire.h"

static const char SEQUENCE_MARK[] = "##SEQUENCE##";
static const char BORN_MARK[] = "##BORN-TIME##";
enum { BORN_DIGITS = 13, PROPERTIES_MAX = 512 };
static const char FILLER[] = "127.0.0.1 - - [17/May/2026:10:05:03 +0000] \"GET /presentations/logstash HTTP/1.1\" 200 7697 ";

static void hex_digits(uint64_t sequence, char out[SEQUENCE_DIGITS])
{
    static const char digits[] = "0123456789ABCDEF";
    for (int i = SEQUENCE_DIGITS - 1; i >= 0; i--) {
        out[i] = digits[sequence & 15];
        sequence >>= 4;
    }
}

static void fill_body(char *body, uint32_t size)
{
    memcpy(body, SEQUENCE_MARK, SEQUENCE_DIGITS);
    for (uint32_t i = SEQUENCE_DIGITS; i < size; i++)
        body[i] = FILLER[(i - SEQUENCE_DIGITS) % (sizeof FILLER - 1)];
}

/* UNIQ_KEY has Java's 32 digits: address, process, 8 digits of the run (Java: class loader), sequence (time, counter). */
static int properties_text(char *out, const struct message_plan *plan, int with_keys, uint32_t element)
{
    if (!with_keys)
        return sprintf(out, "UNIQ_KEY\x01" "7F0000FE%04X%08X%s\x02WAIT\x01true\x02", getpid() & 0xffff, plan->run_id,
                       SEQUENCE_MARK);
    char tag[12] = "A";
    if (plan->tags)
        snprintf(tag, sizeof tag, "%u", element % plan->tags);
    int length = sprintf(out, "KEYS\x01K%08X-%s\x02UNIQ_KEY\x01" "7F000001%04X%08X%s\x02WAIT\x01true\x02TAGS\x01Tag%s\x02",
                         plan->run_id, SEQUENCE_MARK, getpid() & 0xffff, plan->run_id, SEQUENCE_MARK, tag);
    if (plan->delay_level)
        length += sprintf(out + length, "DELAY\x01%u\x02", plan->delay_level);
    if (plan->timer_delay_ms)
        length += sprintf(out + length, "TIMER_DELAY_MS\x01%u\x02", plan->timer_delay_ms);
    if (plan->deliver_ms)
        length += sprintf(out + length, "TIMER_DELIVER_MS\x01%" PRIu64 "\x02", plan->deliver_ms);
    return length + (plan->half ? sprintf(out + length, "TRAN_MSG\x01true\x02PGROUP\x01%s\x02", plan->group) : 0);
}

/* Body of the frame: the message itself, or the elements of a batch. */
static size_t frame_body(const struct message_plan *plan, uint8_t *out)
{
    if (plan->batch == 1) {
        fill_body((char *)out, plan->body_size);
        return plan->body_size;
    }
    uint8_t *p = out;
    for (uint32_t i = 0; i < plan->batch; i++) {
        char properties[PROPERTIES_MAX];
        uint32_t len = (uint32_t)properties_text(properties, plan, 1, i);
        put32(p, 22 + plan->body_size + len);
        memset(p + 4, 0, 12);
        put32(p + 16, plan->body_size);
        fill_body((char *)p + 20, plan->body_size);
        p += 20 + plan->body_size;
        put16(p, (uint16_t)len);
        memcpy(p + 2, properties, len);
        p += 2 + len;
    }
    return (size_t)(p - out);
}

/* Notes where the marks stand. In a batch the header's UNIQ_KEY comes first, then three marks per element. */
static int find_marks(struct template *t, uint32_t batch)
{
    t->patch_count = batch == 1 ? 3 : 1 + 3 * batch;
    t->patches = calloc(t->patch_count, sizeof *t->patches);
    if (t->patches == NULL)
        return -ENOMEM;
    uint8_t *at = t->bytes;
    for (uint32_t i = 0; i < t->patch_count; i++) {
        at = memmem(at, (size_t)(t->bytes + t->len - at), SEQUENCE_MARK, SEQUENCE_DIGITS);
        if (at == NULL)
            return -EINVAL;
        t->patches[i].at = (uint32_t)(at - t->bytes);
        t->patches[i].element = batch == 1 || i == 0 ? 0 : (i - 1) / 3;
        at += SEQUENCE_DIGITS;
    }
    uint8_t *born = memmem(t->bytes, t->len, BORN_MARK, BORN_DIGITS);
    if (born == NULL)
        return -EINVAL;
    t->born_at = (uint32_t)(born - t->bytes);
    return 0;
}

static int build_template(struct template *t, const struct message_plan *plan, uint32_t lane, const uint8_t *body,
                          size_t body_len)
{
    char properties[PROPERTIES_MAX], topic[TOPIC_ROOM], queue_text[12], queues_text[12];
    properties_text(properties, plan, plan->batch == 1, 0);
    snprintf(queue_text, sizeof queue_text, "%u", lane_queue(&plan->lanes, lane));
    snprintf(queues_text, sizeof queues_text, "%u", plan->lanes.queues);
    /* Names and order as the Java client sends them. */
    struct ext ext[] = {
        {"a", plan->group}, {"b", lane_topic(&plan->lanes, lane, topic)}, {"c", "TBW102"}, {"d", queues_text}, {"e", queue_text},
        {"f", plan->half ? "4" : "0"},
        {"g", BORN_MARK}, {"h", "0"}, {"i", properties}, {"j", "0"}, {"k", "false"},
        {"m", plan->batch == 1 ? "false" : "true"}, {"n", plan->broker_name},
    };
    struct request r = {
        .code = plan->batch == 1 ? CODE_SEND_V2 : CODE_SEND_BATCH,
        .ext = ext,
        .ext_count = sizeof ext / sizeof *ext,
        .body = body,
        .body_len = body_len,
    };
    t->bytes = malloc(wire_bound(&r));
    if (t->bytes == NULL)
        return -ENOMEM;
    t->len = (uint32_t)wire_encode(t->bytes, &r, plan->json);
    if (t->len > WIRE_FRAME_MAX)
        return -EMSGSIZE;
    return find_marks(t, plan->batch);
}

/* CRC-32 is affine over GF(2): each digit changes the result on its own, whatever the other digits are. */
static int learn_crc(struct messages *m)
{
    char *body = malloc(m->plan.body_size);
    if (body == NULL)
        return -ENOMEM;
    fill_body(body, m->plan.body_size);
    memset(body, '0', SEQUENCE_DIGITS);
    m->crc_base = crc32_of((uint8_t *)body, m->plan.body_size);
    for (int i = 0; i < SEQUENCE_DIGITS; i++) {
        for (int d = 0; d < 16; d++) {
            body[i] = "0123456789ABCDEF"[d];
            m->crc_step[i][d] = crc32_of((uint8_t *)body, m->plan.body_size) ^ m->crc_base;
        }
        body[i] = '0';
    }
    free(body);
    return 0;
}

int messages_init(struct messages *m, const struct message_plan *plan)
{
    memset(m, 0, sizeof *m);
    m->plan = *plan;
    if (plan->body_size < BODY_MIN || plan->batch == 0 || lanes_count(&plan->lanes) == 0)
        return -EINVAL;
    int rc = learn_crc(m);
    m->templates = calloc(lanes_count(&plan->lanes), sizeof *m->templates);
    uint8_t *body = malloc((size_t)plan->batch * (plan->body_size + PROPERTIES_MAX + 22));
    if (body == NULL || m->templates == NULL)
        rc = -ENOMEM;
    size_t body_len = rc < 0 ? 0 : frame_body(plan, body);
    for (uint32_t lane = 0; rc == 0 && lane < lanes_count(&plan->lanes); lane++)
        rc = build_template(&m->templates[lane], plan, lane, body, body_len);
    free(body);
    return rc;
}

void messages_free(struct messages *m)
{
    for (uint32_t lane = 0; m->templates != NULL && lane < lanes_count(&m->plan.lanes); lane++) {
        free(m->templates[lane].bytes);
        free(m->templates[lane].patches);
    }
    free(m->templates);
    m->templates = NULL;
}

uint32_t messages_frame_max(const struct messages *m)
{
    uint32_t max = 0;
    for (uint32_t lane = 0; lane < lanes_count(&m->plan.lanes); lane++)
        max = m->templates[lane].len > max ? m->templates[lane].len : max;
    return max;
}

uint32_t messages_write(const struct messages *m, uint8_t *out, uint32_t lane, uint32_t opaque, uint64_t sequence,
                        const char born[13])
{
    const struct template *t = &m->templates[lane];
    memcpy(out, t->bytes, t->len);
    wire_set_opaque(out, m->plan.json, opaque);
    memcpy(out + t->born_at, born, BORN_DIGITS);
    char digits[SEQUENCE_DIGITS];
    uint32_t element = 0;
    hex_digits(sequence, digits);
    for (uint32_t i = 0; i < t->patch_count; i++) {
        if (t->patches[i].element != element) {
            element = t->patches[i].element;
            hex_digits(sequence + element, digits);
        }
        memcpy(out + t->patches[i].at, digits, SEQUENCE_DIGITS);
    }
    return t->len;
}

uint32_t messages_crc(const struct messages *m, uint64_t sequence)
{
    uint32_t crc = m->crc_base;
    for (int i = SEQUENCE_DIGITS - 1; i >= 0; i--) {
        crc ^= m->crc_step[i][sequence & 15];
        sequence >>= 4;
    }
    return crc;
}

void messages_uniq_key(uint32_t run_id, uint64_t sequence, char *out)
{
    char digits[SEQUENCE_DIGITS];
    hex_digits(sequence, digits);
    snprintf(out, UNIQ_TEXT + 1, "7F000001%04X%08X%.*s", getpid() & 0xffff, run_id, SEQUENCE_DIGITS, digits);
}

void messages_key(uint32_t run_id, uint64_t sequence, char *out)
{
    sprintf(out, "K%08X-", run_id);
    hex_digits(sequence, out + 10);
    out[KEY_TEXT] = 0;
}
