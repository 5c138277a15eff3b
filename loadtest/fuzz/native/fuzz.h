/* fuzz.h: shared by the drivers: a seeded generator, golden inputs, structure-aware damage. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fuzz_input {
    uint8_t *bytes;
    uint32_t length;
};

extern struct fuzz_input *fuzz_golden;
extern uint32_t fuzz_golden_count;

void fuzz_seed(uint64_t seed);
/* 0 .. below - 1; 0 when below is 0. */
uint64_t fuzz_dice(uint64_t below);
/* A number that is at some edge. */
int64_t fuzz_edge(void);
/* Reads golden inputs: each a u32 length in machine order and its bytes. Ends the process on a fault. */
void fuzz_read_golden(const char *path);
/* Ends the process with a message. */
void fuzz_must(int holds, const char *what);
/* Changes bytes in place and may shorten: bits, tokens, moved ranges, edges in place of 4 or 8 bytes. New length. */
uint32_t fuzz_damage(uint8_t *bytes, uint32_t length);

#endif
