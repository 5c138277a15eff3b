/* Frames against the whole read role, under sanitizers: GOLDEN SEED INPUTS FOLDER. Each input is one frame, damaged or made.
 *
 * native/src/reader runs as it is, over a fake engine (fake_engine.h) and a clock of the driver's own. The driver also plays
 * write, control and dispatch: it answers requests and cold frames with random codes and verdicts, late ones too, which name
 * records of a log in the folder (fuzz_answers.h), and pulls wait for queues that grow. Limits change, and some allocations of
 * the reader fail (fuzz_memory.h). Beside that each frame goes through the header parser in memory of exactly its size. At the
 * end every connection is closed; then no receive buffer and no block may be missing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admission/admission_rules.h"
#include "base/bytes.h"
#include "codec/answer.h"
#include "codec/frame_header.h"
#include "codec/json_text.h"
#include "fake_engine.h"
#include "fuzz.h"
#include "fuzz_answers.h"
#include "fuzz_memory.h"
#include "plane/asks.h"
#include "plane/ring.h"
#include "reader/reader.h"

enum {
    CONNECTIONS = 48, BUFFER_BYTES = 4096, BUFFERS = 32, BLOCKS_BYTES = 4 << 20, FRAME_MAX = 1 << 20,
    STREAM_MAX = 1 << 18, WAITING_MAX = 512, TOPICS = 200, GROUPS = 200, QUEUES = 8, OFFSETS = 8, INPUT_MAX = 1 << 17,
    OTHER_ROLE = 24, OTHER_CODE = 41, HEARTBEAT = 34, ANSWERERS = 2,
};

struct stream { /* bytes on their way to a connection */
    uint64_t tag;
    uint8_t *bytes;
    uint32_t at, length;
};

static struct rmq_plane plane;
static struct rmq_reader *reader;
static struct stream streams[CONNECTIONS];
static struct waiting waiting[WAITING_MAX];
static uint32_t waiting_count;
static int peer;
static int64_t clock_ns = 1000000000000;
static uint32_t *hot, hot_count; /* golden sends and pulls */
static uint32_t write_sleeps, control_sleeps, client_sleeps;
static uint64_t headers_read, requests_seen, cold_seen, redirects_seen, arrivals, unsents_seen, polls_again;
static uint32_t system_topic;

int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    (void)id;
    *out = (struct timespec){.tv_sec = clock_ns / 1000000000, .tv_nsec = clock_ns % 1000000000};
    return 0;
}

/* --- inputs ------------------------------------------------------------------------------------------------ */

/* Replaces a run of digits in the header by an edge, or the code by one that matters; lengths are made right again. */
static uint32_t change_number(uint8_t *frame, uint32_t length)
{
    static const int codes[] = {10, 11, 310, 320, 361, 34, 41, 42, 30, 15, 21, 270001, 270002, 36, 37, 9999, -1};
    uint32_t head = 8 + (rmq_get32(frame + 4) & 0xffffff), at = 8 + (uint32_t)fuzz_dice(head - 8), end;
    if (frame[4] || head > length)
        return length;
    while (at < head && (frame[at] < '0' || frame[at] > '9'))
        at++;
    for (end = at; end < head && frame[end] >= '0' && frame[end] <= '9'; end++)
        ;
    if (at == end)
        return length;
    char text[32];
    int is_code = at > 8 && !memcmp(frame + at - 2, "\":", 2) && fuzz_dice(2);
    int n = is_code ? snprintf(text, sizeof text, "%d", codes[fuzz_dice(sizeof codes / sizeof *codes)])
                    : snprintf(text, sizeof text, "%lld", (long long)fuzz_edge());
    if (length + (uint32_t)n > INPUT_MAX)
        return length;
    memmove(frame + at + n, frame + end, length - end);
    memcpy(frame + at, text, (size_t)n);
    uint32_t grown = length + (uint32_t)n - (end - at);
    rmq_put32(frame, grown - 4);
    rmq_put32(frame + 4, (uint32_t)frame[4] << 24 | (head - 8 + (uint32_t)n - (end - at)));
    return grown;
}

