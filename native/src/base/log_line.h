/* log_line.h: the form of a log line, for lines that C writes itself. The Python twin is ipc/log_lines.py.
 *
 * Text:  TIME LEVEL WORKER TEXT     each further line of TEXT is indented, so that no text can imitate a line
 * JSON:  {"time":TIME,"level":LEVEL,"worker":WORKER,"text":TEXT}
 *
 * TIME is UTC with milliseconds. For the journal, a line begins with systemd's priority (`<4>`), and a text line has no
 * time, because the journal has its own. A worker that ends by a broken invariant writes its line here: this code takes
 * no lock and no memory.
 */
#ifndef RMQ_LOG_LINE_H
#define RMQ_LOG_LINE_H
#include <stddef.h>
#include <stdint.h>

/* cdef-begin */
#define RMQ_LOG_DEBUG 10 /* the numbers of Python's logging */
#define RMQ_LOG_INFO 20
#define RMQ_LOG_WARNING 30
#define RMQ_LOG_ERROR 40
#define RMQ_LOG_CRITICAL 50

#define RMQ_LOG_JSON 1    /* style: one JSON object a line */
#define RMQ_LOG_JOURNAL 2 /* style: standard error is the journal of systemd */

#define RMQ_LOG_LINE_MAX 5120 /* for 768 characters that JSON escapes */

/* Writes the line with its newline, cut to `room` bytes. Returns its length. `time_ms`: since 1970. */
size_t rmq_log_format(char *into, size_t room, uint32_t style, int64_t time_ms, uint32_t level, const char *worker,
                      const char *text);
/* Sets the style of this process. */
void rmq_log_style(uint32_t style);
/* cdef-end */

/* Writes a line of at most RMQ_LOG_LINE_MAX bytes to standard error. */
void rmq_log_write(uint32_t level, const char *worker, const char *text);
#endif
