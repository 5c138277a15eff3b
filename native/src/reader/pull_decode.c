/* pull_decode.c: a pull's fields, and the check that the published tables allow an answer without control. */
#include "codec/record.h"
#include "plane/settings_word.h"
#include "reader/pulls.h"
#include "reader/request_codes.h"

enum {
    SEEN_GROUP = 1, SEEN_TOPIC = 2, SEEN_QUEUE = 4, SEEN_OFFSET = 8, SEEN_COUNT = 16, SEEN_SYS_FLAG = 32, SEEN_COMMIT = 64,
    SEEN_SUSPEND = 128, SEEN_ALL = 255
};

enum { PERM_READ = 4 };

struct seen {
    uint32_t fields;
    int other_type; /* expressionType is neither absent nor TAG */
    int is_sql;
    const struct rmq_ext_entry *escaped; /* the expression, if it holds JSON escapes */
};

#define KEY_IS(literal) (e->key_length == sizeof(literal) - 1 && !memcmp(e->key, literal, sizeof(literal) - 1))

static int take_int(const struct rmq_ext_entry *e, uint32_t mark, struct seen *seen, int32_t *to)
{
    seen->fields |= mark;
    return rmq_field_int32(e, to);
}

static int take_long(const struct rmq_ext_entry *e, uint32_t mark, struct seen *seen, int64_t *to)
{
    seen->fields |= mark;
    return rmq_field_int64(e, to);
}

static int take_name(const struct rmq_ext_entry *e, uint32_t mark, struct seen *seen, uint8_t *room, const uint8_t **to, uint32_t *length)
{
    seen->fields |= mark;
    return rmq_field_text(e, room, RMQ_NAME_JSON_MAX, to, length) && *length <= RMQ_NAME_MAX;
}

/* One field; 0 = not of its type. Unknown ones are passed over. */
static int take_field(const struct rmq_ext_entry *e, struct rmq_pull *p, struct seen *seen)
{
    switch (e->key_length) {
    case 5:
        return KEY_IS("topic") ? take_name(e, SEEN_TOPIC, seen, p->topic_text, &p->topic, &p->topic_length) : 1;
    case 7:
        if (KEY_IS("queueId"))
            return take_int(e, SEEN_QUEUE, seen, &p->queue_id);
        return KEY_IS("sysFlag") ? take_int(e, SEEN_SYS_FLAG, seen, &p->sys_flag) : 1;
    case 10:
        if (KEY_IS("maxMsgNums"))
            return take_int(e, SEEN_COUNT, seen, &p->count_max);
        if (KEY_IS("ringmqBulk"))
            p->is_bulk = rmq_field_is(e, "true");
        return KEY_IS("subVersion") ? take_long(e, 0, seen, &p->sub_version) : 1;
    case 11:
        return KEY_IS("queueOffset") ? take_long(e, SEEN_OFFSET, seen, &p->offset) : 1;
    case 12:
        if (KEY_IS("commitOffset"))
            return take_long(e, SEEN_COMMIT, seen, &p->commit_offset);
        if (KEY_IS("subscription")) {
            p->expression = e->value;
            p->expression_length = e->value_length;
            seen->escaped = e->escaped == RMQ_TEXT_ESCAPED ? e : NULL;
            return e->escaped != RMQ_TEXT_BARE || rmq_bare_is_text(e);
        }
        return 1;
    case 13:
        return KEY_IS("consumerGroup") ? take_name(e, SEEN_GROUP, seen, p->group_text, &p->group, &p->group_length) : 1;
    case 14:
        if (KEY_IS("expressionType"))
            seen->other_type = e->value_length && !rmq_field_is(e, "TAG");
        seen->is_sql = seen->other_type && rmq_field_is(e, "SQL92");
        return 1;
    case 20:
        return KEY_IS("suspendTimeoutMillis") ? take_long(e, SEEN_SUSPEND, seen, &p->suspend_ms) : 1;
    default:
        return 1;
    }
}

/* "a || b" -> hashes, as FilterAPI.buildSubscriptionData; 0 = control decides (nothing in it, too many). */
static int parse_expression(struct rmq_pull *p)
{
    const uint8_t *at = p->expression, *end = at + p->expression_length;
    struct rmq_subscription_copy *f = &p->filter;
    f->tag_count = 0;
    f->kind = RMQ_SUBSCRIPTION_ALL;
    if (!p->expression_length || (p->expression_length == 1 && *at == '*'))
        return 1;
    f->kind = RMQ_SUBSCRIPTION_TAGS;
    while (at <= end) {
        const uint8_t *stop = at;
        while (stop < end && !(end - stop >= 2 && stop[0] == '|' && stop[1] == '|'))
            stop++;
        const uint8_t *from = at, *to = stop;
        while (from < to && *from <= ' ')
            from++;
        while (to > from && to[-1] <= ' ')
            to--;
        if (from < to) {
            if (f->tag_count == RMQ_TAGS_MAX)
                return 0;
            f->tags[f->tag_count++] = rmq_java_hash(from, (size_t)(to - from));
        }
        at = stop + 2;
    }
    return f->tag_count > 0;
}