/* The header of one golden frame and the body of another. */
static uint32_t splice(uint8_t *frame, uint32_t length)
{
    const struct fuzz_input *other = &fuzz_golden[fuzz_dice(fuzz_golden_count)];
    uint32_t head = 8 + (rmq_get32(frame + 4) & 0xffffff), other_head = 8 + (rmq_get32(other->bytes + 4) & 0xffffff);
    if (head > length || other_head > other->length || head + other->length - other_head > INPUT_MAX)
        return length;
    memcpy(frame + head, other->bytes + other_head, other->length - other_head);
    length = head + other->length - other_head;
    rmq_put32(frame, length - 4);
    return length;
}

/* WAIT=true becomes a delay level, in as many bytes. */
static void ask_for_delay(uint8_t *frame, uint32_t length)
{
    uint8_t *at = memmem(frame, length, "WAIT", 4), *end = frame + length;
    int is_json = at && end - at >= 20 && !memcmp(at + 4, "\\u0001true", 10), is_binary = at && end - at >= 10 && at[4] == 1;
    char text[16];
    if (is_json || is_binary) {
        int n = snprintf(text, sizeof text, is_json ? "DELAY\\u0001%03u" : "DELAY\1%03u", (unsigned)fuzz_dice(30));
        memcpy(at, text, (size_t)n);
    }
}

/* A golden frame, more or less changed. Half of them are sends and pulls. Most keep their length right: a wrong length
 * loses the later frames of the connection. */
static uint32_t make_input(uint8_t *frame)
{
    uint32_t number = hot_count && fuzz_dice(2) ? hot[fuzz_dice(hot_count)] : (uint32_t)fuzz_dice(fuzz_golden_count);
    const struct fuzz_input *golden = &fuzz_golden[number];
    uint32_t length = golden->length;
    memcpy(frame, golden->bytes, length);
    if (!fuzz_dice(6))
        ask_for_delay(frame, length);
    switch (fuzz_dice(20)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5: return length;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10: return change_number(frame, length);
    case 11:
    case 12: return splice(frame, length);
    case 13: rmq_put32(frame + (fuzz_dice(2) ? 0 : 4), (uint32_t)fuzz_edge()); return length;
    case 14: return fuzz_damage(frame, length);
    default: { /* damage under right lengths */
        uint32_t inner = fuzz_damage(frame + 8, length - 8), header = rmq_get32(golden->bytes + 4) & 0xffffff;
        rmq_put32(frame, inner + 4);
        rmq_put32(frame + 4, (uint32_t)golden->bytes[4] << 24 | (header < inner ? header : inner));
        return inner + 8;
    }
    }
}

static void put_answers(const struct rmq_ext_entry *e)
{
    static const struct rmq_answer_broker broker = {.region = "r\"", .host_hex = "0000000000000000", .region_length = 2,
                                                  .host_hex_length = 16, .name = "b", .name_length = 1};
    struct rmq_send_answer a = {.head = {.remark = (const char *)e->value, .remark_length = e->value_length, .serialise = e->escaped},
                                .broker = &broker, .uniq_key = e->value, .uniq_key_length = e->value_length,
                                .recall_topic = e->escaped ? "T" : NULL, .recall_topic_length = 1, .recall_ms = INT64_MAX};
    size_t bound = rmq_send_answer_bound(&a);
    uint8_t *to = malloc(bound);
    fuzz_must(rmq_send_answer_put(to, &a) <= bound, "an answer keeps its bound");
    free(to);
}

