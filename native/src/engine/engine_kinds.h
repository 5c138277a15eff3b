/* engine_kinds.h: the head that each engine begins with. Of this room alone. */
#ifndef RMQ_ENGINE_KINDS_H
#define RMQ_ENGINE_KINDS_H

#include "engine/engine.h"

struct rmq_engine {
    uint32_t kind; /* RMQ_ENGINE_IO_URING */
};
#endif
