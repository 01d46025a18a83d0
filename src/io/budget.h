/*
 * budget.h - an arena that a hostile file cannot make grow without bound.
 *
 * One byte of a pickle can ask for sixteen of ours, and a tensor of five bytes for a thousand. Readers take what they
 * build from an arena with a budget of the file's size plus a constant, which honest files stay far below.
 */
#ifndef MSP_IO_BUDGET_H
#define MSP_IO_BUDGET_H

#include "core/arena.h"
#include "msprobe/error.h"

typedef struct msp_budget {
    msp_arena arena;
    size_t *left; /* in own, or in the budget that this one is part of */
    size_t own;
} msp_budget;

/* The file's size and msp_reader_extra(): 200,000 tensors even if the file is small. b must not move afterwards. */
void msp_budget_init(msp_budget *b, size_t file_size);

/* An arena of its own that spends what another budget has. */
void msp_budget_join(msp_budget *b, msp_budget *other);

void msp_budget_release(msp_budget *b);

/* Count n * size bytes that come from elsewhere; MSP_E_LIMIT when the budget does not allow them. */
MSP_CHECK msp_status msp_budget_spend(msp_budget *b, size_t n, size_t size, msp_error *err);

/* n * size bytes, zeroed, aligned to 16, which live as long as the budget. MSP_E_LIMIT or MSP_E_NOMEM. */
MSP_CHECK msp_status msp_budget_alloc(void **out, msp_budget *b, size_t n, size_t size, msp_error *err);

/* The next capacity of an array that outgrew cap and must hold need items. */
size_t msp_budget_grown(size_t cap, size_t need);

#endif