/* The header parser alone, in memory of exactly the frame's size. */
static void parse_header(const uint8_t *bytes, uint32_t length)
{
    uint8_t *frame = malloc(length ? length : 1);
    struct rmq_frame_header h;
    memcpy(frame, bytes, length);
    int ok = rmq_frame_header_parse(frame, length, &h) == 0;
    headers_read += (uint64_t)ok;
    for (uint32_t i = 0; ok && i < h.ext_count; i++) {
        struct rmq_ext_entry *e = &h.ext[i];
        fuzz_must(e->key >= frame && e->key + e->key_length <= frame + length, "a key lies in its frame");
        fuzz_must(e->value >= frame && e->value + e->value_length <= frame + length, "a value lies in its frame");
        int32_t small;
        int64_t large;
        rmq_text_int32(e->value, e->value_length, &small);
        rmq_text_int64(e->value, e->value_length, &large);
        if (!fuzz_dice(8))
            put_answers(e);
        if (e->escaped) {
            uint8_t *copy = malloc(e->value_length ? e->value_length : 1);
            memcpy(copy, e->value, e->value_length);
            fuzz_must(rmq_json_unescape(copy, e->value_length) <= (int64_t)e->value_length, "unescaped text does not grow");
            free(copy);
        }
    }
    free(frame);
}

/* --- write and control, as the reader sees them ------------------------------------------------------------ */

/* 1 while a role answers nothing: for some hundred rounds, now and then. */
static int sleeps(uint32_t *rounds)
{
    if (!*rounds && !fuzz_dice(2000))
        *rounds = 1 + (uint32_t)fuzz_dice(600);
    return *rounds ? (*rounds)-- > 0 : 0;
}

static void answer_requests(void)
{
    struct rmq_plane_header *h = rmq_header(&plane);
    struct rmq_ring *requests = &h->ports.port[0].request, *answers = &h->ports.port[0].appended;
    while (rmq_ring_used(requests) && fuzz_dice(16)) {
        struct rmq_request *q = rmq_ring_slot(plane.base, requests, requests->tail);
        uint64_t arena = plane.arena_bytes[0];
        fuzz_must(q->body_at + q->body_length <= arena, "a body lies in the arena");
        fuzz_must(q->properties_at + q->properties_length <= arena, "properties lie in the arena");
        fuzz_must(q->extra_at + q->extra_length <= arena, "extra properties lie in the arena");
        fuzz_must(q->topic_id && q->queue_id < QUEUES, "topic and queue are there");
        redirects_seen += q->topic_id == system_topic;
        uint32_t sum = 0;
        for (uint32_t i = 0; i < q->extra_length; i++)
            sum += (uint8_t)plane.arenas[0][q->extra_at + i];
        for (uint32_t i = 0; i < q->body_length; i += 32)
            sum += (uint8_t)plane.arenas[0][q->body_at + i];
        static const int16_t codes[] = {0, 0, 0, 0, 10, 12, 14, 1, 13, 2};
        struct rmq_completion *c = rmq_ring_slot(plane.base, answers, answers->head);
        *c = (struct rmq_completion){
            .commit_log_offset = requests_seen * 100, .bytes = 100, .queue_offset = sum,
            .token = q->token, .generation = q->generation,
            .code = codes[fuzz_dice(sizeof codes / sizeof *codes)], .cause = (uint16_t)fuzz_dice(80)};
        rmq_store(&answers->head, answers->head + 1);
        rmq_store(&requests->tail, requests->tail + 1);
        requests_seen++;
    }
}

