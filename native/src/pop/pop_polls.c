#include "pop/pop_polls.h"

#include <stdlib.h>
#include <string.h>

#include "plane/invariant.h"
#include "plane/tables_layout.h"
#include "pop/pop_hash.h"
#include "pop/pop_wheel.h"

enum list { OF_TOPIC, OF_RETRY_V1, OF_RETRY_V2, OF_GROUP, LISTS };
enum state { ASLEEP, AWAKE, BEHIND };

struct links {
    uint32_t next, previous; /* a member or key + 1 */
};

struct key {
    struct rmq_pop_key names;
    uint32_t retries[2];
    uint32_t first, last, count; /* polls; number + 1. count 0: the key is free */
    uint32_t from;               /* the poll with which it goes on; number + 1, 0: that which is served first */
    int64_t told_to;
    enum state state;
    struct links queue;          /* of the awake or of those behind; of free ones `next` alone */
    struct links lists[LISTS];   /* a member is LISTS times its key, and its list */
};

struct queue {
    uint32_t first, last;        /* key + 1 */
};

struct rmq_pop_polls {
    uint32_t topics, groups;
    uint32_t used, free;         /* polls; free: number + 1 */
    uint32_t keys_used, free_key;
    uint32_t counts[RMQ_POP_POLL_KINDS], key_counts[RMQ_POP_POLL_KINDS];
    uint64_t bytes;
    struct rmq_pop_poll *polls;
    struct key *keys;
    uint32_t *of_topic, *of_group; /* the first member + 1 of each */
    struct queue awake, behind;
    struct rmq_pop_hash by_key, by_serial, by_connection;
    struct rmq_pop_wheel wheel;
};

/* --- hashes --------------------------------------------------------------------------------------------------- */

static uint64_t hash_of_names(const struct rmq_pop_key *names)
{
    uint64_t word = rmq_pop_mix((uint64_t)names->topic_id << 32 | names->group_id);
    return rmq_pop_mix(word + ((uint64_t)names->kind << 32 | (uint32_t)names->queue_id));
}

static uint64_t hash_of_connection(uint32_t role, uint32_t connection, uint32_t generation)
{
    uint64_t word = rmq_pop_mix((uint64_t)connection << 32 | generation);
    return rmq_pop_mix(word + role);
}

static uint64_t key_hash(const void *owner, uint32_t key)
{
    return hash_of_names(&((const struct rmq_pop_polls *)owner)->keys[key].names);
}

static uint64_t serial_hash(const void *owner, uint32_t poll)
{
    return rmq_pop_mix(((const struct rmq_pop_polls *)owner)->polls[poll].ask.serial);
}

static uint64_t connection_hash(const void *owner, uint32_t poll)
{
    const struct rmq_pop_poll_ask *ask = &((const struct rmq_pop_polls *)owner)->polls[poll].ask;
    return hash_of_connection(ask->role, ask->connection, ask->connection_generation);
}

/* --- the table ------------------------------------------------------------------------------------------------ */

struct rmq_pop_polls *rmq_pop_polls_open(uint32_t topics, uint32_t groups, int64_t now_ms)
{
    struct rmq_pop_polls *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->topics = topics;
    p->groups = groups;
    p->polls = calloc(RMQ_POP_POLLS_MAX, sizeof *p->polls); /* touched as far as used, and so are the others */
    p->keys = calloc(RMQ_POP_POLLS_MAX, sizeof *p->keys);
    p->of_topic = calloc((size_t)topics + 1, sizeof *p->of_topic);
    p->of_group = calloc((size_t)groups + 1, sizeof *p->of_group);
    int rc = rmq_pop_hash_open(&p->by_key, RMQ_POP_POLLS_MAX, 1, key_hash, p);
    rc |= rmq_pop_hash_open(&p->by_serial, RMQ_POP_POLLS_MAX, 1, serial_hash, p);
    rc |= rmq_pop_hash_open(&p->by_connection, RMQ_POP_POLLS_MAX, 1, connection_hash, p);
    rc |= rmq_pop_wheel_open(&p->wheel, RMQ_POP_POLLS_MAX, now_ms);
    if (p->polls && p->keys && p->of_topic && p->of_group && !rc)
        return p;
    rmq_pop_polls_close(p);
    return NULL;
}

