/* request_codes.h: the codes of requests that read workers know, and of the answers that they make themselves. */
#ifndef RMQ_REQUEST_CODES_H
#define RMQ_REQUEST_CODES_H

#include <stdint.h>

#define RMQ_CODE_SEND 10
#define RMQ_CODE_PULL 11
#define RMQ_CODE_HEARTBEAT 34
#define RMQ_CODE_LOCK 41
#define RMQ_CODE_SEND_V2 310
#define RMQ_CODE_SEND_BATCH 320
#define RMQ_CODE_LITE_PULL 361
#define RMQ_ANSWER_SUCCESS 0
#define RMQ_ANSWER_SYSTEM_ERROR 1
#define RMQ_ANSWER_BUSY 2
#define RMQ_ANSWER_FLUSH_TIMEOUT 10
#define RMQ_ANSWER_ILLEGAL 13
#define RMQ_ANSWER_NOT_AVAILABLE 14
#define RMQ_ANSWER_NOT_FOUND 19
#define RMQ_ANSWER_RETRY 20
#define RMQ_ANSWER_MOVED 21

static inline int rmq_is_send(int32_t code)
{
    return code == RMQ_CODE_SEND_V2 || code == RMQ_CODE_SEND_BATCH || code == RMQ_CODE_SEND;
}

static inline int rmq_is_pull(int32_t code) { return code == RMQ_CODE_PULL || code == RMQ_CODE_LITE_PULL; }
#endif