static void take_asks(uint32_t answerer)
{
    struct rmq_inbox_record *record;
    while ((record = rmq_inbox_take(&plane, answerer)) != NULL) {
        unsents_seen += record->type == RMQ_INBOX_UNSENT;
        polls_again += record->type == RMQ_INBOX_HELD;
        if ((record->type == RMQ_INBOX_COLD_FRAME || record->type == RMQ_INBOX_HELD) && !rmq_ask_is_void(&plane, answerer, record)) {
            const uint8_t *payload = (const uint8_t *)(record + 1);
            uint32_t sum = 0;
            for (uint32_t at = 0; at < (uint32_t)record->length - sizeof *record; at += 32)
                sum += payload[at];
            cold_seen += 1 + (sum & 0);
            uint32_t bytes = (uint32_t)record->length - (uint32_t)sizeof *record;
            if (record->type == RMQ_INBOX_HELD)
                bytes -= (uint32_t)sizeof(struct rmq_asked_again);
            struct waiting w = {record->connection, record->connection_generation, record->pending, record->role_generation,
                                answerer, fuzz_may_hold(record) ? bytes : 0};
            if (record->pending != RMQ_NONE && waiting_count < WAITING_MAX)
                waiting[waiting_count++] = w;
            else if (record->pending != RMQ_NONE)
                fuzz_give_verdict(&plane, &w, clock_ns);
        }
        rmq_inbox_done(&plane, answerer, record);
    }
}

/* The other answerer sleeps, serves, and dies with asks in its hand. */
static void play_other(int all)
{
    struct rmq_role *role = &rmq_header(&plane)->roles[OTHER_ROLE];
    if (role->state != 2 && (all || !fuzz_dice(1000))) {
        role->generation++;
        rmq_inbox_start(&plane, 1);
    }
    if (role->state == 2)
        take_asks(1);
    if (!all && role->state == 2 && !fuzz_dice(3000)) {
        role->state = 0;
        for (uint32_t i = waiting_count; i-- > 0;)
            if (waiting[i].answerer == 1)
                waiting[i] = waiting[--waiting_count];
    }
}

static void play_control(int all)
{
    rmq_offset_drain(&plane);
    take_asks(RMQ_CONTROL_ANSWERER);
    play_other(all);
    while (waiting_count && (all || fuzz_dice(4))) {
        uint32_t number = (uint32_t)fuzz_dice(waiting_count);
        struct waiting w = waiting[number];
        waiting[number] = waiting[--waiting_count];
        fuzz_give_verdict(&plane, &w, clock_ns);
    }
    if (!all && !fuzz_dice(20000)) { /* control starts again */
        waiting_count = 0;
        rmq_header(&plane)->roles[RMQ_ROLE_CONTROL].generation++;
    }
}

/* A set of rules, or none: delays go to the system topic, or are refused. */
static void publish_rules(void)
{
    struct rmq_admission_rules rules = {.count = (uint32_t)fuzz_dice(3)};
    rules.rules[0] = (struct rmq_admission_rule){
        .kind = fuzz_dice(5) ? RMQ_RULE_REDIRECT : RMQ_RULE_REFUSE, .when = RMQ_WHEN_POSITIVE, .name = "DELAY", .name_length = 5,
        .topic_id = system_topic, .queue_from = RMQ_QUEUE_LEVEL, .queue_id = QUEUES, .code = 13, .remark = "no", .pair_count = 4,
        .pairs = {{.value_from = RMQ_ADD_TOPIC, .name = "REAL_TOPIC", .name_length = 10},
                  {.value_from = RMQ_ADD_QUEUE, .name = "REAL_QID", .name_length = 8},
                  {.value_from = fuzz_dice(2) ? RMQ_ADD_LEVEL : RMQ_ADD_NOTHING, .name = "DELAY", .name_length = 5},
                  {.value_from = RMQ_ADD_UNIQ_KEY, .name = "id", .name_length = 2}}};
    rules.rules[1] = (struct rmq_admission_rule){.kind = RMQ_RULE_REDIRECT, .transaction = 4, .topic_id = system_topic,
                                                 .sys_flag_clear = 4, .queue_id = (uint32_t)fuzz_dice(2 * QUEUES)};
    fuzz_must(rmq_rules_publish(&plane, &rules) == 0, "the rules are sound");
}