void rmq_pop_polls_close(struct rmq_pop_polls *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; p->polls && i < p->used; i++)
        free(p->polls[i].request);
    free(p->polls);
    free(p->keys);
    free(p->of_topic);
    free(p->of_group);
    rmq_pop_hash_close(&p->by_key);
    rmq_pop_hash_close(&p->by_serial);
    rmq_pop_hash_close(&p->by_connection);
    rmq_pop_wheel_close(&p->wheel);
    free(p);
}

/* --- lists of keys -------------------------------------------------------------------------------------------- */

static struct links *member_links(struct rmq_pop_polls *p, uint32_t member)
{
    return &p->keys[member / LISTS].lists[member % LISTS];
}

static uint32_t *head_of(struct rmq_pop_polls *p, const struct key *key, enum list list)
{
    if (list == OF_GROUP)
        return &p->of_group[key->names.group_id];
    return &p->of_topic[list == OF_TOPIC ? key->names.topic_id : key->retries[list - OF_RETRY_V1]];
}

static int is_listed(const struct key *key, enum list list)
{
    return list == OF_TOPIC || list == OF_GROUP || key->retries[list - OF_RETRY_V1] != RMQ_NONE;
}

static void join(struct rmq_pop_polls *p, uint32_t key, enum list list)
{
    uint32_t *head = head_of(p, &p->keys[key], list), name = key * LISTS + list + 1;
    p->keys[key].lists[list] = (struct links){.next = *head};
    if (*head)
        member_links(p, *head - 1)->previous = name;
    *head = name;
}

static void quit(struct rmq_pop_polls *p, uint32_t key, enum list list)
{
    struct links links = p->keys[key].lists[list];
    if (links.previous)
        member_links(p, links.previous - 1)->next = links.next;
    else
        *head_of(p, &p->keys[key], list) = links.next;
    if (links.next)
        member_links(p, links.next - 1)->previous = links.previous;
}

/* --- states of keys ------------------------------------------------------------------------------------------- */

static struct queue *queue_of(struct rmq_pop_polls *p, enum state state) { return state == AWAKE ? &p->awake : &p->behind; }

static void leave_queue(struct rmq_pop_polls *p, struct key *key)
{
    struct queue *queue = queue_of(p, key->state);
    if (key->state == ASLEEP)
        return;
    if (key->queue.previous)
        p->keys[key->queue.previous - 1].queue.next = key->queue.next;
    else
        queue->first = key->queue.next;
    if (key->queue.next)
        p->keys[key->queue.next - 1].queue.previous = key->queue.previous;
    else
        queue->last = key->queue.previous;
    key->state = ASLEEP;
}

static void enter_queue(struct rmq_pop_polls *p, struct key *key, enum state state)
{
    struct queue *queue = queue_of(p, state);
    uint32_t name = (uint32_t)(key - p->keys) + 1;
    key->state = state;
    key->queue = (struct links){.previous = queue->last};
    if (queue->last)
        p->keys[queue->last - 1].queue.next = name;
    else
        queue->first = name;
    queue->last = name;
}

static void wake(struct rmq_pop_polls *p, struct key *key)
{
    key->from = 0;
    if (key->state == AWAKE)
        return;
    leave_queue(p, key);
    enter_queue(p, key, AWAKE);
}

/* No message has come, but one poll may find something. */
static void wake_for_one(struct rmq_pop_polls *p, struct key *key)
{
    key->told_to--;
    wake(p, key);
}

/* --- keys ----------------------------------------------------------------------------------------------------- */

static uint32_t find_key(const struct rmq_pop_polls *p, const struct rmq_pop_key *names)
{
    for (uint32_t at = rmq_pop_hash_first(&p->by_key, hash_of_names(names)); at; at = p->by_key.next[at - 1]) {
        const struct rmq_pop_key *found = &p->keys[at - 1].names;
        if (found->topic_id == names->topic_id && found->group_id == names->group_id && found->queue_id == names->queue_id &&
            found->kind == names->kind)
            return at - 1;
    }
    return RMQ_NONE;
}

