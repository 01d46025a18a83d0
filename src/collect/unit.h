/*
 * unit.h - one folder of a dump while it is written: its files, and the text that waits for the next publishing.
 */
#ifndef MSP_COLLECT_UNIT_H
#define MSP_COLLECT_UNIT_H

#include <time.h>
#include "collect/lines.h"
#include "collect/publish.h"
#include "collect/ring.h"
#include "core/arena.h"

/* A call whose stack is known, for stack.json. */
typedef struct unit_site {
    uint32_t stack; /* its number */
    uint32_t seq;   /* the call's own, in the order of calls */
    msp_str name;
} unit_site;

/* A place that is kept in data_text for a record that comes late. */
typedef struct unit_hole {
    uint32_t number; /* what the record names it by */
    size_t at;
} unit_hole;

typedef struct msp_unit {
    bool debug;      /* it has one file, debug.json or another of its form */
    msp_lines lines; /* it has one file, of lines: its fd says so, and nothing else is used but data_text */
    char *dir;
    msp_publish data, stack, construct;
    msp_buf data_text, construct_text; /* members that wait for publishing, each with a comma before it */
    unit_hole *holes;                  /* in the order of their places */
    size_t nholes, holes_cap;
    struct timespec hole_since; /* when the oldest of them was made */
    unit_site *sites;           /* the calls with a stack since the last publishing */
    size_t nsites, sites_cap;
    msp_arena names;     /* the texts of their names */
    uint64_t stack_keys; /* how many entries stack.json has */
} msp_unit;

/*
 * Make the folder from the body of a FRAME_UNIT; its files come with the first publishing. With again set, go on with
 * files that an earlier writer left. On failure nothing is held; MSP_E_INVALID: the ring is foreign, and the
 * folder not below its own.
 */
MSP_CHECK msp_status msp_unit_open(msp_unit *u, const frame_header *h, const msp_ring *ring, bool again,
                                   msp_error *err);

/* Take in a frame for this unit. Damaged frames are counted in *damaged and otherwise ignored. */
MSP_CHECK msp_status msp_unit_add(msp_unit *u, const frame_header *h, const unit_stack *stacks, size_t nstacks,
                                  int64_t *damaged, msp_error *err);

/* Bytes that wait for publishing. */
size_t msp_unit_pending(const msp_unit *u);

/* Write ahead what the next publishing will want, if that is much. */
void msp_unit_prepare(msp_unit *u);

/* Nothing waits, and the files are there. */
bool msp_unit_is_published(const msp_unit *u);

/* Put everything that waits into the files, and make them if they are not there. */
MSP_CHECK msp_status msp_unit_publish(msp_unit *u, const unit_stack *stacks, size_t nstacks, msp_error *err);

/*
 * Show what waits, and behind it what waits in more, a unit without files that took in later frames; both keep it. What
 * is published next takes its place. A unit of lines shows nothing.
 */
MSP_CHECK msp_status msp_unit_preview(msp_unit *u, msp_unit *more, const unit_stack *stacks, size_t nstacks,
                                      msp_error *err);

/* One for msp_unit_preview(), to be given back with msp_unit_close(). */
msp_unit msp_unit_without_files(bool debug);

/* Close the files; what was not published is dropped. */
void msp_unit_close(msp_unit *u);

#endif