/* A message for a queue, if possible one that pulls wait for. Now and then the queue begins anew. */
static void play_dispatch(void)
{
    struct rmq_plane_header *h = rmq_header(&plane);
    uint32_t queues = h->tables.queue_count, slot = (uint32_t)fuzz_dice(queues);
    const uint8_t *flags = (const uint8_t *)plane.base + h->ports.port[0].parked_flags_at;
    for (uint32_t i = 0; i < queues && !flags[slot]; i++)
        slot = (slot + 1) % queues;
    struct rmq_queue *queue = rmq_queue_at(&plane, slot);
    struct rmq_ring *ring = &h->ports.port[0].arrived;
    rmq_store(&queue->max_offset, fuzz_dice(20) ? queue->max_offset + 1 : fuzz_dice(OFFSETS));
    if (flags[slot] && rmq_ring_room(ring, ring->head)) {
        *(uint32_t *)rmq_ring_slot(plane.base, ring, ring->head) = slot;
        rmq_store(&ring->head, ++arrivals);
    }
}

static void change_limits(void)
{
    static const uint32_t answers[] = {32 << 10, 200 << 10, 1 << 20, 4 << 20}, queues[] = {16 << 10, 200 << 10, 1 << 20};
    struct rmq_plane_header *h = rmq_header(&plane);
    h->settings.long_polling_enable = fuzz_dice(4) > 0;
    h->settings.answer_bytes_max = answers[fuzz_dice(sizeof answers / sizeof *answers)];
    h->settings.send_queue_bytes_max = queues[fuzz_dice(sizeof queues / sizeof *queues)];
    rmq_store(&h->memory.level, fuzz_dice(4) ? 0 : (uint32_t)fuzz_dice(RMQ_MEMORY_FULL + 1));
}

/* --- connections ------------------------------------------------------------------------------------------- */

static struct stream *stream_of(uint64_t tag)
{
    struct stream *unused = NULL;
    for (int i = 0; i < CONNECTIONS; i++) {
        if (streams[i].tag == tag)
            return &streams[i];
        if (!unused && streams[i].tag == UINT64_MAX)
            unused = &streams[i];
    }
    if (!unused)
        unused = &streams[fuzz_dice(CONNECTIONS)]; /* its connection is gone, or gets other bytes from here on */
    *unused = (struct stream){.tag = tag, .bytes = unused->bytes};
    return unused;
}

static void run_reader(void)
{
    clock_ns += (int64_t)fuzz_dice(fuzz_dice(50) ? 200000 : 400000000);
    if (!fuzz_dice(300))
        publish_rules();
    if (!fuzz_dice(300))
        change_limits();
    if (!fuzz_dice(300))
        fuzz_change_log(&plane);
    if (!fuzz_dice(20))
        play_dispatch();
    fuzz_memory_fails(1);
    fuzz_must(rmq_reader_run(reader, 0) >= 0, "the reader runs");
    fuzz_memory_fails(0);
    if (!sleeps(&write_sleeps))
        answer_requests();
    if (!sleeps(&control_sleeps))
        play_control(0);
    while (!sleeps(&client_sleeps) && fake_sends() && fuzz_dice(8))
        fake_finish_send();
}

static void keep_connections(void)
{
    while (fake_receivers() < CONNECTIONS / 2) {
        int fd = dup(peer);
        if (!fake_accept(fd, fuzz_dice(4) == 0))
            close(fd);
        run_reader();
        if (!fuzz_dice(8))
            break;
    }
}