static uint32_t make_key(struct rmq_pop_polls *p, const struct rmq_pop_key *names)
{
    uint32_t key = p->free_key ? p->free_key - 1 : p->keys_used++; /* there are as many as polls */
    if (p->free_key)
        p->free_key = p->keys[key].queue.next;
    p->keys[key] = (struct key){.names = *names, .retries = {RMQ_NONE, RMQ_NONE}};
    p->key_counts[names->kind]++;
    rmq_pop_hash_add(&p->by_key, key);
    join(p, key, OF_TOPIC);
    join(p, key, OF_GROUP);
    return key;
}

static void drop_key(struct rmq_pop_polls *p, uint32_t number)
{
    struct key *key = &p->keys[number];
    leave_queue(p, key);
    for (enum list list = 0; list < LISTS; list++)
        if (is_listed(key, list))
            quit(p, number, list);
    rmq_pop_hash_remove(&p->by_key, number);
    p->key_counts[key->names.kind]--;
    key->queue.next = p->free_key;
    p->free_key = number + 1;
}

uint32_t rmq_pop_polls_key_from(const struct rmq_pop_polls *p, uint32_t number, struct rmq_pop_key *key)
{
    for (; number < p->keys_used; number++)
        if (p->keys[number].count) {
            *key = p->keys[number].names;
            return number;
        }
    return RMQ_NONE;
}

void rmq_pop_polls_set_retries(struct rmq_pop_polls *p, const struct rmq_pop_key *names, uint32_t v1, uint32_t v2)
{
    const uint32_t topics[] = {v1, v2};
    uint32_t key = find_key(p, names);
    for (uint32_t i = 0; key != RMQ_NONE && i < 2; i++) {
        if (topics[i] > p->topics || p->keys[key].retries[i] == topics[i])
            continue;
        if (p->keys[key].retries[i] != RMQ_NONE)
            quit(p, key, OF_RETRY_V1 + i);
        p->keys[key].retries[i] = topics[i];
        join(p, key, OF_RETRY_V1 + i);
    }
}

/* --- polls ---------------------------------------------------------------------------------------------------- */

uint32_t rmq_pop_polls_count(const struct rmq_pop_polls *p)
{
    return p->counts[RMQ_POP_POLL_POP] + p->counts[RMQ_POP_POLL_NOTIFICATION];
}

uint32_t rmq_pop_polls_count_kind(const struct rmq_pop_polls *p, uint32_t kind) { return p->counts[kind]; }

static int is_full(const struct rmq_pop_polls *p, const struct rmq_pop_poll_limits *limits, uint32_t kind, uint32_t key,
                   uint32_t bytes)
{
    return p->counts[kind] >= limits->polls || rmq_pop_polls_count(p) == RMQ_POP_POLLS_MAX ||
           bytes > RMQ_POP_POLLS_BYTES_MAX - p->bytes ||
           (key == RMQ_NONE ? p->key_counts[kind] >= limits->keys : p->keys[key].count > limits->of_key);
}

/* The poll that is served behind this one; number + 1. */
static uint32_t behind(const struct key *key, const struct rmq_pop_poll *poll)
{
    return key->names.kind == RMQ_POP_POLL_NOTIFICATION ? poll->previous : poll->next;
}

static void join_key(struct rmq_pop_polls *p, uint32_t number, uint32_t key_number)
{
    struct key *key = &p->keys[key_number];
    struct rmq_pop_poll *poll = &p->polls[number];
    poll->key = key_number;
    poll->previous = key->last;
    if (key->last)
        p->polls[key->last - 1].next = number + 1;
    else
        key->first = number + 1;
    key->last = number + 1;
    key->count++;
}

