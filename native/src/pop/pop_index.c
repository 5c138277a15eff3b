#include "pop/pop_index.h"

#include <errno.h>
#include <stdlib.h>

#include "base/name_hash.h"
#include "plane/ring.h"
#include "plane/settings_word.h"

struct cell {
    uint32_t group, slot, place, id; /* id 0: free */
};

/* Of each place: its window, and the neighbours in the list of its group. */
struct member {
    uint32_t before, behind, group, slot, id;
};

struct rmq_pop_index {
    uint64_t secret[2];
    uint32_t mask, count, windows_max, groups_max, end; /* end: behind the highest place that was used */
    struct cell *cells;
    struct member *members;
    uint32_t *first; /* of each group */
};

struct rmq_pop_index *rmq_pop_index_open(const uint64_t *secret, uint32_t windows_max, uint32_t groups_max)
{
    uint32_t size = 16;
    while (size < windows_max * 2)
        size *= 2;
    struct rmq_pop_index *index = calloc(1, sizeof *index);
    if (!index)
        return NULL;
    *index = (struct rmq_pop_index){
        .secret = {secret[0], secret[1]}, .mask = size - 1, .windows_max = windows_max, .groups_max = groups_max,
        .cells = calloc(size, sizeof *index->cells), .members = malloc((size_t)windows_max * sizeof *index->members),
        .first = malloc(((size_t)groups_max + 1) * sizeof *index->first)};
    if (!index->cells || !index->members || !index->first) {
        rmq_pop_index_close(index);
        return NULL;
    }
    for (uint32_t group = 0; group <= groups_max; group++)
        index->first[group] = RMQ_NONE;
    for (uint32_t place = 0; place < windows_max; place++)
        index->members[place].group = RMQ_NONE;
    return index;
}

void rmq_pop_index_close(struct rmq_pop_index *index)
{
    if (index) {
        free(index->cells);
        free(index->members);
        free(index->first);
    }
    free(index);
}

/* The cell of the pair, or the free one in which it would be. */
static uint32_t cell_of(const struct rmq_pop_index *index, uint32_t group, uint32_t slot)
{
    uint32_t at = rmq_pair_hash(index->secret, group, slot) & index->mask;
    while (index->cells[at].id && (index->cells[at].group != group || index->cells[at].slot != slot))
        at = (at + 1) & index->mask;
    return at;
}

static void leave_group(struct rmq_pop_index *index, uint32_t place)
{
    struct member *m = &index->members[place];
    if (m->group == RMQ_NONE)
        return;
    if (m->before == RMQ_NONE)
        index->first[m->group] = m->behind;
    else
        index->members[m->before].behind = m->behind;
    if (m->behind != RMQ_NONE)
        index->members[m->behind].before = m->before;
    m->group = RMQ_NONE;
}

static void join_group(struct rmq_pop_index *index, uint32_t group, uint32_t place, uint32_t slot, uint32_t id)
{
    leave_group(index, place);
    if (place >= index->end)
        index->end = place + 1;
    uint32_t behind = index->first[group];
    index->members[place] = (struct member){.before = RMQ_NONE, .behind = behind, .group = group, .slot = slot, .id = id};
    if (behind != RMQ_NONE)
        index->members[behind].before = place;
    index->first[group] = place;
}

int rmq_pop_index_put(struct rmq_pop_index *index, uint32_t group_id, uint32_t queue_slot, uint32_t place, uint32_t window_id)
{
    struct cell *cell = &index->cells[cell_of(index, group_id, queue_slot)];
    if (place >= index->windows_max || group_id > index->groups_max || !window_id || (!cell->id && index->count == index->windows_max))
        return -ENOSPC;
    if (cell->id && cell->place != place)
        leave_group(index, cell->place);
    index->count += !cell->id;
    *cell = (struct cell){group_id, queue_slot, place, window_id};
    join_group(index, group_id, place, queue_slot, window_id);
    return 0;
}

void rmq_pop_index_forget(struct rmq_pop_index *index, uint32_t group_id, uint32_t queue_slot)
{
    uint32_t hole = cell_of(index, group_id, queue_slot);
    if (!index->cells[hole].id)
        return;
    leave_group(index, index->cells[hole].place);
    index->count--;
    index->cells[hole].id = 0;
    for (uint32_t at = (hole + 1) & index->mask; index->cells[at].id; at = (at + 1) & index->mask) {
        uint32_t home = rmq_pair_hash(index->secret, index->cells[at].group, index->cells[at].slot) & index->mask;
        if (((at - home) & index->mask) < ((at - hole) & index->mask))
            continue; /* it is found without the hole */
        index->cells[hole] = index->cells[at];
        index->cells[at].id = 0;
        hole = at;
    }
}

uint32_t rmq_pop_index_find(const struct rmq_pop_index *index, uint32_t group_id, uint32_t queue_slot, uint32_t *window_id)
{
    const struct cell *cell = &index->cells[cell_of(index, group_id, queue_slot)];
    *window_id = cell->id;
    return cell->id ? cell->place : RMQ_NONE;
}

uint32_t rmq_pop_index_group(const struct rmq_pop_index *index, uint32_t place)
{
    return place < index->windows_max ? index->members[place].group : RMQ_NONE;
}

uint32_t rmq_pop_index_queue(const struct rmq_pop_index *index, uint32_t place)
{
    return rmq_pop_index_group(index, place) == RMQ_NONE ? RMQ_NONE : index->members[place].slot;
}

uint32_t rmq_pop_index_first(const struct rmq_pop_index *index, uint32_t group_id)
{
    return group_id <= index->groups_max ? index->first[group_id] : RMQ_NONE;
}

uint32_t rmq_pop_index_next(const struct rmq_pop_index *index, uint32_t place)
{
    return place < index->windows_max && index->members[place].group != RMQ_NONE ? index->members[place].behind : RMQ_NONE;
}

static int is_there(const struct member *m, struct rmq_plane *plane, struct rmq_pop_windows *windows, uint32_t place)
{
    const struct rmq_pop_window *window = rmq_pop_window_at(windows, place);
    const struct rmq_topic *topic = rmq_topic_at(plane, rmq_queue_at(plane, m->slot)->topic_id);
    return window && window->id == m->id && rmq_topic_is_live(rmq_load(&topic->config)) &&
           rmq_load(&rmq_group_at(plane, m->group)->config) & RMQ_GROUP_LIVE;
}

uint32_t rmq_pop_index_gone(const struct rmq_pop_index *index, struct rmq_plane *plane, struct rmq_pop_windows *windows, uint32_t *at,
                            uint32_t room)
{
    while (*at < index->end && room--) {
        uint32_t place = (*at)++;
        const struct member *m = &index->members[place];
        if (m->group != RMQ_NONE && !is_there(m, plane, windows, place))
            return place;
    }
    if (*at >= index->end)
        *at = 0;
    return RMQ_NONE;
}
