/* redo_rules.h: where a send goes that an answerer has approved, by the rule of its verdict (RMQ_REDO_*). A rule replaces the
 * prefix of the topic's name, and stores one more property. A new rule is a row of the table in redo_rules.c.
 *
 * What stays true: the redirect of a rule is that of the last send that has followed it, until the next one does.
 */
#ifndef RMQ_REDO_RULES_H
#define RMQ_REDO_RULES_H

#include "admission/admission.h"
#include "reader/send_target.h"

struct rmq_redo_rules {
    struct rmq_admission_rule redirects[RMQ_REDO_RULES];
};

void rmq_redo_rules_open(struct rmq_redo_rules *rules);
/* Queue 0 of the rule's topic. 0: the rule is not for such a send, the topic is gone, or the property has no room: control
 * decides again. */
int rmq_redo_target(struct rmq_redo_rules *rules, struct rmq_plane *plane, uint32_t rule, const struct rmq_send *s,
                    const struct rmq_admission_limits *limits, struct rmq_send_target *target);
#endif