static void quit_key(struct rmq_pop_polls *p, const struct rmq_pop_poll *poll)
{
    struct key *key = &p->keys[poll->key];
    if (poll->previous)
        p->polls[poll->previous - 1].next = poll->next;
    else
        key->first = poll->next;
    if (poll->next)
        p->polls[poll->next - 1].previous = poll->previous;
    else
        key->last = poll->previous;
    if (key->from && &p->polls[key->from - 1] == poll)
        key->from = behind(key, poll);
    if (!--key->count)
        drop_key(p, poll->key);
}

uint32_t rmq_pop_polls_add(struct rmq_pop_polls *p, const struct rmq_pop_poll_limits *limits, const struct rmq_pop_poll_ask *ask,
                           const void *request, uint32_t request_bytes)
{
    RMQ_INVARIANT(ask->key.topic_id <= p->topics && ask->key.group_id <= p->groups, ask->key.topic_id, ask->key.group_id);
    uint32_t key = find_key(p, &ask->key), kind = ask->key.kind;
    uint8_t *copy = is_full(p, limits, kind, key, request_bytes) ? NULL : malloc(request_bytes ? request_bytes : 1);
    if (!copy)
        return RMQ_NONE;
    memcpy(copy, request, request_bytes);
    uint32_t number = p->free ? p->free - 1 : p->used++;
    if (p->free)
        p->free = p->polls[number].next;
    p->polls[number] = (struct rmq_pop_poll){.ask = *ask, .request = copy, .request_bytes = request_bytes};
    p->counts[kind]++;
    p->bytes += request_bytes;
    join_key(p, number, key == RMQ_NONE ? make_key(p, &ask->key) : key);
    rmq_pop_hash_add(&p->by_serial, number);
    rmq_pop_hash_add(&p->by_connection, number);
    rmq_pop_wheel_add(&p->wheel, number, ask->due_ms);
    return number;
}

void rmq_pop_polls_end(struct rmq_pop_polls *p, uint32_t number)
{
    struct rmq_pop_poll *poll = &p->polls[number];
    RMQ_INVARIANT(number < p->used && poll->request, number, p->used);
    p->counts[poll->ask.key.kind]--;
    quit_key(p, poll);
    rmq_pop_hash_remove(&p->by_serial, number);
    rmq_pop_hash_remove(&p->by_connection, number);
    rmq_pop_wheel_remove(&p->wheel, number);
    p->bytes -= poll->request_bytes;
    free(poll->request);
    poll->request = NULL;
    poll->next = p->free;
    p->free = number + 1;
}

const struct rmq_pop_poll *rmq_pop_polls_at(const struct rmq_pop_polls *p, uint32_t poll) { return &p->polls[poll]; }

uint32_t rmq_pop_polls_named(const struct rmq_pop_polls *p, uint32_t serial)
{
    for (uint32_t at = rmq_pop_hash_first(&p->by_serial, rmq_pop_mix(serial)); at; at = p->by_serial.next[at - 1])
        if (p->polls[at - 1].ask.serial == serial)
            return at - 1;
    return RMQ_NONE;
}

uint32_t rmq_pop_polls_closed(struct rmq_pop_polls *p, uint32_t role, uint32_t role_generation, uint32_t connection,
                              uint32_t connection_generation)
{
    uint64_t hash = hash_of_connection(role, connection, connection_generation);
    uint32_t ended = 0;
    for (uint32_t at = rmq_pop_hash_first(&p->by_connection, hash), next; at; at = next) {
        const struct rmq_pop_poll_ask *ask = &p->polls[at - 1].ask;
        next = p->by_connection.next[at - 1];
        if (ask->role != role || ask->role_generation != role_generation || ask->connection != connection ||
            ask->connection_generation != connection_generation)
            continue;
        rmq_pop_polls_end(p, at - 1);
        ended++;
    }
    return ended;
}

uint32_t rmq_pop_polls_restarted(struct rmq_pop_polls *p, uint32_t role, uint32_t role_generation)
{
    uint32_t ended = 0;
    for (uint32_t number = 0; number < p->used; number++) {
        const struct rmq_pop_poll *poll = &p->polls[number];
        if (!poll->request || poll->ask.role != role || (int32_t)(role_generation - poll->ask.role_generation) <= 0)
            continue;
        rmq_pop_polls_end(p, number);
        ended++;
    }
    return ended;
}

