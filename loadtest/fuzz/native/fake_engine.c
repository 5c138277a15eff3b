#include "fake_engine.h"

#include <errno.h>
#include <sanitizer/asan_interface.h>
#include <unistd.h>

#include "fuzz.h"

enum { EVENTS_MAX = 1 << 16, RECEIVERS_MAX = 4096, SENDS_MAX = 4096, LISTENERS = 2 };

struct rmq_engine {
    struct rmq_engine_options options;
};

struct send {
    uint64_t tag, bytes;
};

static struct rmq_engine engine;
static struct rmq_event events[EVENTS_MAX];
static uint32_t event_head, event_count;
static uint64_t receivers[RECEIVERS_MAX];
static uint8_t receives_once[RECEIVERS_MAX];
static uint32_t receiver_count;
static struct send sends[SENDS_MAX];
static uint32_t send_count;
static uint32_t lent[1 << 15], lent_head, lent_count;
static int accepts[LISTENERS];
static uint64_t sent_bytes, checksum;

static void push(struct rmq_event event)
{
    fuzz_must(event_count < EVENTS_MAX, "room for events");
    events[(event_head + event_count++) % EVENTS_MAX] = event;
}

static uint8_t *buffer_at(uint32_t buffer) { return engine.options.buffers + (uint64_t)buffer * engine.options.buffer_bytes; }

int rmq_engine_open(struct rmq_engine **out, const struct rmq_engine_options *options, const char **call)
{
    (void)call;
    engine.options = *options;
    event_count = receiver_count = send_count = lent_count = 0;
    *out = &engine;
    return 0;
}

void rmq_engine_close(struct rmq_engine *e)
{
    if (e)
        ASAN_UNPOISON_MEMORY_REGION(e->options.buffers, (size_t)e->options.buffer_bytes * e->options.buffer_count);
}

int rmq_engine_accept(struct rmq_engine *e, int fd, uint64_t tag)
{
    (void)e, (void)fd;
    accepts[tag] = 1;
    return 0;
}

int rmq_engine_accept_stop(struct rmq_engine *e, int fd, uint64_t tag)
{
    (void)e, (void)fd;
    accepts[tag] = 0;
    push((struct rmq_event){.tag = tag, .result = -ECANCELED, .buffer = RMQ_NO_BUFFER, .kind = RMQ_EVENT_ACCEPTED});
    return 0;
}

static int add_receiver(uint64_t tag, int once)
{
    for (uint32_t i = 0; i < receiver_count; i++)
        fuzz_must(receivers[i] != tag, "one receive for each connection");
    fuzz_must(receiver_count < RECEIVERS_MAX, "room for receives");
    receives_once[receiver_count] = (uint8_t)once;
    receivers[receiver_count++] = tag;
    return 0;
}

int rmq_engine_receive(struct rmq_engine *e, int fd, uint64_t tag) { return (void)e, (void)fd, add_receiver(tag, 0); }

int rmq_engine_receive_once(struct rmq_engine *e, int fd, uint64_t tag) { return (void)e, (void)fd, add_receiver(tag, 1); }

static void forget_receiver(uint32_t number)
{
    receivers[number] = receivers[--receiver_count];
    receives_once[number] = receives_once[receiver_count];
}

int rmq_engine_receive_stop(struct rmq_engine *e, int fd, uint64_t tag)
{
    (void)e, (void)fd;
    for (uint32_t i = 0; i < receiver_count; i++)
        if (receivers[i] == tag) {
            forget_receiver(i);
            push((struct rmq_event){.tag = tag, .result = -ECANCELED, .buffer = RMQ_NO_BUFFER, .kind = RMQ_EVENT_RECEIVED});
            break;
        }
    return 0;
}

int rmq_engine_send(struct rmq_engine *e, int fd, const struct msghdr *message, uint64_t tag)
{
    (void)e, (void)fd;
    struct send s = {.tag = tag};
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const uint8_t *bytes = message->msg_iov[i].iov_base;
        for (size_t at = 0; at < message->msg_iov[i].iov_len; at += at + 64 < message->msg_iov[i].iov_len ? 64 : 1)
            checksum += bytes[at];
        s.bytes += message->msg_iov[i].iov_len;
    }
    fuzz_must(s.bytes > 0 && send_count < SENDS_MAX, "a send has bytes, and there is room for it");
    sends[send_count++] = s;
    return 0;
}

