/* plan_join.h - with a layout: the dumps of several ranks as one side of a pair. */
#ifndef MSP_COMPARE_PLAN_JOIN_H
#define MSP_COMPARE_PLAN_JOIN_H

#include "compare/run/run.h"

/*
 * Copies of the places of these ranks in their order, or of all where ranks is NULL; their texts stay the places' own.
 * MSP_E_NOT_FOUND when one is missing. *out is msp_free()'s in any case.
 */
MSP_CHECK msp_status msp_plan_join(msp_dump_place **out, size_t *n, const msp_dump_place *places, size_t count,
                                   const int64_t *ranks, size_t nranks, const char *side, msp_error *err);

#endif