uint32_t rmq_pop_polls_count_of(const struct rmq_pop_polls *p, const struct rmq_pop_key *names)
{
    uint32_t key = find_key(p, names);
    return key == RMQ_NONE ? 0 : p->keys[key].count;
}

int64_t rmq_pop_polls_told_to(const struct rmq_pop_polls *p, const struct rmq_pop_key *names)
{
    uint32_t key = find_key(p, names);
    return key == RMQ_NONE ? 0 : p->keys[key].told_to;
}

void rmq_pop_polls_tell_to(struct rmq_pop_polls *p, const struct rmq_pop_key *names, int64_t ends)
{
    uint32_t key = find_key(p, names);
    if (key != RMQ_NONE)
        p->keys[key].told_to = ends;
}

/* --- wake-ups ------------------------------------------------------------------------------------------------- */

uint32_t rmq_pop_polls_wake_queue(struct rmq_pop_polls *p, uint32_t topic_id, uint32_t queue_id)
{
    uint32_t count = 0;
    for (uint32_t at = topic_id <= p->topics ? p->of_topic[topic_id] : 0; at; at = member_links(p, at - 1)->next) {
        struct key *key = &p->keys[(at - 1) / LISTS];
        int32_t queue = (at - 1) % LISTS == OF_TOPIC ? key->names.queue_id : -1; /* retries are those of all queues */
        if (queue >= 0 && (uint32_t)queue != queue_id)
            continue;
        wake(p, key);
        count++;
    }
    return count;
}

void rmq_pop_polls_wake_group(struct rmq_pop_polls *p, uint32_t group_id)
{
    for (uint32_t at = group_id <= p->groups ? p->of_group[group_id] : 0; at; at = member_links(p, at - 1)->next)
        wake_for_one(p, &p->keys[(at - 1) / LISTS]);
}

void rmq_pop_polls_wake_key(struct rmq_pop_polls *p, const struct rmq_pop_key *names)
{
    uint32_t key = find_key(p, names);
    if (key != RMQ_NONE)
        wake_for_one(p, &p->keys[key]);
}

int rmq_pop_polls_is_awake(const struct rmq_pop_polls *p) { return p->awake.first != 0; }

uint32_t rmq_pop_polls_take_awake(struct rmq_pop_polls *p)
{
    if (!p->awake.first)
        return RMQ_NONE;
    struct key *key = &p->keys[p->awake.first - 1];
    uint32_t first = key->from ? key->from : key->names.kind == RMQ_POP_POLL_NOTIFICATION ? key->last : key->first;
    key->from = 0;
    leave_queue(p, key);
    return first - 1;
}

void rmq_pop_polls_resume(struct rmq_pop_polls *p, uint32_t poll)
{
    struct key *key = &p->keys[p->polls[poll].key];
    wake(p, key);
    key->from = poll + 1;
}

uint32_t rmq_pop_polls_next_of(const struct rmq_pop_polls *p, uint32_t poll)
{
    uint32_t next = behind(&p->keys[p->polls[poll].key], &p->polls[poll]);
    return next ? next - 1 : RMQ_NONE;
}

void rmq_pop_polls_put_behind(struct rmq_pop_polls *p, uint32_t poll)
{
    struct key *key = &p->keys[p->polls[poll].key];
    if (key->state == ASLEEP)
        enter_queue(p, key, BEHIND);
}

int rmq_pop_polls_is_behind(const struct rmq_pop_polls *p) { return p->behind.first != 0; }

void rmq_pop_polls_go_on(struct rmq_pop_polls *p, uint32_t room)
{
    for (; room && p->behind.first; room--)
        wake(p, &p->keys[p->behind.first - 1]);
}

uint32_t rmq_pop_polls_due(struct rmq_pop_polls *p, int64_t now_ms, uint32_t *steps)
{
    return rmq_pop_wheel_first(&p->wheel, now_ms, steps);
}

int64_t rmq_pop_polls_next_ms(const struct rmq_pop_polls *p) { return rmq_pop_wheel_next(&p->wheel); }