void rmq_engine_hang_up(struct rmq_engine *e, int fd) { (void)e, close(fd); }

int rmq_engine_read_mapped(struct rmq_engine *e, const void *at, uint32_t bytes, uint64_t tag)
{
    (void)e, (void)at;
    push((struct rmq_event){.tag = tag, .result = (int32_t)bytes, .buffer = RMQ_NO_BUFFER, .kind = RMQ_EVENT_READ});
    return 0;
}

void rmq_engine_lend(struct rmq_engine *e, const uint32_t *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        fuzz_must(buffers[i] < e->options.buffer_count && lent_count < e->options.buffer_count, "a buffer is lent once");
        ASAN_POISON_MEMORY_REGION(buffer_at(buffers[i]), e->options.buffer_bytes);
        lent[(lent_head + lent_count++) % (sizeof lent / sizeof *lent)] = buffers[i];
    }
}

int rmq_engine_wait(struct rmq_engine *e, int64_t timeout_ns)
{
    (void)e, (void)timeout_ns;
    return 0;
}

uint32_t rmq_engine_take(struct rmq_engine *e, struct rmq_event *out, uint32_t room)
{
    (void)e;
    uint32_t count = 0;
    while (event_count && count < room) {
        out[count++] = events[event_head];
        event_head = (event_head + 1) % EVENTS_MAX;
        event_count--;
    }
    return count;
}

int rmq_engine_queued(struct rmq_engine *e) { return (void)e, 0; }
int rmq_engine_ready(struct rmq_engine *e) { return (void)e, event_count > 0; }

/* --- the driver's side ------------------------------------------------------------------------------------- */

int fake_accept(int fd, uint64_t listener)
{
    if (!accepts[listener])
        return 0;
    push((struct rmq_event){.tag = listener, .result = fd, .buffer = RMQ_NO_BUFFER, .kind = RMQ_EVENT_ACCEPTED, .more = 1});
    return 1;
}

uint32_t fake_receivers(void) { return receiver_count; }
uint64_t fake_receiver(uint32_t number) { return receivers[number]; }
uint64_t fake_sent_bytes(void) { return sent_bytes; }
uint32_t fake_sends(void) { return send_count; }

uint32_t fake_deliver(uint32_t number, const uint8_t *bytes, uint32_t length)
{
    uint64_t tag = receivers[number];
    if (!lent_count) {
        forget_receiver(number);
        push((struct rmq_event){.tag = tag, .result = -ENOBUFS, .buffer = RMQ_NO_BUFFER, .kind = RMQ_EVENT_RECEIVED});
        return 0;
    }
    uint32_t buffer = lent[lent_head], part = length < engine.options.buffer_bytes ? length : engine.options.buffer_bytes;
    lent_head = (lent_head + 1) % (sizeof lent / sizeof *lent);
    lent_count--;
    ASAN_UNPOISON_MEMORY_REGION(buffer_at(buffer), part);
    memcpy(buffer_at(buffer), bytes, part);
    uint8_t more = !receives_once[number] && fuzz_dice(8) > 0;
    if (!more)
        forget_receiver(number);
    push((struct rmq_event){
        .tag = tag, .result = (int32_t)part, .buffer = (uint16_t)buffer, .kind = RMQ_EVENT_RECEIVED, .more = more});
    return part;
}

void fake_end(uint32_t number, int result)
{
    uint64_t tag = receivers[number];
    forget_receiver(number);
    push((struct rmq_event){.tag = tag, .result = result, .buffer = RMQ_NO_BUFFER, .kind = RMQ_EVENT_RECEIVED});
}

void fake_finish_send(void)
{
    uint32_t number = (uint32_t)fuzz_dice(send_count);
    struct send s = sends[number];
    sends[number] = sends[--send_count];
    int64_t result = (int64_t)s.bytes;
    if (!fuzz_dice(64))
        result = fuzz_dice(2) ? -EPIPE : -ECONNRESET;
    else if (!fuzz_dice(4))
        result = 1 + (int64_t)fuzz_dice(s.bytes);
    sent_bytes += result > 0 ? (uint64_t)result : 0;
    push((struct rmq_event){.tag = s.tag, .result = (int32_t)result, .buffer = RMQ_NO_BUFFER, .kind = RMQ_EVENT_SENT});
}