/* One input: into the stream of a connection, which then gets some of it. */
static void say(const uint8_t *frame, uint32_t length)
{
    keep_connections();
    if (!fake_receivers())
        return;
    uint32_t number = (uint32_t)fuzz_dice(fake_receivers());
    struct stream *s = stream_of(fake_receiver(number));
    if (s->length + length > STREAM_MAX) {
        memmove(s->bytes, s->bytes + s->at, s->length - s->at);
        s->length -= s->at;
        s->at = 0;
    }
    if (s->length + length <= STREAM_MAX) {
        memcpy(s->bytes + s->length, frame, length);
        s->length += length;
    }
    uint32_t part = s->length - s->at, step = fuzz_dice(4) ? part : 1 + (uint32_t)fuzz_dice(part);
    while (step && number < fake_receivers() && fake_receiver(number) == s->tag) {
        uint32_t went = fake_deliver(number, s->bytes + s->at, step);
        if (!went)
            break;
        s->at += went;
        step -= went;
    }
    if (s->at == s->length)
        s->at = s->length = 0;
    if (!fuzz_dice(3000) && number < fake_receivers())
        fake_end(number, fuzz_dice(2) ? 0 : -ECONNRESET);
}

/* --- life -------------------------------------------------------------------------------------------------- */

static void add_name(const struct rmq_ext_entry *e, uint32_t *topics, uint32_t *groups)
{
    int is_topic = (e->key_length == 5 && !memcmp(e->key, "topic", 5)) || (e->key_length == 1 && e->key[0] == 'b');
    int is_group = e->key_length == 13 && !memcmp(e->key, "consumerGroup", 13);
    const char *name = (const char *)e->value;
    if (!e->value_length || e->value_length > RMQ_NAME_MAX)
        return;
    if (is_topic && *topics < TOPICS && rmq_topic_find(&plane, name, e->value_length) == RMQ_NONE) {
        uint64_t flags = (uint64_t)(RMQ_TOPIC_LIVE | (*topics % 8 ? 0 : RMQ_TOPIC_SEND_COLD)) << 40;
        uint32_t id = rmq_topic_add(&plane, name, e->value_length, 6 | QUEUES << 8 | QUEUES << 24 | flags);
        for (uint32_t queue = 0; id != RMQ_NONE && queue < QUEUES; queue++)
            rmq_queue_add(&plane, id, queue, 0, 0, 0);
        (*topics)++;
    }
    if (is_group && *groups < GROUPS && rmq_group_find(&plane, name, e->value_length) == RMQ_NONE) {
        rmq_group_add(&plane, name, e->value_length, RMQ_GROUP_LIVE | RMQ_GROUP_CONSUME_ENABLE | RMQ_GROUP_HAS_MEMBERS);
        (*groups)++;
    }
}

static void add_names(void)
{
    uint32_t topics = 0, groups = 0;
    hot = calloc(fuzz_golden_count, sizeof *hot);
    for (uint32_t i = 0; i < fuzz_golden_count; i++) {
        struct rmq_frame_header h;
        if (rmq_frame_header_parse(fuzz_golden[i].bytes, fuzz_golden[i].length, &h) < 0)
            continue;
        if (!(h.flag & RMQ_FLAG_RESPONSE) && (h.code == 10 || h.code == 11 || h.code == 310 || h.code == 320))
            hot[hot_count++] = i;
        for (uint32_t entry = 0; entry < h.ext_count; entry++)
            add_name(&h.ext[entry], &topics, &groups);
    }
    fuzz_must(topics > 0 && groups > 0, "golden frames name topics and groups");
    system_topic = rmq_topic_add(&plane, "System", 6, 6 | QUEUES << 8 | QUEUES << 24 | (uint64_t)RMQ_TOPIC_LIVE << 40);
    for (uint32_t queue = 0; queue < QUEUES; queue++)
        rmq_queue_add(&plane, system_topic, queue, 0, 0, 0);
    for (uint32_t slot = 0; slot < rmq_header(&plane)->tables.queue_count; slot++)
        rmq_queue_at(&plane, slot)->max_offset = fuzz_dice(OFFSETS);
    for (uint32_t group = 1; group <= groups; group++) /* of the others control is asked */
        for (uint32_t topic = 1; topic <= topics; topic++)
            if (fuzz_dice(8))
                rmq_subscription_set(&plane, group, topic, RMQ_SUBSCRIPTION_ALL, INT64_MAX, NULL, 0);
}

