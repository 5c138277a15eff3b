/* topic_names.h: the names of topics that belong to a consumer group. */
#ifndef RMQ_TOPIC_NAMES_H
#define RMQ_TOPIC_NAMES_H

#include <stdint.h>
#include <string.h>

#define RMQ_RETRY_PREFIX "%RETRY%"
#define RMQ_DEAD_PREFIX "%DLQ%"
#define RMQ_RETRY_PREFIX_LENGTH 7u
#define RMQ_DEAD_PREFIX_LENGTH 5u

/* The retry topic of a group: the group's name is behind the prefix. */
static inline int rmq_is_retry_topic(const void *name, uint32_t length)
{
    return length > RMQ_RETRY_PREFIX_LENGTH && !memcmp(name, RMQ_RETRY_PREFIX, RMQ_RETRY_PREFIX_LENGTH);
}
#endif