static int group_allows(struct rmq_pulls *pulls, struct rmq_pull *p, int approved)
{
    p->group_id = rmq_group_find(pulls->context->plane, (const char *)p->group, p->group_length);
    if (p->group_id == RMQ_NONE)
        return 0;
    uint64_t config = rmq_load(&rmq_group_at(pulls->context->plane, p->group_id)->config);
    if (!(config & RMQ_GROUP_LIVE) || !(config & RMQ_GROUP_CONSUME_ENABLE) || (config & RMQ_GROUP_PULL_COLD && !approved))
        return 0;
    p->group_config = config;
    if (p->sys_flag & RMQ_PULL_SUBSCRIPTION)
        return 1;
    return config & RMQ_GROUP_HAS_MEMBERS && (!(config & RMQ_GROUP_BROADCASTING) || config & RMQ_GROUP_BROADCAST_ENABLE);
}

static int topic_allows(struct rmq_pulls *pulls, struct rmq_pull *p, int approved)
{
    p->topic_id = rmq_topic_find(pulls->context->plane, (const char *)p->topic, p->topic_length);
    if (p->topic_id == RMQ_NONE)
        return 0;
    uint64_t config = rmq_load(&rmq_topic_at(pulls->context->plane, p->topic_id)->config);
    uint32_t flags = rmq_topic_flags(config);
    if (!(flags & RMQ_TOPIC_LIVE) || (flags & RMQ_TOPIC_PULL_COLD && !approved) || !(rmq_topic_perm(config) & PERM_READ) ||
        p->queue_id < 0 || (uint32_t)p->queue_id >= rmq_topic_read_queues(config))
        return 0;
    p->queue_slot = rmq_queue_find(pulls->context->plane, p->topic_id, (uint32_t)p->queue_id);
    return p->queue_slot != RMQ_NONE;
}

/* Go's JSON writes < and > as escapes. */
static int unescape_expression(struct rmq_pulls *pulls, struct rmq_pull *p, const struct rmq_ext_entry *e)
{
    return !e || rmq_field_text(e, pulls->filters.text, RMQ_FILTER_TEXT_MAX, &p->expression, &p->expression_length);
}

static int subscription_allows(struct rmq_pulls *pulls, struct rmq_pull *p, const struct seen *seen)
{
    if (p->sys_flag & RMQ_PULL_SUBSCRIPTION) {
        if (!unescape_expression(pulls, p, seen->escaped)) {
            p->unread = seen->escaped;
            return 0;
        }
        if (seen->is_sql)
            return rmq_filter_prepare(&pulls->filters, p);
        return !seen->other_type && parse_expression(p);
    }
    rmq_subscription_get(pulls->context->plane, p->group_id, p->topic_id, &p->filter);
    if (p->filter.sub_version < p->sub_version)
        return 0;
    if (p->filter.kind == RMQ_SUBSCRIPTION_FILTER)
        return rmq_filter_prepare(&pulls->filters, p);
    return p->filter.kind == RMQ_SUBSCRIPTION_ALL || p->filter.kind == RMQ_SUBSCRIPTION_TAGS;
}

enum rmq_outcome rmq_pull_decode(struct rmq_pulls *pulls, const struct rmq_connection *c, const struct rmq_frame_header *h,
                                 struct rmq_pull *p, int approved)
{
    struct seen seen = {0};
    p->expression = NULL;
    p->expression_length = 0;
    p->is_bulk = 0;
    p->sub_version = 0; /* the one field that control can do without */
    p->unread = NULL;
    if (c->listener || h->flag & RMQ_FLAG_ONEWAY || (h->code == RMQ_CODE_LITE_PULL && !pulls->context->settings->lite_pull_enable))
        return RMQ_OUTCOME_COLD;
    for (uint32_t i = 0; i < h->ext_count; i++)
        if (!take_field(&h->ext[i], p, &seen)) {
            p->unread = &h->ext[i];
            return RMQ_OUTCOME_COLD;
        }
    if (seen.fields != SEEN_ALL || p->sys_flag & RMQ_PULL_CLASS_FILTER || !group_allows(pulls, p, approved) ||
        !topic_allows(pulls, p, approved) || !subscription_allows(pulls, p, &seen))
        return RMQ_OUTCOME_COLD;
    return RMQ_OUTCOME_DONE;
}
