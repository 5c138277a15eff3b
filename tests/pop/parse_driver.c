/* parse_driver.c: what the desk of POP reads of clients and of the log, damaged in every way, under sanitizers. Each input lies in
 * memory of its own size.
 *
 *   driver SEED INPUTS
 */
#include <stdio.h>
#include <stdlib.h>

#include <string.h>

#include "base/bytes.h"
#include "codec/record.h"
#include "pop/pop_desk.h"
#include "pop/pop_records.h"

static uint64_t state;
static uint64_t acknowledged, read_receipts, written;

static uint32_t below(uint32_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % limit;
}

uint64_t rmq_pop_ack_bits(struct rmq_pop_desk *d, const uint8_t *group, uint32_t group_length, const uint8_t *topic,
                          uint32_t topic_length, uint32_t flag, int32_t queue_id, int64_t start_offset, int64_t pop_time_ms,
                          const uint8_t *bits, uint32_t bit_bytes)
{
    uint64_t sum = flag + (uint32_t)queue_id + (uint64_t)start_offset + (uint64_t)pop_time_ms;
    for (uint32_t i = 0; i < group_length; i++)
        sum += group[i];
    for (uint32_t i = 0; i < topic_length; i++)
        sum += topic[i];
    for (uint32_t i = 0; i < bit_bytes; i++)
        sum += bits[i];
    acknowledged += 1 + (sum & 0);
    return d != NULL;
}

uint32_t rmq_pop_room(const struct rmq_pop_desk *d, uint32_t asker) { return d || asker ? 65536 : 0; }

void rmq_pop_put_code(struct rmq_pop_desk *d, const struct rmq_inbox_record *ask, const struct rmq_plain_asked *asked, int32_t code,
                      const char *remark)
{
    if (!d || !ask || !asked || code < 0 || remark)
        abort();
}

int rmq_pop_log_has_room(const struct rmq_pop_log_acks *la, uint64_t acts) { return !la || acts; }

int rmq_pop_log_wait(struct rmq_pop_desk *d, int32_t code)
{
    return !d || code < 0;
}

/* A copy with some bytes changed, cut or put in. */
static uint8_t *damaged(const uint8_t *from, uint32_t length, uint32_t *to_length, uint32_t front)
{
    static const uint8_t bytes[] = "\"{}[]:,\\ -0919azAZ=\x01\x02\x00\xff";
    uint32_t cut = below(4) ? length : below(length + 1), times = below(5);
    uint8_t *made = malloc(cut + 1 + front);
    memcpy(made + front, from, cut);
    for (uint32_t i = 0; i < times && cut; i++)
        made[front + below(cut)] = below(3) ? bytes[below(sizeof bytes - 1)] : (uint8_t)below(256);
    *to_length = cut;
    return made;
}

static void try_batch(struct rmq_pop_desk *d)
{
    static const char body[] = "{\"acks\":[{\"b\":\"AwI=\",\"c\":\"CGP\",\"it\":20000,\"pt\":1795208759525,\"q\":0,\"r\":\"0\",\"rq\":2,"
                               "\"so\":0,\"t\":\"GP1\"},{\"b\":\"\",\"c\":\"G\",\"it\":1,\"pt\":1,\"q\":1,\"r\":\"2\",\"rq\":9,\"so\":7,\"t\":\"T\"}],"
                               "\"brokerName\":\"broker-p\"}";
    static const char header[] = "{\"code\":200151,\"flag\":0,\"language\":\"JAVA\",\"opaque\":45,\"version\":477}";
    uint8_t whole[2048];
    uint32_t header_bytes = sizeof header - 1, length = 8 + header_bytes + sizeof body - 1, size;
    rmq_put32(whole, length - 4);
    rmq_put32(whole + 4, header_bytes);
    memcpy(whole + 8, header, header_bytes);
    memcpy(whole + 8 + header_bytes, body, sizeof body - 1);
    uint8_t *made = damaged(whole, length, &size, sizeof(struct rmq_inbox_record));
    uint8_t *exact = malloc(size + sizeof(struct rmq_inbox_record));
    memcpy(exact, made, size + sizeof(struct rmq_inbox_record));
    struct rmq_inbox_record *record = (struct rmq_inbox_record *)exact;
    *record = (struct rmq_inbox_record){.length = (int32_t)(size + sizeof *record), .type = RMQ_INBOX_COLD_FRAME};
    rmq_pop_serve_batch_ack(d, record);
    free(exact);
    free(made);
}

static void try_receipt(void)
{
    static const char text[] = "120 1700000000000 60000 3 0 broker-a 2 121";
    struct rmq_pop_receipt receipt;
    uint32_t size;
    uint8_t *made = damaged((const uint8_t *)text, sizeof text - 1, &size, 0), *exact = malloc(size ? size : 1);
    memcpy(exact, made, size);
    read_receipts += (uint64_t)rmq_pop_receipt_read(exact, size, &receipt);
    free(exact);
    free(made);
}

static void try_record(uint8_t *room)
{
    uint8_t whole[4096], body[1200] = {7};
    static const uint8_t properties[] = "UNIQ_KEY\x01" "ABC\x02TAGS\x01" "a\x02POP_CK\x01old\x02";
    struct rmq_record_in in = {
        .topic = (const uint8_t *)"%RETRY%G_T", .topic_length = 10, .body = body, .body_length = below(sizeof body),
        .properties = {properties}, .properties_length = {below(sizeof properties)}};
    int64_t length = rmq_record_encode(whole, sizeof whole, &in);
    uint32_t size;
    uint8_t *made = damaged(whole, (uint32_t)length, &size, 0), *exact = malloc(size ? size : 1);
    memcpy(exact, made, size);
    struct rmq_pop_body out = {.inline_bytes = room, .inline_room = 300 + below(3000), .segment_bytes = 1 << 20};
    written += !rmq_pop_body_add_retry(&out, below(1000), exact, size, (const uint8_t *)"T", 1, (const uint8_t *)"0 1 2", 5);
    free(exact);
    free(made);
}

int main(int argc, char **argv)
{
    static uint64_t counters[64];
    uint8_t *texts = malloc(512), *room = malloc(3300);
    struct rmq_pop_desk *d = calloc(1, sizeof *d);
    if (argc != 3)
        return 2;
    state = strtoull(argv[1], NULL, 10) * 2654435761u + 1;
    *d = (struct rmq_pop_desk){.texts = texts, .room_bytes = 512, .counters = counters, .broker_bytes = 8, .broker = "broker-p"};
    for (uint64_t i = strtoull(argv[2], NULL, 10); i; i--) {
        try_batch(d);
        try_receipt();
        try_record(room);
    }
    printf("%d %d %d\n", acknowledged > 0, read_receipts > 0, written > 0);
    free(d);
    free(texts);
    free(room);
    return 0;
}
