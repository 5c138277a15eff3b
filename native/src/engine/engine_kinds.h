/* engine_kinds.h: the head that both engines begin with. Of this room alone. */
#ifndef RMQ_ENGINE_KINDS_H
#define RMQ_ENGINE_KINDS_H

#include "engine/engine.h"

struct rmq_engine {
    uint32_t kind; /* RMQ_ENGINE_IO_URING, RMQ_ENGINE_EPOLL */
};
#endif
