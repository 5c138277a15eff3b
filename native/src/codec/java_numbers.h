/* java_numbers.h: Java's rules for numbers in texts of UTF-8. filters/values.py is the twin. C only. */
#ifndef RMQ_JAVA_NUMBERS_H
#define RMQ_JAVA_NUMBERS_H

#include <stdint.h>

/* Integer.valueOf and Long.valueOf: a sign, then digits of any script. 1 = a number in [low, high]. */
int rmq_java_integer(const uint8_t *text, uint32_t length, int64_t low, int64_t high, int64_t *out);
/* Double.valueOf. 1 = a number, NaN or Infinity. */
int rmq_java_double(const uint8_t *text, uint32_t length, double *out);
/* Boolean.valueOf. */
int rmq_java_true(const uint8_t *text, uint32_t length);
#endif
