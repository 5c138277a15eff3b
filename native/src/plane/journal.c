#include "plane/journal.h"

#include "plane/invariant.h"
#include "plane/port.h"
#include "plane/ring.h"

static uint32_t state_of(uint64_t tenure) { return tenure & ((1u << RMQ_TENURE_STATE_BITS) - 1); }

uint32_t rmq_journal_role(const struct rmq_watermarks *w)
{
    uint32_t state = state_of(rmq_load(&w->tenure));
    return state == RMQ_TENURE_TAKING || state == RMQ_TENURE_MASTER ? RMQ_ROLE_WRITE : RMQ_ROLE_HA;
}

int rmq_journal_is_owned(struct rmq_plane *plane, uint32_t role)
{
    return rmq_load(&rmq_header(plane)->ports.journal.owner) == role;
}

int rmq_journal_may_open(struct rmq_plane *plane, uint32_t role)
{
    uint64_t tenure = rmq_load(&plane->watermarks->tenure);
    int waits = role == RMQ_ROLE_WRITE && state_of(tenure) == RMQ_TENURE_TAKING;
    return rmq_journal_is_owned(plane, role) && (!waits || rmq_load(&rmq_header(plane)->ports.journal.may_open) == tenure);
}

void rmq_journal_let_open(struct rmq_plane *plane)
{
    rmq_store(&rmq_header(plane)->ports.journal.may_open, rmq_load(&plane->watermarks->tenure));
    RMQ_CRASH("journal-let");
    rmq_role_wake(plane, RMQ_ROLE_WRITE);
}

void rmq_journal_opened(struct rmq_plane *plane)
{
    rmq_store(&rmq_header(plane)->ports.journal.opened, rmq_load(&plane->watermarks->tenure));
    RMQ_CRASH("journal-opened");
}

int rmq_journal_has_passed(struct rmq_plane *plane)
{
    return rmq_journal_is_owned(plane, rmq_journal_role(plane->watermarks));
}

int rmq_journal_has_opened(struct rmq_plane *plane)
{
    uint64_t opened = rmq_load(&rmq_header(plane)->ports.journal.opened);
    return rmq_journal_has_passed(plane) && opened == rmq_load(&plane->watermarks->tenure);
}

int rmq_journal_is_stale(struct rmq_plane *plane)
{
    uint64_t tenure = rmq_load(&plane->watermarks->tenure);
    return state_of(tenure) == RMQ_TENURE_TAKING && rmq_load(&rmq_header(plane)->ports.journal.opened) != tenure;
}

void rmq_tenure_publish(struct rmq_plane *plane, uint64_t tenure)
{
    rmq_store(&rmq_header(plane)->ports.journal.may_open, 0); /* a control that died may have tried this epoch before */
    rmq_store(&plane->watermarks->tenure, tenure);
    RMQ_CRASH("control-tenure");
    for (uint32_t role = 0; role < RMQ_ROLES_MAX; role++)
        rmq_role_wake(plane, role);
}

void rmq_journal_give(struct rmq_plane *plane, uint32_t from, uint32_t to)
{
    struct rmq_journal *journal = &rmq_header(plane)->ports.journal;
    uint32_t owner = rmq_load(&journal->owner);
    RMQ_INVARIANT(owner == from, owner, from, to);
    rmq_store(&journal->opened, 0);
    RMQ_CRASH("journal-closed");
    rmq_store(&journal->owner, to);
    RMQ_CRASH("journal-given");
    rmq_role_wake(plane, to);
}

void rmq_port_stand(struct rmq_plane *plane, uint32_t port)
{
    uint64_t *stands = &rmq_port_at(plane, port)->stands, tenure = rmq_load(&plane->watermarks->tenure);
    if (rmq_load_relaxed(stands) != tenure)
        rmq_store(stands, tenure);
}

int rmq_ports_stand(struct rmq_plane *plane)
{
    struct rmq_plane_header *header = rmq_header(plane);
    uint64_t tenure = rmq_load(&plane->watermarks->tenure);
    for (uint32_t p = 0; p < header->ports.count; p++)
        if (rmq_load(&header->roles[rmq_port_role(header, p)].pid) && rmq_load(&header->ports.port[p].stands) != tenure)
            return 0;
    return 1;
}