static void set_settings(struct rmq_settings *s, const char *folder)
{
    s->segment_bytes = LOG_BYTES;
    s->queue_file_bytes = 6000;
    s->message_bytes_max = 65536;
    s->frame_bytes_max = FRAME_MAX;
    s->idle_connection_ms = 120000;
    s->short_polling_ms = 1000;
    s->pull_memory_bytes_max = 262144;
    s->pull_memory_count_max = 32;
    s->pull_disk_bytes_max = 65536;
    s->pull_disk_count_max = 8;
    s->memory_window_bytes = 1 << 30;
    s->store_host_bytes = 4;
    s->connections_max = 4 * CONNECTIONS;
    s->host_connections_max = 3 * CONNECTIONS;
    s->answer_bytes_max = 4 << 20;
    s->receive_buffer_bytes = BUFFER_BYTES;
    s->receive_buffer_count = BUFFERS;
    s->reassembly_bytes_max = BLOCKS_BYTES;
    s->partial_frame_timeout_ms = 10000;
    s->send_queue_bytes_max = 1 << 20;
    s->send_stall_timeout_ms = 10000;
    s->held_polls_max = 200;
    s->held_connection_polls_max = 50;
    s->held_bytes_max = 1 << 20;
    s->sync_flush_timeout_ms = 5000;
    snprintf(s->region_id, sizeof s->region_id, "DefaultRegion");
    snprintf(s->store_path, sizeof s->store_path, "/nonexistent");
    snprintf(s->commit_log_path, sizeof s->commit_log_path, "%s", folder);
}

static int connected_socket(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof any;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    fuzz_must(bind(listener, (struct sockaddr *)&any, sizeof any) == 0 && listen(listener, 1) == 0, "listen");
    fuzz_must(getsockname(listener, (struct sockaddr *)&any, &length) == 0, "port");
    fuzz_must(connect(fd, (struct sockaddr *)&any, sizeof any) == 0, "connect");
    return fd;
}

