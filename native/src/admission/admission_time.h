/* admission_time.h: the time that a timer message asks for, and what refuses it. HookUtils.transformTimerMessage and
 * TimerMessageStore.isReject of stock. Pure. `ringmq.ipc.admission_time` is the twin.
 *
 * Unlike stock, a slot refuses the more often, the fuller it is: stock compares its random number the other way round.
 */
#ifndef RMQ_ADMISSION_TIME_H
#define RMQ_ADMISSION_TIME_H

#include "admission/admission.h"
#include "codec/send_decode.h"
#include "plane/admission_layout.h"

/* cdef-begin */
#define RMQ_TIME_NONE 0      /* no time is asked for, or the message has TIMER_OUT_MS */
#define RMQ_TIME_LATER 1     /* the message waits */
#define RMQ_TIME_PASSED 2    /* the message is an ordinary one */
#define RMQ_TIME_DISABLED 3  /* faults from here on: timerWheelEnable is false */
#define RMQ_TIME_NO_NUMBER 4
#define RMQ_TIME_TOO_FAR 5
#define RMQ_TIME_DELETES_PASSED 6 /* a delete of a timer whose time has passed */
#define RMQ_TIME_SLOT_FULL 7

#define RMQ_CHANCES 1000     /* of rmq_admit_slot */
#define RMQ_TIME_REMARK_MAX 512 /* with its NUL */

/* RMQ_TIME_*; sets out_ms and time_pair of *out where there are any. */
uint32_t rmq_time_asked(const struct rmq_send *s, const struct rmq_admission_rule *rule, int64_t now_ms, struct rmq_admitted *out);
/* Refuses an admitted timer message if its slot is too full. `messages`: of the slot; `chance`: random, below RMQ_CHANCES. */
void rmq_admit_slot(const struct rmq_admission_rule *rule, int64_t messages, uint32_t chance, struct rmq_admitted *out);
/* The remark of a refusal, NUL-terminated, with stock's words first. `to` has room for RMQ_TIME_REMARK_MAX bytes. */
void rmq_time_remark(char *to, const struct rmq_send *s, const struct rmq_admission_rule *rule, const struct rmq_admitted *admitted);
int32_t rmq_time_code(uint32_t fault); /* of the answer */
/* cdef-end */
#endif