static void set_up(const char *folder)
{
    struct rmq_plane_capacity capacity = {.topics = 256, .queues = 4096, .groups = 256, .subscriptions = 65536, .offsets = 4096,
                                          .parked_slots = 256, .commit_slots = 4096, .arrived_slots = 64, .port_count = 1, .answerer_count = 2};
    capacity.answerers[0] = (struct rmq_answerer_plan){.role = RMQ_ROLE_CONTROL, .inbox_bytes = 1 << 20, .answer_bytes = 1 << 18,
                                                       .askers = 1u << RMQ_ROLE_READ};
    capacity.answerers[1] = (struct rmq_answerer_plan){.role = OTHER_ROLE, .inbox_bytes = 1 << 16, .answer_bytes = 1 << 16,
                                                       .askers = 1u << RMQ_ROLE_READ, .code_count = 2,
                                                       .codes = {HEARTBEAT, OTHER_CODE}};
    capacity.ports[0] = (struct rmq_port_plan){.role = RMQ_ROLE_READ, .flags = RMQ_PORT_CONNECTIONS | RMQ_PORT_ARRIVALS | RMQ_PORT_COMMITS,
                                               .weight = 1, .parked_max = 256, .request_slots = 64};
    size_t arena = (size_t)BUFFERS * BUFFER_BYTES + BLOCKS_BYTES +
                   rmq_reader_scratch_bytes(capacity.ports[0].request_slots);
    int error = 0;
    plane.base = mmap(NULL, rmq_plane_bytes(&capacity), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    plane.watermarks = calloc(1, sizeof *plane.watermarks);
    plane.watermarks->tenure = RMQ_TENURE_MASTER;
    plane.arenas[0] = mmap(NULL, arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    plane.arena_bytes[0] = arena;
    fuzz_must(rmq_plane_format(plane.base, &capacity, 1, (const uint64_t[2]){1, 2}) == 0, "plane");
    for (int role = 0; role < RMQ_ROLES_MAX; role++)
        plane.event_fds[role] = eventfd(0, EFD_NONBLOCK);
    set_settings(&rmq_header(&plane)->settings, folder);
    fuzz_make_log(&plane, folder);
    rmq_header(&plane)->roles[RMQ_ROLE_READ].generation = 1;
    rmq_header(&plane)->roles[RMQ_ROLE_CONTROL].generation = 1;
    add_names();
    peer = connected_socket();
    for (int i = 0; i < CONNECTIONS; i++)
        streams[i] = (struct stream){.tag = UINT64_MAX, .bytes = malloc(STREAM_MAX)};
    reader = rmq_reader_open(&plane, 0, 1000, 1001, &error);
    fuzz_must(reader != NULL, "the reader opens");
}

/* Closes all connections and answers all requests: afterwards no buffer or block may be held. */
static void close_down(void)
{
    const uint64_t *counters = rmq_header(&plane)->roles[RMQ_ROLE_READ].counters;
    for (int round = 0; round < 2000; round++) {
        while (fake_receivers())
            fake_end(0, 0);
        while (fake_sends())
            fake_finish_send();
        clock_ns += 100000000;
        fuzz_must(rmq_reader_run(reader, 0) >= 0, "the reader runs");
        answer_requests();
        play_control(1);
    }
    fuzz_must(counters[RMQ_READ_CONNECTIONS] == 0, "no connection is left");
    fuzz_must(counters[RMQ_READ_HELD] == 0, "no poll is left");
    fuzz_must(counters[RMQ_READ_BUFFERS_FREE] == BUFFERS, "every receive buffer is free again");
    fuzz_must(counters[RMQ_READ_BLOCK_BYTES_FREE] == BLOCKS_BYTES, "every block is free again");
    rmq_reader_close(reader);
    free(hot);
}

int main(int argc, char **argv)
{
    static uint8_t frame[INPUT_MAX];
    fuzz_must(argc == 5, "GOLDEN SEED INPUTS FOLDER");
    fuzz_read_golden(argv[1]);
    fuzz_seed((uint64_t)atoll(argv[2]));
    set_up(argv[4]);
    run_reader();
    long long inputs = atoll(argv[3]);
    for (long long n = 0; n < inputs; n++) {
        uint32_t length = make_input(frame);
        parse_header(frame, length);
        say(frame, length);
        if (!fuzz_dice(3))
            run_reader();
    }
    const uint64_t *counters = rmq_header(&plane)->roles[RMQ_ROLE_READ].counters;
    uint64_t polls_held = counters[RMQ_READ_HELD];
    close_down();
    printf("{\"inputs\": %lld, \"headers\": %llu, \"frames\": %llu, \"appends\": %llu, \"pulls\": %llu, \"cold\": %llu, "
           "\"redirected\": %llu, \"connections\": %llu, \"stalls\": %llu, \"sent_bytes\": %llu, \"arrivals\": %llu, "
           "\"named\": %llu, \"unsent\": %llu, \"held\": %llu, \"again\": %llu, "
           "\"faults\": %llu}\n",
           inputs, (unsigned long long)headers_read, (unsigned long long)counters[RMQ_READ_FRAMES],
           (unsigned long long)counters[RMQ_READ_APPENDS], (unsigned long long)counters[RMQ_READ_PULLS],
           (unsigned long long)cold_seen, (unsigned long long)redirects_seen, (unsigned long long)counters[RMQ_READ_ACCEPTED],
           (unsigned long long)counters[RMQ_READ_STALLS], (unsigned long long)fake_sent_bytes(), (unsigned long long)arrivals,
           (unsigned long long)counters[RMQ_READ_NAMED_MESSAGES], (unsigned long long)unsents_seen,
           (unsigned long long)polls_held, (unsigned long long)polls_again, (unsigned long long)fuzz_memory_faults());
    return 0;
}
